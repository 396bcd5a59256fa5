"""An index of all tasks of a process, kept up to date by what changes in the registry.

The registry lists tasks newest first, and reads each to filter it. Here a search goes over rows in
memory: 100,000 of them take about 50 MiB. Their names lie in blocks of text besides, so that a rare
word is found in some milliseconds. Who looks at the backlog takes the tasks from it, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import msgspec

from pushlane.backends.ports import Registry, whole_pages
from pushlane.core.task import Level, State, Task

_BLOCK = 512
_FORGOTTEN_S = 3_600.0
"""After so long without a look it is read anew: what changed before a day is not told any more."""


class Row(msgspec.Struct, gc=False):
    """The fields of a task that the index searches, sorts and filters by. Times are Unix ms.

    There is one for each task, which changes with it; `is_gone` is set when the task is forgotten.
    """

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
    is_gone: bool = False


class _Names:
    """Id, key and name of rows in lower case, in blocks: one without a word has no row with it.

    What is gone stays until it is filled anew.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.lines = 0
        self._blocks: list[tuple[list[Row], str]] = []
        self._rows: list[Row] = []
        self._texts: list[str] = []
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self._rows.append(row)
        text = "\0".join((row.id, row.key, row.name))
        self._texts.append(text.lower().replace("\n", " "))
        self.lines += 1
        if len(self._rows) == _BLOCK:
            self._blocks.append((self._rows, "\n".join(self._texts)))
            self._rows, self._texts = [], []

    def with_word(self, word: str) -> list[Row]:
        """Return the rows that hold a word, in the order in which they came."""
        word = word.lower()
        found: list[Row] = []
        if "\0" in word or "\n" in word:  # which part what lies here
            return found
        for rows, text in [*self._blocks, (self._rows, "\n".join(self._texts))]:
            if word in text:
                lines = zip(rows, text.split("\n"), strict=True)
                found += [row for row, line in lines if word in line and not row.is_gone]
        return found


class TaskIndex:
    """All tasks as rows by id, oldest first, and those that are not finished as they are.

    What is not finished is known at once. The rows of all others are read by who asks for them.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.unfinished: dict[str, Task] = {}
        self._names = _Names()
        self.is_whole = False
        self._filled_to = ""
        self._shared: dict[str, str] = {}
        self._version = 0
        self._seen_s = -_FORGOTTEN_S
        self._lock = asyncio.Lock()  # an older answer must not come behind a newer one

    async def follow(self, registry: Registry) -> None:
        """Take in what has changed of all tasks; the first time it reads all that there are."""
        await self.follow_unfinished(registry)
        if not self.is_whole:
            await self._fill(registry)
            await self.follow_unfinished(registry)

    async def follow_unfinished(self, registry: Registry) -> None:
        """Take in what has changed; after an hour without a look it begins anew."""
        async with self._lock:
            await self._follow(registry)

    async def _follow(self, registry: Registry) -> None:
        if time.monotonic() - self._seen_s >= _FORGOTTEN_S:
            self._begin()
        changes = await registry.changes(self._version, 0.0)
        if changes.version < self._version:  # the registry was set back
            self._begin()
        self._take(changes.tasks)
        for task_id in (*changes.forgotten, *changes.unread):
            if (row := self.rows.pop(task_id, None)) is not None:
                row.is_gone = True
            self.unfinished.pop(task_id, None)
        if self._names.lines > 2 * len(self.rows) + _BLOCK:  # most of them are gone
            self._names = _Names(self.rows.values())
        self._version, self._seen_s = changes.version, time.monotonic()

    def find(self, word: str) -> list[Row]:
        """Return the rows whose id, key or name hold a word in any case, all without one."""
        return self._names.with_word(word) if word else [*self.rows.values()]

    def _begin(self) -> None:
        self.rows, self.unfinished, self._names = {}, {}, _Names()
        self.is_whole, self._version, self._filled_to = False, 0, ""

    async def _fill(self, registry: Registry) -> None:
        """Read all tasks; what changes meanwhile is told by the next changes. No page is kept.

        Where it was broken off, as by who waits no longer, the next call goes on.
        """
        async for page in whole_pages(registry, after=self._filled_to):
            for task in page.tasks:
                if task.id not in self.rows:
                    self.rows[task.id] = self._row(task)
            self._filled_to = page.after
        self.rows = dict(sorted(self.rows.items(), key=lambda one: one[1].created_at_ms))
        self._names = _Names(self.rows.values())
        self.is_whole = True

    def _take(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            row = self._row(task)
            if (known := self.rows.get(task.id)) is None:
                self.rows[task.id] = row
                self._names.add(row)  # by what no change alters
            else:
                for name in Row.__struct_fields__:
                    setattr(known, name, getattr(row, name))
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


_indices: WeakKeyDictionary[Registry, TaskIndex] = WeakKeyDictionary()


def index_of(registry: Registry) -> TaskIndex:
    """Return the index of this process on a registry: one for all who look."""
    return _indices.setdefault(registry, TaskIndex())
