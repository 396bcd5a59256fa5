"""The registry port: which tasks there are, how the levels share, and how far each task is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from pushlane.core.ports import SeqStore
from pushlane.core.task import Progress, Task, Weights
from pushlane.lanes.death_reasons import Deaths
from pushlane.lanes.ports.lease import Fence
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.model.due import PutOff

Edit = Callable[[Task], Task]


class FoundTasks(NamedTuple):
    """What the registry answers about some tasks.

    `unread` are the ids of those that only a newer version of pushlane understands, `forgotten` of
    those that are gone for good. One that is in none of these is unknown: the store may have lost
    it and get it again, so nobody may take it for over.
    """

    tasks: list[Task]
    unread: Sequence[str] = ()
    forgotten: Sequence[str] = ()


class Changes(NamedTuple):
    """Everything that is new in the registry, up to `version`.

    `unread` are the ids of tasks that only a newer version of pushlane understands, `forgotten`
    those of tasks that are gone for good.
    """

    version: int
    tasks: list[Task]
    weights: Weights
    unread: Sequence[str] = ()
    forgotten: Sequence[str] = ()


class TaskStore(Protocol):
    """The tasks themselves: added, found, changed and forgotten."""

    async def add(self, task: Task) -> Task:
        """Keep a new task. When a task of the same non-empty key exists, that one is returned.

        Raises:
            Unstorable: it could not be read back. The same holds for `change`.
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

    async def mend(self) -> None:
        """Add what pages and `ended` lack of tasks that an earlier version has added or ended.

        Drop what is left of adds that never ended. Cheap when there is nothing to do.
        """

    async def keep_up(self) -> None:
        """Take in what was written past this store: by a writer that died, or to another copy.

        The leader calls it again and again; each call does a bounded part, at most every 2 s.

        Raises:
            Unreachable: the store, or what it is a copy of, does not answer.
        """

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        """Remove a task that has ended, with its key, its name and its counts.

        False when there is none of this id. Outcomes recorded of it afterwards change nothing, and
        are kept for a day at most. The fence is as in `change`.

        Raises:
            InvalidChange: it has not ended.
        """

    async def discard(self, task_id: str) -> bool:
        """Remove a task that cannot be read, as `forget` does. False when there is none of this id.

        Raises:
            InvalidChange: it can be read.
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

        A repeated call counts them twice: what is noted is for people, and about right.
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
