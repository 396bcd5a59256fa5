"""Finds tasks: a query, and the matching tasks page after page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pushlane.core.task import Level, State, Task

if TYPE_CHECKING:
    from pushlane.lanes.ports import TaskStore

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
