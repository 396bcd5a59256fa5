"""The ports beside a push's way: what processes share of claims, limits, recipients, presence.

What holds for all ports is said in `core.ports`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from pushlane.core.ports import LaneBroker, SeqStore
from pushlane.core.push import Push
from pushlane.core.task import Level, Progress, State, Task, Weights
from pushlane.model.due import PutOff
from pushlane.model.presence import Process
from pushlane.model.recipients import (
    AddressDeath,
    CapDay,
    DeadAddressPage,
    DeadAddressQuery,
    Mark,
    SuppressionScope,
)
from pushlane.model.stop_rule import Deaths


class Fence(NamedTuple):
    """The right of a leader to change something: its lease's name, and the number it was given."""

    lease: str
    number: int


class Grant(NamedTuple):
    """A lease that is held: its fencing number, and when it was given.

    That is the store's Unix time in ms, by the clock that counts the lease's time to live.
    """

    number: int
    at_ms: int


class Lease(Protocol):
    """One holder at a time for each name."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        """Take the name; None while another holds it. Its number is higher than any before it.

        The holder itself gets the same number again, and its time starts anew.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let go of the name, if this holder still has it."""

    async def is_held(self, name: str) -> bool:
        """Return whether anybody holds the name now."""


PAGE = 200  # read and decoded in two or three ms


class TaskQuery(NamedTuple):
    """The tasks that are wanted: those that fit each part that is given.

    `word` is a part of the id, the key or the name, in any case.
    """

    states: Sequence[State] = ()
    word: str = ""
    app: str = ""
    level: Level | None = None

    @property
    def is_of_active(self) -> bool:
        """True when only tasks that are not finished can fit."""
        return bool(self.states) and not any(state.is_terminal for state in self.states)

    def fits(self, task: Task) -> bool:
        word = self.word.lower()
        return (
            (not self.states or task.state in self.states)
            and (not self.app or task.app == self.app)
            and (self.level is None or task.level is self.level)
            and (not word or any(word in one.lower() for one in (task.id, task.key, task.name)))
        )


ALL = TaskQuery()


class TaskPage(NamedTuple):
    """Some of the tasks that fit. `after` is where the next page begins, empty on the last one."""

    tasks: list[Task]
    after: str = ""


async def pages(registry: TaskStore, query: TaskQuery = ALL) -> AsyncIterator[list[Task]]:
    """Yield the tasks that fit, newest first, with a turn for others after each page."""
    after, is_last = "", False
    while not is_last:
        tasks, after = await registry.page(query, after)
        is_last = not after
        if tasks:
            yield tasks


async def listed(registry: TaskStore, states: Sequence[State] = ()) -> list[Task]:
    """Return all tasks in these states (in any when none is named), oldest first."""
    found = [task async for page in pages(registry, TaskQuery(states)) for task in page]
    found.reverse()
    return found


Edit = Callable[[Task], Task]


class FoundTasks(NamedTuple):
    """What the registry answers about some tasks.

    `unread` are the ids of those that only a newer version of pushlane understands, `forgotten` of
    those that are gone for good. One in none of these is unknown: the store may have lost it and
    get it again, so nobody may take it for over.
    """

    tasks: list[Task]
    unread: Sequence[str] = ()
    forgotten: Sequence[str] = ()


class Changes(NamedTuple):
    """Everything that is new in the registry, up to `version`; the rest is as in `FoundTasks`."""

    version: int
    tasks: list[Task]
    weights: Weights
    unread: Sequence[str] = ()
    forgotten: Sequence[str] = ()


class Delayed(NamedTuple):
    """How many messages of a lane wait for their delay, and when the first and the last may go.

    Times are Unix ms, 0 when none waits.
    """

    messages: int
    first_ms: int = 0
    last_ms: int = 0


class LaneHistory(Protocol):
    """The past of a lane: which messages it still has, and how far they are acked."""

    def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        """Yield what was published since then and is still kept, acked or not: in order, in pages.

        It takes nothing and disturbs no reader. A lane that is not there yields nothing.
        """

    async def retained_since_ms(self, lane: str) -> int | None:
        """Return since when the lane has everything published on it; None when it is empty."""

    async def end_of(self, lane: str) -> tuple[int, int]:
        """Return the position of the lane's last message. `is_past` accepts it even years later."""

    async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        """Return whether everything up to that end is acked; True when the lane is gone."""


