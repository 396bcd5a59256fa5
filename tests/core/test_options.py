"""Which gates and guards are asked of a push: for most none, until something changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pushlane.core.admission import Options
from pushlane.core.lane import Job
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level, Task

TASK = Task(id="t", level=Level.HIGH, lane="task-t")


class Watch:
    """A guard of the apps that it is told, and of pushes with strikes or a collapse key."""

    def __init__(self) -> None:
        self.apps: set[str] = set()
        self.asked = 0
        self.changed: Any = None

    def concerns(self, task: Task) -> bool:
        self.asked += 1
        return task.app in self.apps

    def concerns_push(self, push: Push) -> bool:
        return bool(push.strikes or push.collapse)

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        return list(jobs)

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Nothing to learn."""

    async def run(self) -> None:
        """Nobody asks."""


def test_a_task_that_none_concerns_is_asked_about_once() -> None:
    watch = Watch()
    options = Options([], [watch])
    found = {options.of(TASK, Push("t", seq, "")) for seq in range(1, 100)}
    assert (found, watch.asked) == ({((), ())}, 1)


def test_a_guard_is_back_with_the_next_push_once_it_concerns_the_app() -> None:
    watch = Watch()
    options = Options([], [watch])
    assert options.of(TASK, Push("t", 1, "")) == ((), ())

    watch.apps.add(TASK.app)
    watch.changed()
    assert options.of(TASK, Push("t", 2, "")) == ((), (watch,))

    watch.apps.clear()
    watch.changed()
    assert options.of(TASK, Push("t", 3, "")) == ((), ())


@pytest.mark.parametrize("own", [{"strikes": 1}, {"collapse": "order-1"}])
def test_a_guard_of_what_a_push_says_itself_is_asked_for_that_push_alone(own: Any) -> None:
    watch = Watch()
    options = Options([], [watch])
    assert options.of(TASK, Push("t", 1, "")) == ((), ())
    assert options.of(TASK, Push("t", 2, "", **own)) == ((), (watch,))
    assert options.of(TASK, Push("t", 3, "")) == ((), ())


def test_a_task_that_has_changed_is_asked_about_again() -> None:
    watch = Watch()
    watch.apps.add("shop")
    options = Options([], [watch])
    assert options.of(TASK, Push("t", 1, "")) == ((), ())
    moved = Task(id="t", level=Level.HIGH, lane="task-t", app="shop")
    assert options.of(moved, Push("t", 2, "")) == ((), (watch,))
