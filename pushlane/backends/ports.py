"""The ports beside a push's way: lanes and tasks whole, receipts, leases, presence, the journal.

What holds for all ports is said in `core.ports`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.ports import LaneBroker, SeqStore, Source
from pushlane.core.task import Level, Progress, State, Task, Weights
from pushlane.model.due import PutOff
from pushlane.model.presence import Process
from pushlane.model.reasons import Reasons

T = TypeVar("T", int, float)


def of_each(value: T | Sequence[T], count: int) -> Sequence[T]:
    """Return the value of each of so many bodies, where one may be given for all."""
    return value if isinstance(value, Sequence) else [value] * count


def refuse_second(source: Source, last: int) -> None:
    """Raise TaskConflict if another has published as this source since its number `after`.

    `last` is the number of its last body. One of these bodies may be that: then this is a repeat.
    """
    if source.after is not None and last != source.after and last not in source.numbers:
        raise TaskConflict(f"{source.name} is published by another process, up to {last}")


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


_MOST_DIGITS = 19
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
    """Some of the tasks that fit. `after` is where the next page begins, empty on the last one.

    `places` has for each task where a page begins with what comes behind it, whatever has become of
    the task by then. `unread` are the ids of those in between that cannot be read, whether they fit
    the question or not.
    """

    tasks: list[Task]
    after: str = ""
    places: Sequence[str] = ()
    unread: Sequence[str] = ()


async def whole_pages(
    registry: TaskStore, query: TaskQuery = ALL, after: str = ""
) -> AsyncIterator[TaskPage]:
    """Yield the pages from a place on, newest first, with a turn for others after each page."""
    is_last = False
    while not is_last:
        page = await registry.page(query, after)
        after = page.after
        is_last = not after
        if page.tasks or page.unread:
            yield page


async def pages(registry: TaskStore, query: TaskQuery = ALL) -> AsyncIterator[list[Task]]:
    """Yield the tasks of all pages."""
    async for page in whole_pages(registry, query):
        if page.tasks:
            yield page.tasks


def number_of(place: str) -> int:
    """Return the number that a place of a list is, in a store that numbers what it lists.

    Raises BadInput for what is none.
    """
    if not (place.isascii() and place.isdecimal() and len(place) < _MOST_DIGITS):
        raise BadInput("there is no such place in the list; begin with its first page again")
    return int(place)


async def listed(registry: TaskStore, states: Sequence[State] = ()) -> list[Task]:
    """Return all tasks in these states (in any when none is named), oldest first."""
    found = [task async for page in pages(registry, TaskQuery(states)) for task in page]
    found.reverse()
    return found


Edit = Callable[[Task], Task]


class FoundTasks(NamedTuple):
    """The registry's answer to a question about some task ids.

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
    """The messages of a lane that wait for their delay: their number, and when they are due.

    `first_ms` and `last_ms` are Unix ms, 0 when none waits.
    """

    messages: int
    first_ms: int = 0
    last_ms: int = 0


class Placed(NamedTuple):
    """A message of a lane, and its place there: a text that only the broker understands."""

    place: str
    body: bytes


class LaneHistory(Protocol):
    """The past of a lane: which messages it still has, and how far they are acked."""

    async def unacked(self, lane: str, after: str, most: int) -> list[Placed]:
        """Return the first messages behind a place that are not acked; empty is before all.

        They are in an order in which each keeps its place as long as it is there, whoever has taken
        it. It takes nothing and disturbs no reader. A lane that is not there has none. Raises
        BadInput for what is no place.
        """

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

    @property
    def held_since_s(self) -> float:
        """Since when nobody else was given what this process took, on a monotonic clock.

        What it took since then, and has not acked, is its own at this moment; infinite when that is
        not sure of anything.
        """

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

    async def hasten(self, lane: str, later_than_ms: int) -> int:
        """Let what a lane has that is due after then (Unix ms) be taken now; return how many.

        Nothing is taken twice for it, unless this process dies on the way. A message of which the
        broker cannot tell when it is due keeps its time. Harmless when repeated, and for a lane
        that is not there. Give a time that does not come before it returns: a minute away.
        """

    async def last_of(self, lane: str, source: str) -> int:
        """Return the highest number that a source has published on a lane.

        0 where it has published nothing there, and once the broker has forgotten it. Raises
        TaskConflict while another process publishes by this name, and UnknownLane.
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
        are left out, and each is named once in the log. Raises BadInput for no such place.
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

    async def reasons(self, task_ids: Sequence[str]) -> Sequence[Reasons]:
        """Return why pushes of each of these tasks were not delivered, in the same order.

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

    async def clear_put_offs(self, task_id: str) -> None:
        """Forget what is noted of a task, of which what waits is about to be asked anew."""


class Registry(TaskStore, ProgressStore, Protocol):
    """The tasks and their progress, with the weights of the levels and a feed of all changes."""

    async def weights(self) -> Weights:
        """Return the weights of the levels: 6:3:1 until somebody sets others."""

    async def set_weights(self, weights: Weights, over: Weights | None = None) -> bool:
        """Set the weights of the levels for every process, in one atomic step.

        Where `over` is given, only if those are the weights now: else it returns False.
        """

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