class Broker(LaneBroker, LaneHistory, Protocol):
    """Lanes that keep messages until they are acked, shared by any number of processes."""

    @property
    def in_doubt(self) -> bool:
        """True for a while after others may have been given what this process has at hand."""

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        """Remove the lane with all on it. False when somebody still reads it (unless forced)."""

    async def lanes(self) -> list[str]:
        """Return the names of all lanes."""

    async def backlog(self, lane: str) -> int:
        """Return how many messages are not acked: 0 exactly when nothing, or no lane, is left."""

    async def delayed(self, lane: str) -> Delayed | None:
        """Return which messages of a lane wait for their delay, of one that is not there none.

        None where the broker cannot tell.
        """

    async def ping(self) -> None:
        """Return once the broker has answered this process. Raises Unreachable if it does not."""

    async def close(self) -> None:
        """Close all readers, send the acks that are still held, and close every connection."""


class TaskStore(Protocol):
    """The tasks themselves: added, found, changed and forgotten."""

    async def add(self, task: Task) -> Task:
        """Keep a new task. When a task of the same non-empty key exists, that one is returned.

        Raises Unstorable, as `change` does, for one that could not be read back.
        """

    async def get(self, task_id: str) -> Task:
        """Return the task with this id, key or name.

        Raises:
            UnknownTask: there is none; names the nearest id or name.
            UnknownFormat: only a newer version understands it, or it is damaged.
        """

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        """Look at no more than `most` tasks from `after` on, newest first; return those that fit.

        A page may be empty without being the last one. Tasks that only a newer version understands
        are left out, and each is named once in the log.
        """

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        """Return what is known of the tasks with these ids at a look, in no order.

        Only a task that was forgotten within a day is sure to be among `forgotten`.
        """

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        """Do as `some`; take the time to find out whether what it does not know was forgotten.

        What stays unknown may be under way. An answer may be a minute old.
        """

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        """Return `most` tasks that ended before then (Unix ms), the longest ago first.

        The first `skip` of them are left out.
        """

    async def tidy(self) -> None:
        """Drop old news, and what is left of adds that never ended. Cheap when there is none."""

    async def keep_up(self) -> None:
        """Take in what was written past this store: by a writer that died, or to another copy.

        The leader calls it again and again; each call does a bounded part, at most every 2 s.
        Raises Unreachable when the store, or what it is a copy of, does not answer.
        """

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        """Remove a task that has ended, with its key, its name and its counts.

        False when there is none of this id. Outcomes recorded of it afterwards change nothing, and
        are kept for a day at most. The fence is as in `change`. Raises InvalidChange for a task
        that has not ended.
        """

    async def discard(self, task_id: str) -> bool:
        """Remove a task that cannot be read, as `forget` does. False when there is none of this id.

        Raises InvalidChange when it can be read.
        """

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        """Replace a task by `edit(task)`, atomically: `edit` may run again on a newer value.

        An error that `edit` raises is passed on. An edit that returns its argument changes nothing.
        Fields that a newer version has added to the task are kept. The fence is checked in the same
        atomic step as the change.

        Raises:
            UnknownFormat: only a newer version understands the task.
            Superseded: the fence's lease has been given out under another number.
        """


class ProgressStore(SeqStore, Protocol):
    """The counts of each task: which of its seqs have ended, and which have moved."""

    async def counted_since_ms(self) -> int:
        """Return since when (Unix ms) no count was lost. Counts from before may be missing."""

    async def progress(self, task_ids: Sequence[str]) -> Sequence[Progress]:
        """Return the progress of each of these tasks, in the same order."""

    async def deaths(self, task_ids: Sequence[str]) -> Sequence[Deaths]:
        """Return of what the dead pushes of each of these tasks died, in the same order.

        A seq counts for the reason that it was first recorded with.
        """

    async def finished(self, task_id: str, seqs: Sequence[int]) -> Sequence[bool]:
        """Return for each of these seqs whether it was recorded. A seq may be named twice."""

    async def put_off(self, put_offs: Sequence[PutOff]) -> None:
        """Note pushes that wait for their time from now on; those noted before are added to.

        A repeated call counts them twice: this is for people, and about right.
        """

    async def put_offs(self, task_ids: Sequence[str]) -> Sequence[Sequence[PutOff]]:
        """Return what is noted of each of these tasks, in the same order; some may have passed."""


