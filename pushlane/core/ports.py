"""The ports on a push's way: what it needs of a broker, a registry, a sink and who counts.

Every method is a coroutine unless it says that it never blocks. Adapters translate their vendor's
errors into `core.errors`; `Unreachable` means that the call may be tried again. One contract suite
a port (tests/contract) runs on every adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from pushlane.core.push import Kind, Outcome, Push
from pushlane.core.task import Finished, Level, Moved, Progress, Span


class Taken(msgspec.Struct, gc=False):
    """A message in hand: its bytes, and the handle by which its adapter acks it.

    `is_first` is set when nobody can have had the message before. `is_part` is set when it
    came in a batch, as only versions before 0.2.0 published: such a message is not read.
    """

    body: bytes
    lane: str
    handle: Any
    is_first: bool = False
    is_part: bool = False


class Source(NamedTuple):
    """The name of a publisher and a number for each body: makes a repeated publish harmless.

    The broker drops a body whose number is not above all that this source has published before.
    So numbers start at 1, rise, and belong to the same body whenever it is published. A body that
    does not follow `after`, if that is given, is another publisher's: TaskConflict.
    """

    name: str
    numbers: Sequence[int]
    after: int | None = None


class LaneReader(Protocol):
    """Takes messages off one lane. It holds at most the depth that `Broker.read` was given."""

    lane: str

    def take(self) -> Taken | None:
        """Return the next message, or None when none is at hand. Never blocks.

        After a None the reader's `on_ready` is called, once, when there is something again.
        """

    def refill_wait_s(self) -> float:
        """Return how long to wait for more after a None, when a backlog is known to be there.

        0 when no backlog is known. Never blocks.
        """

    async def close(self) -> None:
        """Stop reading. Messages that were not acked become available to other readers."""


OnReady = Callable[[LaneReader], None]


class LaneBroker(Protocol):
    """Lanes on a push's way: they keep messages until they are acked."""

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        """Make the lane, with the subscription that keeps its messages. Harmless when there.

        With `keep`, messages acked from now on are kept for `replay` too: as long as the lane is
        there, and as far as the broker's own retention reaches.
        """

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        """Return once every body is durable. With a delay, none is taken before it has passed.

        `delay_s` is of all bodies, or one of each. Raises UnknownLane when the lane was never
        opened or is dropped.
        """

    async def close_source(self, lane: str, name: str) -> None:
        """Let go of what is kept open for a source that publishes no more on the lane."""

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        """Open a reader of the lane. `on_ready` is first called when a first message can be taken.

        It is called on the event loop's own thread. Of the `depth` messages that may be at hand
        (by default as many as the settings say) half are the reader's, half those of its user.
        Raises UnknownLane when there is no such lane.
        """

    async def ack(self, taken: Sequence[Taken]) -> None:
        """Mark messages as done, so that they do not come again.

        Idempotent; it may become durable a little later.
        """


class SeqStore(Protocol):
    """The counts of each task: which of its seqs have ended, and which have moved."""

    async def record(self, finished: Sequence[Finished]) -> Sequence[Progress]:
        """Count these seqs, each only once however often it is recorded.

        Returns the progress of each task named, in the order of first mention. The counted seqs of
        a task are remembered until a day after its lanes were dropped; from then on its counts do
        not change.
        """

    async def move(self, moved: Sequence[Moved]) -> None:
        """Remember that these seqs wait on another lane than the first one of their task.

        A copy that is still on that first lane is then known as one. Harmless when repeated.
        """

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        """Return as a bit mask, for each span, which of its seqs have ended.

        Bit n stands for the seq `first + n`. Where the span asks for it, moved seqs count as well.
        """


class Delivery(msgspec.Struct, gc=False):
    """A push on its way to a sink; `traceparent` (W3C), if any, is where its trace goes on there.

    `level` is the one it goes out at; `address` and `payload` (None: none) are those at this sink.
    """

    push: Push
    level: Level
    address: str = ""
    payload: Any = None
    traceparent: str = ""


class Sink(Protocol):
    """Delivers pushes to one place.

    `batch_size` is the most that one call takes. `mixes_tasks` says whether one batch may hold
    pushes of several tasks, `hosts_code` whether it runs somebody's own code in this process, which
    a push could bring to end it.
    """

    name: str
    batch_size: int
    mixes_tasks: bool
    hosts_code: bool

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return one outcome for each push, in the same order.

        An exception counts as a retry of the whole batch; its message is not kept, since it might
        hold what the push holds.
        """

    async def close(self) -> None:
        """Release the connections of the sink."""


class PostingSink(Sink, Protocol):
    """A sink of single pushes that can be told to call back instead of being awaited.

    `can_post` says whether it can now; a sink without it cannot. It never hosts code.
    """

    can_post: bool

    def post(
        self, delivery: Delivery, answered: Callable[[Any, Outcome], None], token: Any
    ) -> bool:
        """Send a push if that can be done at once, and tell whether it was. Never blocks.

        After True `answered(token, outcome)` is called, once, and not before this has returned.
        After False nothing of the push went out and nothing is called: `deliver` is for it then.
        """


class Counts(Protocol):
    """Counts what happens on the way of pushes to one sink. None of it blocks."""

    unknown_format: int
    malformed: int
    forwarded: int
    repeats: int

    def read(self, took_s: float) -> None:
        """Count the reading of the pushes of one message."""

    def asked(self, took_s: float) -> None:
        """Hear how long the registry took to say which pushes are over."""

    def sent(self, level: Level, app: str) -> None:
        """Count a push that goes to the sink."""

    def answered(self, took_s: float) -> None:
        """Count one call of the sink."""

    def freed(self, outcomes: Sequence[Any], held_s: float) -> None:
        """Count slots that are free again, by their answers, each of which took so long."""

    def count_waits(self, jobs: Sequence[Any], at_ms: int) -> None:
        """Count for how long pushes had waited that were tried for the first time."""

    def delivered(self, jobs: Sequence[Any]) -> None:
        """Count pushes that are delivered."""

    def ended(self, level: Level, kind: Kind) -> None:
        """Count a push that has ended."""

    def unreadable(self, level: Level) -> None:
        """Count a push that died as it cannot be read."""

    def retried(self, level: Level, outcome: Outcome) -> None:
        """Count a push that is tried again, here or at another sink."""

    def why(self, outcome: Outcome) -> str:
        """Count a push that ended so; return the class of the reason, which names nobody."""
