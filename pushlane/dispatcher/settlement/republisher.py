"""Puts pushes on other lanes: retries and forwards on theirs, dead ones on the dead-letter lane.

What has gathered for a lane is published together, and tried again until it is there. Only then is
the message that a push came on acked, which the settler does.

A publish that got no answer may have reached the broker all the same. So each body has a number, by
which the broker keeps it once, however often it is published. The broker takes only numbers above
all that it has from that source: so the publishes on a lane go one after another, and none begins
before the one before it has got through, or was given up.

A batch of which only a part got through is repeated whole. That is safe since what the broker has
of it is a beginning: the client sends in order on one connection, sends again in order on the
next, and when one body times out gives up all that are on their way.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.settlement.receipts import Receipt, Receipts
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError, UnknownFormat, UnknownLane, UnknownTask
from pushlane.lanes.naming import is_dead, is_pool, task_of
from pushlane.lanes.ports import Source
from pushlane.lanes.push import Kind
from pushlane.lanes.retrying import Backoffs

log = logging.getLogger("pushlane.settle")

FLUSH_EVERY_S = 0.01
MOST_SOURCES = 256
IDLE_S = 300.0
_GONE = "its lane was dropped"


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A push that is finished, or that waits on another lane now.

    `moves` says that it left a main lane for another one, `reason` of what a dead one died, as a
    class. One is made for every push: a struct
    takes a sixth of the time of a named tuple.
    """

    lane: OpenLane
    taken: Held
    task_id: str
    seq: int
    kind: Kind | None
    receipt: Receipt | None = None
    moves: bool = False
    reason: str = ""


class Republish(NamedTuple):
    """A body to publish before `end`. A lane that is gone went with its task: it is dropped.

    `opens_for` is the task whose later lane has to be open first, or whose lane at the sink
    `opens_at` of its chain; none when the lane is there.
    """

    target: str
    body: bytes
    end: Ack
    delay_s: float = 0.0
    opens_for: str = ""
    opens_at: str = ""


class _LaneQueue:
    """What goes on on one lane, under the name of one source. `number` is the last that was used.

    It is `busy` while something of it is being published; `used_s` is when that last ended.
    """

    __slots__ = ("busy", "lane", "moves", "name", "number", "used_s")

    def __init__(self, lane: str, name: str) -> None:
        self.lane = lane
        self.name = name
        self.moves: list[Republish] = []
        self.number = 0
        self.busy = False
        self.used_s = 0.0

    def take(self) -> tuple[list[Republish], Source]:
        """Take all that waits, with a number for each."""
        moves, self.moves = self.moves, []
        first = self.number + 1
        self.number += len(moves)
        return moves, Source(self.name, range(first, self.number + 1))


class AckListener(Protocol):
    """Acks what a push came on, once the push is on another lane."""

    def end(self, ends: Sequence[Ack]) -> None:
        """Hear of pushes that are published."""

    def give_up(self, ends: Sequence[Ack]) -> None:
        """Hear of pushes that only a process of a newer version can publish."""


