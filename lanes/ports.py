"""The ports: what pushlane needs of a broker, a registry and a lease, in its own words.

Every method is a coroutine unless it says that it never blocks. Adapters translate their vendor's
errors into `lanes.errors`; `Unreachable` means that the call may be tried again. One contract
suite a port (tests/contract) runs on every adapter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from pushlane.lanes.presence import Process
from pushlane.lanes.push import Outcome, Push
from pushlane.lanes.recipient_window import Mark
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.lanes.task import Finished, Level, Moved, Progress, Span, Task, Weights


class Taken(msgspec.Struct, gc=False):
    """A message in hand: its bytes, and what its adapter needs to ack it.

    `is_first` says that nobody can have had it before. `is_part`: an older version has written it
    together with others, which `Broker.backlog` counts as one.
    """

    body: bytes
    lane: str
    handle: Any
    is_first: bool = False
    is_part: bool = False


class Source(NamedTuple):
    """Who publishes, and a number for each body: makes a repeated publish harmless.

    The broker keeps what has a higher number than all that this source has published before: so
    numbers start at 1, rise, and belong to the same body whenever it is published.
    """

    name: str
    numbers: Sequence[int]


class LaneReader(Protocol):
    """Takes messages off one lane, of which it holds as many as `Broker.read` was given."""

    lane: str

    def take(self) -> Taken | None:
        """The next message, or None when none is at hand. Never blocks.

        After a None the reader's `on_ready` is called, once, when there is something again.
        """

    def refill_wait_s(self) -> float:
        """After a None: how long more is worth waiting for, since a backlog is known to be there.

        0 when that is not known. Never blocks.
        """

    async def close(self) -> None:
        """Stop reading. What was taken or prefetched but not acked becomes available to others."""


OnReady = Callable[[LaneReader], None]


class Broker(Protocol):
    """Lanes that keep messages until they are acked, shared by any number of processes."""

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        """Make the lane, with the subscription that keeps its messages. Harmless when there.

        With `keep` it also keeps what is acked from now on, for `replay`: as long as the lane is
        there, and as far as the broker's own retention reaches.
        """

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        """Remove the lane with all on it. False when somebody still reads it (unless forced)."""

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float = 0.0,
        source: Source | None = None,
    ) -> None:
        """Return once every body is durable. With a delay, none is taken before it has passed.

        Raises UnknownLane when the lane was never opened or is dropped.
        """

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        """A reader of the lane. `on_ready` is first called when there is a first message to take.

        It is called on the event loop's own thread. Of the `depth` messages that may be at hand
        (by default as many as the settings say) half are the reader's, half those of its user.
        Raises UnknownLane when there is no such lane.
        """

    async def ack(self, taken: Sequence[Taken]) -> None:
        """These need not come again. Idempotent; may be made durable a little later."""

    async def backlog(self, lane: str) -> int:
        """Messages that are not acked: 0 exactly when nothing is left.

        A lane that is not there has nothing left.
        """

    def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        """What was published since then and is still there, acked or not, in pages, in order.

        Takes nothing, and disturbs no reader. Nothing comes of a lane that is not there.
        """

    async def retained_since_ms(self, lane: str) -> int | None:
        """From when on the lane has all that was published on it; None when it has nothing."""

    async def end_of(self, lane: str) -> tuple[int, int]:
        """Which message is the last one on the lane, for `is_past`: today, or years later."""

    async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        """Whether all that was published up to that end is acked. A lane that is gone is."""

    async def lanes(self) -> list[str]:
        """Every lane there is."""

    async def close(self) -> None:
        """Close all readers, send what acks are still held, let go of every connection."""


class Changes(NamedTuple):
    """What is new in the registry, up to `version`.

    `unread` are the ids of tasks that only a newer version of pushlane understands, `forgotten`
    those of tasks that are not there any more.
    """

    version: int
    tasks: list[Task]
    weights: Weights
    unread: Sequence[str] = ()
    forgotten: Sequence[str] = ()


Edit = Callable[[Task], Task]


class FoundTasks(NamedTuple):
    """Tasks, and the ids of those that only a newer version of pushlane understands."""

    tasks: list[Task]
    unread: Sequence[str] = ()


class Fence(NamedTuple):
    """The right of a leader to change something: its lease's name, and the number it was given."""

    lease: str
    number: int


