"""The broker port in memory: a lane is a queue of numbered messages, and readers take from it.

Nothing is fetched ahead: a reader holds just what it has taken, and all else is there for others.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from heapq import nsmallest
from itertools import count

import msgspec

from pushlane.backends.memory.shared import LockAndClock, MemoryPort, call_on, one_step
from pushlane.backends.ports import Delayed, Placed, number_of, of_each, refuse_second
from pushlane.core.errors import UnknownLane
from pushlane.core.ports import OnReady, Source, Taken

_PAGE = 1_000


class _Message(msgspec.Struct):
    """A message of a lane. It may be taken from `due_ms` on (Unix ms, 0 for at once)."""

    number: int
    body: bytes
    published_ms: int
    due_ms: int = 0
    holder: MemoryReader | None = None
    was_taken: bool = False


class _Lane:
    """One lane. A message that is not acked is either held by a reader or in one of two queues."""

    def __init__(self) -> None:
        self.keeps = False
        self.readers: set[MemoryReader] = set()
        self.last_number = 0
        self.unacked: dict[int, _Message] = {}
        self._acked: dict[int, _Message] = {}  # only on a lane that keeps them
        self._fresh: deque[int] = deque()
        self._waiting: list[tuple[int, int]] = []  # a heap of due times and numbers
        self._sources: dict[str, int] = {}  # the last number that each has published

    def last_of(self, source: str) -> int:
        """Return the last number that a source has published, 0 for none."""
        return self._sources.get(source, 0)

    def new_of(self, source: Source | None, messages: list[_Message]) -> list[_Message]:
        """Return those that the source has not published before, and remember its last number."""
        if source is None or not source.numbers:
            return messages
        last = self._sources.get(source.name, 0)
        refuse_second(source, last)
        self._sources[source.name] = max(last, source.numbers[-1])
        pairs = zip(messages, source.numbers, strict=True)
        return [message for message, number in pairs if number > last]

    def put(self, message: _Message) -> None:
        self.last_number = message.number
        self.unacked[message.number] = message
        if message.due_ms:
            heapq.heappush(self._waiting, (message.due_ms, message.number))
        else:
            self._fresh.append(message.number)

    def take(self, reader: MemoryReader, now_ms: int) -> _Message | None:
        """Hand the next message to a reader: first those that came back or whose time has come."""
        if not self.has_any(now_ms):
            return None
        is_due = self._waiting and self._waiting[0][0] <= now_ms
        message = self.unacked[heapq.heappop(self._waiting)[1] if is_due else self._fresh.popleft()]
        message.holder = reader
        return message

    def has_any(self, now_ms: int) -> bool:
        return bool(self._fresh or (self._waiting and self._waiting[0][0] <= now_ms))

    def next_due_ms(self) -> int | None:
        """Return when the first of those that wait may go; None when none waits."""
        return self._waiting[0][0] if self._waiting else None

    def delayed(self, now_ms: int) -> Delayed:
        dues = sorted(due_ms for due_ms, _ in self._waiting if due_ms > now_ms)
        return Delayed(len(dues), dues[0], dues[-1]) if dues else Delayed(0)

    def hasten(self, later_than_ms: int) -> int:
        """Let what is due after then be taken now; return how many."""
        later = [number for due_ms, number in self._waiting if due_ms > later_than_ms]
        for number in later:
            self.unacked[number].due_ms = 0
        rest = [(due_ms, number) for due_ms, number in self._waiting if due_ms <= later_than_ms]
        self._waiting = rest + [(0, number) for number in later]
        heapq.heapify(self._waiting)
        return len(later)

    def ack(self, number: int) -> None:
        message = self.unacked.pop(number, None)
        if message is None:
            return
        if message.holder is None:  # it came back meanwhile
            self._waiting.remove((message.due_ms, number))
            heapq.heapify(self._waiting)
        if self.keeps:
            self._acked[number] = message

    def give_back(self, reader: MemoryReader) -> None:
        """Put all that the reader holds to the front of the lane."""
        for message in self.unacked.values():
            if message.holder is reader:
                message.holder, message.due_ms = None, 0
                heapq.heappush(self._waiting, (0, message.number))

    def is_past(self, number: int) -> bool:
        return all(one > number for one in self.unacked)

    def history(self, since_ms: int) -> list[bytes]:
        """Return the bodies that were published since then and are still kept, in order."""
        kept = sorted((self._acked | self.unacked).items())
        return [one.body for _, one in kept if one.published_ms >= since_ms]

    def kick(self) -> None:
        """Have all readers that found nothing look again."""
        for reader in self.readers:
            reader.kick()

    def end(self) -> None:
        """Leave nothing to who may still read it."""
        self.readers.clear()
        self.unacked.clear()
        self._fresh.clear()
        self._waiting.clear()


class MemoryLanes:
    """All lanes of a backend. Numbers of messages are never given twice, in whichever lane."""

    def __init__(self) -> None:
        self.by_name: dict[str, _Lane] = {}
        self.numbers = count(1)

    def kick(self) -> None:
        """Have all readers that found nothing look again, as when the clock was set on."""
        for lane in self.by_name.values():
            lane.kick()

    def get(self, name: str) -> _Lane:
        """Return the lane; one with nothing on it when there is none of this name."""
        return self.by_name.get(name) or _Lane()

    def find(self, name: str) -> _Lane:
        """Return the lane. Raises UnknownLane when there is none of this name."""
        if name not in self.by_name:
            raise UnknownLane(f"there is no lane {name}: it was never opened, or is dropped")
        return self.by_name[name]


class MemoryReader(MemoryPort):
    """See `core.ports.LaneReader`. It calls `on_ready` on the loop that it was opened on."""

    def __init__(self, owner: MemoryBroker, name: str, lane: _Lane, on_ready: OnReady) -> None:
        super().__init__(owner._shared)
        self.owner = owner
        self.lane = name
        self._lane = lane
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_dry = True
        lane.readers.add(self)

    def take(self) -> Taken | None:
        if self._is_dry:  # what there is now comes after a call of `on_ready`
            return None
        with self._shared.lock:
            message = self._lane.take(self, self._now_ms)
            if message is None:
                self._is_dry = True
                self._wait_for_due()
                return None
            is_first = not (message.was_taken or message.due_ms)
            message.was_taken = True
            return Taken(message.body, self.lane, message.number, is_first)

    def refill_wait_s(self) -> float:
        """Return 0: what there is can be taken at once."""
        return 0.0

    def kick(self) -> None:
        """Note that there may be something new on the lane, and tell who was told of nothing."""
        if self._is_dry:
            call_on(self._loop, self._look)

    @one_step
    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop reading, and leave to others what was taken and not acked."""
        self._is_dry = True
        self._stop_timer()
        self._lane.readers.discard(self)
        self._lane.give_back(self)
        self._lane.kick()

    def _look(self) -> None:
        with self._shared.lock:
            if not self._is_dry or self not in self._lane.readers:
                return
            self._is_dry = not self._lane.has_any(self._now_ms)
            if self._is_dry:
                self._wait_for_due()
                return
        self._on_ready(self)

    def _wait_for_due(self) -> None:
        self._stop_timer()
        due_ms = self._lane.next_due_ms()
        if due_ms is not None:
            wait_s = max(0, due_ms - self._now_ms) / 1000 + 0.001
            self._timer = self._loop.call_later(wait_s, self._look)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