class Registry(TaskStore, ProgressStore, Protocol):
    """The tasks and their progress, with the weights of the levels and a feed of all changes."""

    async def weights(self) -> Weights:
        """Return the weights of the levels: 6:3:1 until somebody sets others."""

    async def set_weights(self, weights: Weights) -> None:
        """Set the weights of the levels for every process."""

    async def changes(self, since: int, timeout_s: float) -> Changes:
        """Wait until something is newer than `since`, at most `timeout_s`.

        `since=0` answers at once with all tasks that are not finished. A change made anywhere is
        seen within a second.
        """

    async def close(self) -> None:
        """Close what the registry alone has opened."""


class ReceiptWriter(Protocol):
    """The side of the log that dispatchers write to."""

    async def append(self, bodies: Sequence[bytes]) -> None:
        """Return once every body is durable. Raises Unreachable while the log is full.

        A call that failed may have appended all the same: a reader drops repeats by `batch_id`.
        """

    async def secret(self) -> bytes:
        """Return a random key that all writers of this log share, and nobody else has."""


class ReceiptReader(Protocol):
    """The side of the log that the pipeline reads.

    A position is a text that only the log itself understands; one is kept for each partition.
    """

    async def first(self) -> list[str]:
        """Return the position before the oldest body of each partition, of a new log too."""

    async def since(self, at_ms: int) -> list[str]:
        """Return positions from which everything appended since then (Unix ms) is read."""

    async def committed(self) -> list[str] | None:
        """Return the positions that were committed last; None before the first commit."""

    async def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        """Return positions behind `start`: at the end, or `most` bodies further in all.

        Raises ReceiptsGone when what came next is not kept any more, as `read` does.
        """

    async def kept(self, positions: Sequence[str]) -> list[str]:
        """Return these positions, moved on to the oldest body kept where the next ones are gone.

        When there are not as many as partitions, the log was made anew, and these are the
        positions of its oldest bodies.
        """

    def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        """Yield the bodies between two positions, in order, in pages: the same ones every time.

        Raises ReceiptsGone when some of them are not kept any more.
        """

    async def commit(self, positions: Sequence[str]) -> None:
        """Record that the one committing reader has taken over everything before these."""

    async def lag(self, positions: Sequence[str]) -> int:
        """Return how many of the bodies that are kept come after these positions."""


class ReceiptLog(ReceiptWriter, ReceiptReader, Protocol):
    """The durable log of receipts: bodies of `model.receipt`, in a fixed number of partitions.

    It keeps what is appended until it was committed and its retention is over, and takes no more
    when it is full.
    """

    async def close(self) -> None:
        """Close the files or connections of the log."""


