"""Takes messages off one lane of the embedded store, from a small buffer that is filled behind it.

`take` only pops. It never touches the store: it asks its feeder, which fills many readers at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from pushlane.backends.embedded.messages import ClaimedBatch
from pushlane.core.task import now_ms
from pushlane.lanes.ports import OnReady, Taken

REFILL_WAIT_S = 0.2


class AtHand:
    """The bytes of all messages that the readers of a process have at hand."""

    def __init__(self) -> None:
        self.bytes = 0


class EmbeddedReader:
    """See `core.ports.LaneReader`. `ask` has the feeder look for more messages."""

    def __init__(
        self,
        lane: str,
        lane_id: int,
        reader_id: int,
        depth: int,
        on_ready: OnReady,
        ask: Callable[[EmbeddedReader], None],
        leave: Callable[[EmbeddedReader], Awaitable[None]],
        at_hand: AtHand,
    ) -> None:
        self.lane = lane
        self.lane_id = lane_id
        self.reader_id = reader_id
        self.depth = depth
        self._on_ready = on_ready
        self._ask = ask
        self._leave = leave
        self._at_hand = at_hand
        self._buffer: deque[Taken] = deque()
        self._low = 0
        self._first_until_s = 0.0
        self._more = True  # the store may hold messages that we have not looked for
        self._told_empty = True
        self._looks = False  # the feeder is looking right now
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def held(self) -> int:
        """Return the number of messages at hand."""
        return len(self._buffer)

    def take(self) -> Taken | None:
        if not self._buffer:
            self._told_empty = True
            self._ask_if_low()
            return None
        taken = self._buffer.popleft()
        self._at_hand.bytes -= len(taken.body)
        if taken.is_first and time.monotonic() > self._first_until_s:
            taken.is_first = False
        self._ask_if_low()
        return taken

    def refill_wait_s(self) -> float:
        return REFILL_WAIT_S if self._more or self._looks else 0.0

    def kick(self) -> None:
        """Note that there may be something new on the lane."""
        self._more = True
        self._ask_if_low()

    def looking(self) -> None:
        """Note that the feeder looks now; another kick tells of messages that come later."""
        self._more = False
        self._looks = True

    def looked(self) -> None:
        """Note that the feeder has looked; if it found something, it has filled this reader."""
        self._looks = False

    def fill(self, batch: ClaimedBatch, most: int, first_until_s: float) -> None:
        """Keep the messages that the feeder brought; ask again when the buffer is half empty.

        A full buffer has `most` messages now, or the reader's own depth if that is less. From
        `first_until_s` on (monotonic) others may have had any of these messages, in case this
        process was frozen meanwhile.
        """
        if self.closed:
            return
        self._buffer.extend(batch.taken)
        self._at_hand.bytes += sum(len(one.body) for one in batch.taken)
        self._low = min(self.depth, most) // 2
        self._first_until_s = first_until_s
        self._more = self._more or batch.more
        if batch.due_at_ms is not None:
            self._kick_at(batch.due_at_ms)
        self._ask_if_low()
        if self._told_empty and self._buffer:
            self._told_empty = False
            self._on_ready(self)

    def forget(self) -> None:
        """Throw away the messages at hand, which have gone to others."""
        self._drop()
        self.kick()

    async def close(self) -> None:
        if self.closed:
            return
        self.stop()
        await self._leave(self)

    def stop(self) -> None:
        """Give out no more messages."""
        self.closed = True
        self._drop()
        if self._timer:
            self._timer.cancel()

    def _drop(self) -> None:
        self._at_hand.bytes -= sum(len(one.body) for one in self._buffer)
        self._buffer.clear()

    def _ask_if_low(self) -> None:
        if self._more and not self.closed and len(self._buffer) <= self._low:
            self._ask(self)

    def _kick_at(self, due_at_ms: int) -> None:
        if self._timer:
            self._timer.cancel()
        wait_s = max(0, due_at_ms - now_ms()) / 1000 + 0.001
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.kick)
