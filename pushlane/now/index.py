"""An index of all tasks, kept up to date by what changes in the registry.

The registry lists tasks newest first, and reads each to filter it. Here a search goes over rows in
memory: 100,000 of them take about 50 MiB, and are looked through in some milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from pushlane.backends.ports import Registry, pages
from pushlane.core.task import Level, State, Task

_FORGOTTEN_S = 3_600.0
"""After so long without a look it is read anew: what changed before a day is not told any more."""


class Row(msgspec.Struct, gc=False):
    """What is kept of a task: what people search, sort and filter by. Times are Unix ms."""

    id: str
    name: str
    key: str
    app: str
    level: Level
    state: State
    sink: str
    quota: int
    total: int | None
    created_at_ms: int
    not_before_ms: int
    expires_at_ms: int
    finished_at_ms: int

    def has(self, word: str) -> bool:
        """Tell whether its id, key or name hold a word."""
        return word in self.name or word in self.id or word in self.key


class TaskIndex:
    """All tasks as rows by id, oldest first, and those that are not finished as they are."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.unfinished: dict[str, Task] = {}
        self._shared: dict[str, str] = {}
        self._version = 0
        self._seen_s = -_FORGOTTEN_S

    async def follow(self, registry: Registry) -> None:
        """Take in what has changed; all tasks the first time, or after an hour without a look."""
        if time.monotonic() - self._seen_s >= _FORGOTTEN_S:
            await self._fill(registry)
        changes = await registry.changes(self._version, 0.0)
        if changes.version < self._version:  # the registry was set back
            await self._fill(registry)
        self._take(changes.tasks)
        for task_id in (*changes.forgotten, *changes.unread):
            self.rows.pop(task_id, None)
            self.unfinished.pop(task_id, None)
        self._version, self._seen_s = changes.version, time.monotonic()

    async def _fill(self, registry: Registry) -> None:
        self._version = (await registry.changes(0, 0.0)).version
        found = [task async for page in pages(registry) for task in page]
        self.rows.clear()
        self.unfinished.clear()
        self._take(reversed(found))

    def _take(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.rows[task.id] = self._row(task)
            if task.state.is_terminal:
                self.unfinished.pop(task.id, None)
            else:
                self.unfinished[task.id] = task

    def _row(self, task: Task) -> Row:
        return Row(
            id=task.id,
            name=task.name,
            key=task.key,
            app=self._once(task.app),
            level=task.level,
            state=task.state,
            sink=self._once(task.chain[0]),
            quota=task.quota,
            total=task.total,
            created_at_ms=task.created_at_ms,
            not_before_ms=task.not_before_ms,
            expires_at_ms=task.expires_at_ms,
            finished_at_ms=task.finished_at_ms,
        )

    def _once(self, text: str) -> str:
        """Return the same text for all rows that have it."""
        return self._shared.setdefault(text, text)