def split_evenly(available: Sequence[int], most: int) -> list[int]:
    """Return how much to take of each partition, `most` in all, as evenly as possible.

    A partition that has little leaves its room to the others.
    """
    shares = [0] * len(available)
    left = most
    by_size = sorted(range(len(available)), key=lambda index: available[index])
    for position, index in enumerate(by_size):
        fair = -(-left // (len(by_size) - position))
        shares[index] = min(available[index], fair)
        left -= shares[index]
    return shares


class ClaimResult(StrEnum):
    """The ledger's answer to a claim on a push."""

    WON = "won"
    """The push is the caller's: nobody claimed it before, or the earlier claim was released."""
    UNKNOWN = "unknown"
    """The push is the caller's, but an earlier claim ran out, so it may have been sent already."""
    HELD = "held"
    """The push is another's, whose claim still runs."""
    CONFIRMED = "confirmed"
    """The push was delivered."""


class Ledger(Protocol):
    """Decides who may deliver a push: the first to claim it, as long as the ledger remembers.

    A claim that ran out, and a confirmation, is forgotten after a window of time. Calls are
    batches, atomic for each push, and harmless when repeated. No call names a push twice.
    """

    async def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> Sequence[ClaimResult]:
        """Return one result a push, in the same order. What is won or unknown is held for `ttl_s`.

        The owner of a claim gets the same result again, and its time starts anew. Two attempts at
        one push need different owners, in one process too. A durable claim outlives a power cut,
        as far as the store does.
        """

    async def confirm(self, pushes: Sequence[Push]) -> None:
        """Record that these pushes are delivered, whoever has claimed them."""

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        """Free the pushes that this owner still claims, since it did not deliver them."""


class TokenAsk(NamedTuple):
    """A wish for tokens of a subject's rate: up to `wanted`, but no fewer than `least`.

    `burst` is how many tokens gather at most while nobody asks. More than that may be asked for:
    then the subject goes into debt, and gets nothing more until that is paid off.
    """

    subject: str
    rate_per_s: float
    burst: float
    wanted: float
    least: float


class TokenGrant(NamedTuple):
    """How many tokens were granted; when none were, `wait_s` is when `least` may be there."""

    tokens: float
    wait_s: float


class TokenReturn(NamedTuple):
    """Tokens of a subject that were not used; no more than `burst` are kept."""

    subject: str
    burst: float
    tokens: float


class PlaceAsk(NamedTuple):
    """A wish for places under a subject's in-flight cap, `wanted` in all.

    `in_use` is how many pushes of this holder are in flight now: so many are counted as its own in
    any case, since they cannot be called back.
    """

    subject: str
    cap: int
    wanted: int
    in_use: int


class Tally(NamedTuple):
    """What a hard total counts: `what` is the name of the limit's field.

    `day` is the day in UTC of a daily total, like 2026-11-23, and empty for others.
    """

    subject: str
    what: str
    day: str = ""


class TotalAsk(NamedTuple):
    """A wish to have been allotted `wanted` of a tally in all, of which `used` is spent already.

    `holder` is one life of one process's share: numbers of a holder only count its own.
    """

    tally: Tally
    limit: float
    holder: str
    used: float
    wanted: float


class Usage(NamedTuple):
    """What the store knows of a subject: the places held, and what is spent, or leased for that."""

    in_flight: int
    spent: dict[str, float]


class Limiter(Protocol):
    """Leases what limits allow: all processes together never get more than that.

    Calls are batches, one answer an ask in the same order, and each ask is atomic. No subject or
    tally of one holder may be asked for twice in a call. A limit comes with each ask, so that a
    change of it counts from the next one on.
    """

    async def lease_tokens(self, asks: Sequence[TokenAsk]) -> Sequence[TokenGrant]:
        """Take tokens of rates. In any time no more is granted than the rate and one burst.

        The burst is that of one push when it costs more.
        """

    async def return_tokens(self, returns: Sequence[TokenReturn]) -> None:
        """Give back tokens that were granted and not used. Repeated, it may give back too many."""

    async def hold_places(
        self, asks: Sequence[PlaceAsk], holder: str, ttl_s: float
    ) -> Sequence[int]:
        """Return how many places the holder may fill from now on, for `ttl_s`.

        These may be fewer than it had, or even uses: then it fills none until enough have landed,
        so that holders who all want more than there is come to have about the same. One that has
        none comes before who has any. Fewer than it has may be wanted, which gives the others back.
        Harmless when repeated.
        """

    async def lease_totals(self, asks: Sequence[TotalAsk]) -> Sequence[float]:
        """Return how much the holder is allotted in all from now on; harmless when repeated.

        All holders' parts are never more than the limit, unless it is lowered. Less than it has may
        be wanted, but never less than it used. What a holder was allotted and never gave back
        counts as spent.
        """

    async def usage(self, subjects: Sequence[str], day: str) -> Sequence[Usage]:
        """Return what is held and spent of each subject, of daily totals that of this day."""

    async def forget(self, subjects: Sequence[str]) -> None:
        """Forget all that is held and spent of these subjects: totals begin at nothing again."""


class RecipientTurn(StrEnum):
    """The answer to a push that wants to go to its recipient."""

    GO = "go"
    """The push is the newest, and nothing else is on its way there."""
    BUSY = "busy"
    """The push is the newest, and an older one is on its way."""
    OVER = "over"
    """There is a newer push."""


class RecipientWindows(Protocol):
    """Remembers by a hash, for a window of time, what was sent to a recipient or waits for it.

    Calls are batches, atomic for each mark, and harmless when repeated. Marks of one call may have
    the same key, but not the same token too.
    """

    async def first(self, marks: Sequence[Mark]) -> Sequence[bool]:
        """Return for each mark whether it is the first with its key; asked again, it still is."""

    async def announce(self, marks: Sequence[Mark]) -> None:
        """Record that pushes with these tokens exist: the highest of a key is the newest."""

    async def enter(
        self, marks: Sequence[Mark], owner: str, ttl_s: float
    ) -> Sequence[RecipientTurn]:
        """Announce the marks, and let the newest of each key go, one at a time.

        The next may enter when that one has left, or after `ttl_s`. The owner of a turn gets the
        same answer again.
        """

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        """Record that these are no longer on their way, as far as they were this owner's."""

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> Collection[str]:
        """Count pushes to recipients on a day, each once; return those for which there is no room.

        `keys` has for each push its token, without spaces and colons, and the key of its recipient.
        A push has room when fewer than the cap allows were counted with its key on that day, of its
        level and in all. One that was counted has room whenever it is asked for again. What was
        counted is forgotten when the day is over everywhere.
        """

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        """Give back the room of pushes that were counted."""


class Suppressions(Protocol):
    """Keeps keyed hashes by scope (see `model.recipients`) until they are removed.

    There may be millions. Calls are batches, durable and harmless when repeated.
    """

    async def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        """Suppress these in the scope; return how many were not suppressed there before."""

    async def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        """Suppress these no longer in the scope; return how many were."""

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove all of a scope."""

    async def counts(self) -> dict[SuppressionScope, int]:
        """Return how many are suppressed in each scope that has any. Cheap: asked every second."""

    async def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> Mapping[SuppressionScope, Collection[int]]:
        """Return by scope those of the hashes that are suppressed there."""


class DeadAddresses(Protocol):
    """Keeps a record of each dead address until it is registered again or its time is over.

    There may be millions. Calls are batches, durable and harmless when repeated. What suppresses
    and what records, or undoes both, is one step: nothing is ever only half dead. A time of 0 is
    none.
    """

    async def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        """Suppress these addresses at the sink, and record those that have no record yet.

        One that was registered since it died is left alone. Each hash is named once. Returns the
        hashes that were recorded, now, at `at_ms`.
        """

    async def register(self, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        """Let these live: they are not suppressed at the sink any more, and have no record.

        `at_ms` is remembered, so that the news of an earlier death, when it comes late, changes
        nothing. Returns how many were suppressed.
        """

    async def page(self, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        """Return some of the records that fit, by when they were made."""

    async def forget(self, before_ms: int, most: int) -> int:
        """Forget records and registrations of before then, at most so many of each, oldest first.

        What is suppressed stays so. Returns how many were forgotten.
        """


class Presence(Protocol):
    """Lists live processes: each announces itself again before its time is over, or leaves."""

    async def announce(self, process: Process, ttl_s: float) -> None:
        """Show this process, with all that it tells of itself, for `ttl_s` from now on."""

    async def list(self) -> list[Process]:
        """Return the processes whose time is not over, in the order of their starts."""

    async def newer(self) -> Sequence[str]:
        """Name the live processes of a newer version than ours, or that this one cannot read."""

    async def leave(self, process_id: str) -> None:
        """Show this process no more. Harmless when it was not there."""


class JournalPage(NamedTuple):
    """Some records of a journal, the oldest append first. A key may come again, in later pages too.

    `is_first` says that the reading begins here. Pages before it are to be forgotten. `position` is
    the place behind its last record, in the journal's own form; empty is before all.
    """

    records: Sequence[tuple[str, bytes]]
    is_first: bool = False
    position: bytes = b""


class Journal(Protocol):
    """The durable record of a fast registry: written first, and read to rebuild the registry.

    The last body of a key is the one that counts; earlier ones may go. An empty body removes the
    key, and may go as well.
    """

    async def append(self, key: str, body: bytes) -> None:
        """Return once the body is durable."""

    def pages(self) -> AsyncGenerator[JournalPage, None]:
        """Read it from the beginning to the end, at least one page, without holding it all.

        Removals may be missing. So whoever fills an old copy from this has to remove every key that
        the copy has besides.
        """

    def follow(self, after: bytes) -> AsyncGenerator[JournalPage, None]:
        """Read on behind a position, for ever: an empty page says that there is no more for now.

        Where records behind the position have gone, it begins with the next that is there.
        """

    async def close(self) -> None:
        """Close the connection; everything appended stays."""
