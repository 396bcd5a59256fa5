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
    """All tasks as rows by id, oldest first, and those that are not finished as they are.

    What is not finished is known at once. The rows of all others are read by who asks for them.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.unfinished: dict[str, Task] = {}
        self._is_whole = False
        self._shared: dict[str, str] = {}
        self._version = 0
        self._seen_s = -_FORGOTTEN_S

    async def follow(self, registry: Registry) -> None:
        """Take in what has changed of all tasks; the first time it reads all that there are."""
        await self.follow_unfinished(registry)
        if not self._is_whole:
            await self._fill(registry)
            await self.follow_unfinished(registry)

    async def follow_unfinished(self, registry: Registry) -> None:
        """Take in what has changed; after an hour without a look it begins anew."""
        if time.monotonic() - self._seen_s >= _FORGOTTEN_S:
            self._begin()
        changes = await registry.changes(self._version, 0.0)
        if changes.version < self._version:  # the registry was set back
            self._begin()
        self._take(changes.tasks)
        for task_id in (*changes.forgotten, *changes.unread):
            self.rows.pop(task_id, None)
            self.unfinished.pop(task_id, None)
        self._version, self._seen_s = changes.version, time.monotonic()

    def _begin(self) -> None:
        self.rows, self.unfinished = {}, {}
        self._is_whole, self._version = False, 0

    async def _fill(self, registry: Registry) -> None:
        """Read all tasks; what changes meanwhile is told by the next changes. No page is kept."""
        async for page in pages(registry):
            for task in page:
                if task.id not in self.rows:
                    self.rows[task.id] = self._row(task)
        self.rows = dict(sorted(self.rows.items(), key=lambda one: one[1].created_at_ms))
        self._is_whole = True

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
