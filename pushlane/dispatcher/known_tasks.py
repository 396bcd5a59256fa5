"""The tasks as this process knows them, at most a second behind the registry.

Everybody who hears of a newer value of a task hands it in here, and everybody who has to act on it
listens here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from pushlane.backends.backend import Backend
from pushlane.core.task import Level, State, Task
from pushlane.lanes.ports import FoundTasks

_ENDED_KEPT = 10_000


class TaskListener(Protocol):
    """A part of the dispatcher that acts on changes of tasks."""

    def on_task(self, task: Task) -> None:
        """Hear that a task is new or changed."""

    def on_unread(self, task_id: str) -> None:
        """Hear that only a newer version understands the task."""


class KnownTasks:
    """Remembers tasks that go on, and the last that ended; older values change nothing.

    Listeners hear of a change in the order in which they were added. `synced` is set once the
    registry has told of all tasks.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._listeners: list[TaskListener] = []
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self.active: dict[str, Task] = {}
        self.synced = asyncio.Event()

    def add_listener(self, listener: TaskListener) -> None:
        """Tell the listener of every change from now on."""
        self._listeners.append(listener)

    def find(self, task_id: str) -> Task | None:
        """Return the task, if this process has heard of it."""
        return self.active.get(task_id) or self._ended.get(task_id)

    def apply(self, task: Task) -> None:
        """Take a newer value of a task into account; an older one changes nothing."""
        known = self.find(task.id)
        if known is None or known.version <= task.version:
            self._set(task)

    def forget(self, task_id: str) -> None:
        """Take into account that the task is gone for good."""
        self._set(_forgotten(task_id))

    def leave(self, task_id: str) -> None:
        """Leave a task to the newer version that understands it."""
        self.active.pop(task_id, None)
        self._ended.pop(task_id, None)
        for listener in self._listeners:
            listener.on_unread(task_id)

    def take(self, found: FoundTasks) -> None:
        """Take an answer of the registry into account."""
        for task in found.tasks:
            self.apply(task)
        for task_id in found.forgotten:
            self.forget(task_id)

    async def has_ended(self, task_id: str) -> bool:
        """Ask the registry whether the task has ended, and take the answer into account.

        Raises:
            TaskInDoubt: nobody can tell now.
            UnknownFormat: only a newer version understands the task.
        """
        task = await self._backend.find(task_id)
        if task is None:
            self.forget(task_id)
            return True
        self.apply(task)
        return task.state.is_terminal

    def _set(self, task: Task) -> None:
        if task.state.is_terminal:
            self.active.pop(task.id, None)
            self._ended[task.id] = task
            if len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
        else:
            self.active[task.id] = task
        for listener in self._listeners:
            listener.on_task(task)


def _forgotten(task_id: str) -> Task:
    """Make a task for one that was forgotten: its pushes are dropped."""
    return Task(
        id=task_id,
        level=Level.LOW,
        lane="pool-0",
        state=State.CANCELLED,
        reason="unknown task",
        lane_dropped=True,
    )