class MemoryBroker(MemoryPort):
    """See `backends.ports.Broker`. Several on the same lanes are like several processes."""

    def __init__(self, shared: LockAndClock, lanes: MemoryLanes) -> None:
        super().__init__(shared)
        self._lanes = lanes

    @property
    def in_doubt(self) -> bool:
        """Always False: what was taken goes to nobody else before its reader is closed."""
        return False

    @property
    def held_since_s(self) -> float:
        """Always 0, for the same reason."""
        return 0.0

    @one_step
    def open_lane(self, lane: str, *, keep: bool = False) -> None:
        found = self._lanes.by_name.setdefault(lane, _Lane())
        found.keeps = found.keeps or keep

    @one_step
    def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        if self._lanes.get(lane).readers and not force:
            return False
        self._lanes.by_name.pop(lane, _Lane()).end()
        return True

    @one_step
    def lanes(self) -> list[str]:
        return list(self._lanes.by_name)

    @one_step
    def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        found, now = self._lanes.find(lane), self._now_ms
        messages = [
            _Message(next(self._lanes.numbers), body, now, _due_ms(now, one_s))
            for body, one_s in zip(bodies, of_each(delay_s, len(bodies)), strict=True)
        ]
        for message in found.new_of(source, messages):
            found.put(message)
        found.kick()

    async def close_source(self, lane: str, name: str) -> None:
        """Do nothing: nothing is kept open for a source."""

    @one_step
    def last_of(self, lane: str, source: str) -> int:
        return self._lanes.find(lane).last_of(source)

    @one_step
    def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> MemoryReader:
        """Open a reader; see the port. Nothing is at hand before it is taken, whatever `depth`."""
        reader = MemoryReader(self, lane, self._lanes.find(lane), on_ready)
        reader.kick()
        return reader

    @one_step
    def ack(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            self._lanes.get(one.lane).ack(one.handle)

    @one_step
    def backlog(self, lane: str) -> int:
        return len(self._lanes.get(lane).unacked)

    @one_step
    def delayed(self, lane: str) -> Delayed:
        return self._lanes.get(lane).delayed(self._now_ms)

    @one_step
    def hasten(self, lane: str, later_than_ms: int) -> int:
        found = self._lanes.get(lane)
        count = found.hasten(later_than_ms)
        found.kick()
        return count

    @one_step
    def unacked(self, lane: str, after: str, most: int) -> list[Placed]:
        found, last = self._lanes.get(lane).unacked, number_of(after) if after else 0
        behind = nsmallest(most, (number for number in found if number > last))
        return [Placed(str(number), found[number].body) for number in behind]

    async def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        with self._shared.lock:
            bodies = self._lanes.get(lane).history(since_ms)
        for start in range(0, len(bodies), _PAGE):
            yield bodies[start : start + _PAGE]

    @one_step
    def retained_since_ms(self, lane: str) -> int | None:
        """Return 0 for a lane that keeps acked messages, since it has all; None for any other."""
        return 0 if self._lanes.get(lane).keeps else None

    @one_step
    def end_of(self, lane: str) -> tuple[int, int]:
        """Return the number of the lane's last message, and nothing more that matters."""
        return (self._lanes.get(lane).last_number, 0)

    @one_step
    def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        return self._lanes.get(lane).is_past(end[0])

    async def ping(self) -> None:
        """Do nothing: there is nobody who could not answer."""

    @one_step
    def close(self) -> None:
        for lane in self._lanes.by_name.values():
            for reader in [one for one in lane.readers if one.owner is self]:
                reader.leave()


def _due_ms(now_ms: int, delay_s: float) -> int:
    """Return when a message may be taken: never before its delay has passed."""
    return now_ms + math.ceil(delay_s * 1000) + 1 if delay_s > 0 else 0