class Registry(Protocol):
    """Which tasks there are, how the levels share, and how far each task is."""

    async def add(self, task: Task) -> Task:
        """Keep a new task. When a task of the same non-empty key exists, that one is returned."""

    async def get(self, task_id: str) -> Task:
        """Raises UnknownTask, naming the nearest id or name; UnknownFormat for a newer one's."""

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        """Of the tasks from `after` on, newest first, at most so many; of these, those that fit.

        It may be none of them, and the last page all the same not be reached. Without those that
        only a newer version understands: each is named once in the log.
        """

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        """Those of these that there are, in no order."""

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        """Tasks that ended before then (Unix ms), the longest ago first, behind the first few."""

    async def mend(self) -> None:
        """Make good what is missing in pages and among `ended`, of tasks that processes of an
        earlier version have added or ended meanwhile. Cheap when nothing is.
        """

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        """Remove a task that has ended, with its key, its name and its counts. False when there is
        none of this id.

        What is recorded of it afterwards changes nothing, and is kept for a day at most. The fence
        is as in `change`.

        Raises:
            InvalidChange: it has not ended.
        """

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        """Replace a task by `edit(task)`, atomically: `edit` may run again on a newer value.

        What `edit` raises is passed on. An edit that returns its argument changes nothing. What a
        newer version has added to the task is kept; one that only a newer version understands
        raises UnknownFormat. With a fence nothing is changed either, and Superseded raised, when
        the lease has been given out under another number: that is decided in the same atomic step
        as the change.
        """

    async def weights(self) -> Weights:
        """6:3:1 until somebody sets others."""

    async def set_weights(self, weights: Weights) -> None: ...

    async def counted_since_ms(self) -> int:
        """Since when (Unix ms) every finished seq is counted; counts from before may be lost."""

    async def changes(self, since: int, timeout_s: float) -> Changes:
        """Wait until something is newer than `since`, at most `timeout_s`.

        `since=0` answers at once with all tasks that are not finished. A change made anywhere is
        seen within a second.
        """

    async def record(self, finished: Sequence[Finished]) -> Sequence[Progress]:
        """Count these seqs, each only once however often it is recorded.

        Returns the progress of each task named, in the order of first mention. Which seqs of a task
        were counted is kept until a day after its lanes were dropped: then its counts stay as they
        are.
        """

    async def progress(self, task_ids: Sequence[str]) -> Sequence[Progress]: ...

    async def finished(self, task_id: str, seqs: Sequence[int]) -> Sequence[bool]:
        """Whether each of these seqs was recorded, in the same order. It may name one twice."""

    async def move(self, moved: Sequence[Moved]) -> None:
        """Remember that these wait on another lane than the first one of their task.

        A copy that is still on that first lane is then known as one. Harmless when repeated.
        """

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        """Which seqs of each span have ended, or moved where that is asked.

        Bit n of an answer is for the seq `first + n`.
        """

    async def close(self) -> None: ...


class Journal(Protocol):
    """The durable record of what a fast registry keeps: it is written first and rebuilds the rest.

    The last body of a key is the one that counts; earlier ones may go. An empty one removes the
    key, and may go as well.
    """

    async def append(self, key: str, body: bytes) -> None:
        """Return once the body is durable."""

    async def replay(self) -> list[tuple[str, bytes]]:
        """Every key that was not removed, with its last body, in the order of their last appends.

        That is all there is: since removals are forgotten, whoever fills an old copy from this has
        to remove every key that the copy has besides.
        """

    async def close(self) -> None: ...


class Lease(Protocol):
    """One holder at a time for each name."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> int | None:
        """A fencing number, higher than any before it; None while another holds the name.

        The holder itself gets the same number again, and its time starts anew.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let go, if it is still this holder's."""

    async def is_held(self, name: str) -> bool:
        """Whether anybody holds it now."""


class ClaimResult(StrEnum):
    """What the ledger says to who wants to deliver a push."""

    WON = "won"
    """It is the caller's: nobody has claimed it before, or whoever had has released it."""

    UNKNOWN = "unknown"
    """It is the caller's from now on; the time of an earlier claim ran out, so it may be sent."""

    HELD = "held"
    """It is another's, whose claim still runs."""

    CONFIRMED = "confirmed"
    """It was delivered."""


class Ledger(Protocol):
    """Who may deliver a push: the first to claim it, as long as the ledger remembers.

    It forgets a claim that ran out, and a confirmation, after a window of time. Calls are batches,
    atomic for each push, and harmless when repeated. No push may be named twice in one call.
    """

    async def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> Sequence[ClaimResult]:
        """One result a push, in the same order. What is won or unknown is held for `ttl_s`.

        The owner of a claim gets the same result again, and its time starts anew. Two attempts at
        one push need different owners, in one process too. A durable claim outlives a power cut,
        as far as the store does.
        """

    async def confirm(self, pushes: Sequence[Push]) -> None:
        """They are delivered, whoever has claimed them."""

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        """They are not delivered: free what is still this owner's for whoever comes next."""