class FurtherLanes:
    """Opens the later lane of a task when a push first has to wait for its time, and its lane at a
    later sink of its chain when a push first goes on there.

    An idle reader costs memory in every process, so a task that needs neither has none.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def ensure(self, task_id: str, sink: str = "") -> None:
        """Return once the task has a later lane, or its lane at this sink, or has ended.

        Raises:
            PushlaneError: broker or registry does not answer, or many change the task at once.
        """
        if self._is_settled(task_id, sink):
            return
        async with self._opening.setdefault((task_id, sink), asyncio.Lock()):
            if not self._is_settled(task_id, sink):
                await self._open(task_id, sink)
        self._opening.pop((task_id, sink), None)

    def _is_settled(self, task_id: str, sink: str) -> bool:
        task = self._tasks.find(task_id)
        if task is None or task.state.is_terminal:
            return task is not None
        return sink in task.reached if sink else task.has_later

    async def _open(self, task_id: str, sink: str) -> None:
        backend = self._backend
        try:
            self._tasks.apply(
                await (backend.reach(task_id, sink) if sink else backend.open_later(task_id))
            )
        except UnknownTask:  # it went with its lanes, as a publish will tell
            return


class Republisher:
    """Publishes what goes on on another lane, and tells the settler.

    Bodies are `numbered` unless the broker needs no numbers. The sources of lanes on which nothing
    went on for a while are closed, and the oldest when there are too many; no name is used twice.
    `clock_s` is a monotonic clock.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
        receipts: Receipts,
        settler: AckListener,
        *,
        numbered: bool,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._numbered = numbered
        self._clock_s = clock_s
        self._token = secrets.token_hex(6)
        self._openings = itertools.count(1)
        self._queues: OrderedDict[str, _LaneQueue] = OrderedDict()  # the latest used last
        self._further_lanes = FurtherLanes(backend, tasks)
        self._receipts = receipts
        self._settler = settler
        self._moves: list[Republish] = []
        self._moved = asyncio.Event()
        self._backoffs = Backoffs(log)

    def add(self, move: Republish) -> None:
        """Publish it with the next batch."""
        self._moves.append(move)
        self._moved.set()

    async def run(self) -> None:
        """Publish what has gathered, each lane for itself: one to be opened holds up no other."""
        async with asyncio.TaskGroup() as publishing:
            publishing.create_task(self._close_idle_ones())
            while True:
                await self._moved.wait()
                self._moved.clear()
                await asyncio.sleep(FLUSH_EVERY_S)
                moves, self._moves = self._moves, []
                for move in moves:
                    queue = self._queue_of(move.target)
                    queue.moves.append(move)
                    if not queue.busy:
                        queue.busy = True
                        publishing.create_task(self._publish_all(queue))
                if len(self._queues) > MOST_SOURCES:  # not awaited: a close may take its 10 s
                    publishing.create_task(self.close_old(float("-inf")))

    def _queue_of(self, lane: str) -> _LaneQueue:
        queue = self._queues.get(lane)
        if queue is None:
            name = f"again-{self._token}-{next(self._openings)}"
            queue = self._queues[lane] = _LaneQueue(lane, name)
        self._queues.move_to_end(lane)
        return queue

    async def _close_idle_ones(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S / 2)
            await self.close_old(self._clock_s() - IDLE_S)

    async def close_old(self, before_s: float) -> None:
        """Close sources that were last used before then, and the oldest of too many.

        All are forgotten before the first is waited for: so none that is being closed is used
        again, and none is closed by two calls at once.
        """
        for queue in self._forget_old(before_s):
            if self._numbered:
                await self._backend.broker.close_source(queue.lane, queue.name)

    def _forget_old(self, before_s: float) -> list[_LaneQueue]:
        idle = [queue for queue in self._queues.values() if not queue.busy]
        excess = max(0, len(self._queues) - MOST_SOURCES)
        old = [
            queue for place, queue in enumerate(idle) if place < excess or queue.used_s < before_s
        ]
        for queue in old:
            del self._queues[queue.lane]
        return old

    async def _publish_all(self, queue: _LaneQueue) -> None:
        while queue.moves:
            await self._publish(queue.lane, *queue.take())
        queue.busy = False
        queue.used_s = self._clock_s()

    async def _publish(self, target: str, moves: list[Republish], source: Source) -> None:
        """Try until they are there, each time the same ones."""
        while True:
            try:
                ends = await self._publish_once(target, moves, source)
                break
            except UnknownFormat:  # unacked, they go to processes of a newer version
                self._settler.give_up([move.end for move in moves])
                return
            except PushlaneError as error:
                await self._backoffs.wait(target, error)
        self._backoffs.reset(target)
        self._settler.end(ends)

    async def _publish_once(self, target: str, moves: list[Republish], source: Source) -> list[Ack]:
        opener = next((move for move in moves if move.opens_for), None)
        if opener is not None:
            await self._further_lanes.ensure(opener.opens_for, opener.opens_at)
        try:
            await self._put_on(target, moves, source)
        except UnknownLane:
            if is_dead(target) or is_pool(target):  # made by its first dead push, or lost
                await self._backend.broker.open_lane(target)
                await self._put_on(target, moves, source)
            elif await self._is_over(target):
                return [self._dropped(move) for move in moves]
            else:  # not heard of yet, or about to be made anew
                raise
        return [move.end for move in moves]

    async def _put_on(self, lane: str, moves: list[Republish], source: Source) -> None:
        await self._backend.broker.publish(
            lane,
            [move.body for move in moves],
            delay_s=[move.delay_s for move in moves],
            source=source if self._numbered else None,
        )

    async def _is_over(self, lane: str) -> bool:
        """Tell whether the lane went with its task. Raises TaskInDoubt while nobody knows."""
        task_id = task_of(lane)
        task = await self._backend.find(task_id) if task_id is not None else None
        return task is None or task.state.is_terminal

    def _dropped(self, move: Republish) -> Ack:
        """Count a push as dropped whose lane went with its task."""
        receipt = self._receipts.of_dropped(move.end.lane, move.end.taken, _GONE)
        return replace(move.end, kind=Kind.DROPPED, receipt=receipt)