class Turn(StrEnum):
    """What is said to a push that wants to go to its recipient."""

    GO = "go"
    """It is the newest, and nothing else is on its way there."""

    BUSY = "busy"
    """It is the newest, and an older one is on its way."""

    OVER = "over"
    """There is a newer one."""


class RecipientWindows(Protocol):
    """What was sent to a recipient, or waits for it: remembered by a hash, for a window of time.

    Calls are batches, atomic for each mark, and harmless when repeated. Marks of one call may have
    the same key, but not the same token too.
    """

    async def first(self, marks: Sequence[Mark]) -> Sequence[bool]:
        """Whether each is the first with its key; it stays so when it is asked again."""

    async def announce(self, marks: Sequence[Mark]) -> None:
        """There are pushes with these tokens: the highest of a key is the newest."""

    async def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> Sequence[Turn]:
        """Announce them, and let the newest of each key go, one at a time.

        The next may enter when that one has left, or after `ttl_s`. The owner of a turn gets the
        same answer again.
        """

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        """They are no longer on their way, if they were this owner's."""


class ReceiptLog(Protocol):
    """The durable log of receipts: bodies of `lanes.receipt`, in a fixed number of partitions.

    A position is a text that only the log itself understands; one is kept for each partition. It
    keeps what is appended until it was committed and its retention is over, and takes no more
    when it is full.
    """

    async def append(self, bodies: Sequence[bytes]) -> None:
        """Return once every body is durable. Raises Unreachable while the log is full.

        One that failed may have been appended all the same: a reader drops repeats by `batch_id`.
        """

    async def first(self) -> list[str]:
        """The position before the oldest body of each partition. A log that is new has them too."""

    async def since(self, at_ms: int) -> list[str]:
        """Positions from which on everything is read that was appended since (Unix ms)."""

    async def committed(self) -> list[str] | None:
        """What was committed last; None before the first time."""

    async def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        """Positions behind `start`: at the end, or `most` bodies further over all partitions.

        Raises:
            ReceiptsGone: what came next is not kept any more.
        """

    async def kept(self, positions: Sequence[str]) -> list[str]:
        """These, and for each whose next bodies are gone the oldest that its partition has.

        The oldest of all when there are not as many as partitions: the log was made anew.
        """

    def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        """The bodies between two positions, in order, page by page: the same ones every time.

        Raises:
            ReceiptsGone: some of them are not kept any more.
        """

    async def commit(self, positions: Sequence[str]) -> None:
        """What is before these was taken over by the one reader that commits."""

    async def lag(self, positions: Sequence[str]) -> int:
        """How many of the bodies that are kept come after these."""

    async def secret(self) -> bytes:
        """A random key that all who write to this log share, and nobody else has."""

    async def close(self) -> None: ...


class Document(NamedTuple):
    """What is kept under a name. Its version is another one after every put."""

    name: str
    version: int
    body: bytes


class DocumentStore(Protocol):
    """Small documents, each under a kind and a name, and always put as a whole.

    A kind is a word of small letters and dashes, a name has 1 to 200 characters, a body 1 byte to
    64 KiB: all else raises BadInput. What is put is durable, and is kept until it is removed.
    """

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        """The version that it has now; None when the one that is there is not the expected one.

        `expected` is the version that is to be replaced, None where there is to be none yet.
        Compared and put in one atomic step.
        """

    async def get(self, kind: str, name: str) -> Document | None: ...

    async def list(self, kind: str) -> list[Document]:
        """All of a kind, by name."""

    async def remove(self, kind: str, name: str) -> bool:
        """Whether there was one."""


class Presence(Protocol):
    """Which processes are there: each says so again before its time is over, or leaves."""

    async def announce(self, process: Process, ttl_s: float) -> None:
        """It is there for `ttl_s` from now on, and this is what it says of itself."""

    async def list(self) -> list[Process]:
        """Those whose time is not over, in the order of their starts."""

    async def leave(self, process_id: str) -> None:
        """It is gone. Harmless when it was not there."""


class Delivery(msgspec.Struct, gc=False):
    """A push on its way to a sink, with the level it goes out at (it may change while waiting)."""

    push: Push
    level: Level


class Sink(Protocol):
    """Where pushes are delivered.

    `batch_size` is the most that one call takes. `mixes_tasks` says whether one batch may hold
    pushes of several tasks, `hosts_code` whether it runs somebody's own code in this process, which
    a push could bring to end it.
    """

    name: str
    batch_size: int
    mixes_tasks: bool
    hosts_code: bool

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """One outcome for each push, in the same order.

        What it raises counts as a retry of the whole batch; the message is not kept, since it
        might hold what the push holds.
        """

    async def close(self) -> None: ...
