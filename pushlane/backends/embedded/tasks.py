"""The tasks on SQLite: rows, one version counter over all of them, and a feed of changes.

The edit that a caller hands in decides which change is allowed. A day after they were needed last,
the counted seqs of a task whose lanes are dropped go, the counts of a task that is not there any
more, and the news that a task was forgotten: every write of a task sweeps some of them away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sqlite3 import Connection
from typing import TypeVar

from msgspec.structs import replace

from pushlane.backends.cells import check_fence
from pushlane.backends.embedded.cells import last_number
from pushlane.backends.embedded.database import (
    Database,
    StorePort,
    json_of,
    reads,
    writes_durably,
)
from pushlane.backends.embedded.schema import bump, current
from pushlane.backends.ports import PAGE, Changes, Fence, FoundTasks, TaskPage, TaskQuery, number_of
from pushlane.core.task import ACTIVE_STATES, TERMINAL_STATES, Edit, State, Task, Weights, now_ms
from pushlane.model.names import publishers_of
from pushlane.model.task_bytes import (
    Understood,
    decode,
    encode,
    encode_weights,
    read_or_id,
    refuse_readable,
)
from pushlane.model.task_changes import check_forgettable
from pushlane.util.texts import MOST_NAMED, ambiguous_task, unknown_task

T = TypeVar("T")

KEPT_MS = 24 * 3600 * 1000
_A_SWEEP = 16


def fade(store: Connection, task_id: str) -> None:
    """Let the task's seqs go in a day, with its counts if it is gone. Harmless when repeated."""
    store.execute(
        "INSERT OR IGNORE INTO fading (task_id, at_ms) VALUES (?, ?)",
        (task_id, now_ms() + KEPT_MS),
    )


def has_faded(store: Connection, task_id: str) -> bool:
    """Return True when the task has counts, but its counted seqs are forgotten."""
    faded = (
        "SELECT 1 FROM progress WHERE task_id = ?1 "
        "AND NOT EXISTS (SELECT 1 FROM seen WHERE task_id = ?1 AND page >= 0)"
    )
    return store.execute(faded, (task_id,)).fetchone() is not None


def sweep(store: Connection) -> None:
    now = now_ms()
    rows = store.execute(
        "SELECT task_id FROM fading WHERE at_ms <= ? ORDER BY at_ms LIMIT ?", (now, _A_SWEEP)
    ).fetchall()
    for row in rows:
        store.execute("DELETE FROM seen WHERE task_id = ?", row)
        store.execute(
            "DELETE FROM progress WHERE task_id = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = ?1)",
            row,
        )
        store.execute("DELETE FROM fading WHERE task_id = ?", row)
    store.execute(
        "DELETE FROM forgotten WHERE task_id IN (SELECT task_id FROM forgotten "
        "WHERE at_ms <= ? ORDER BY at_ms LIMIT ?)",
        (now - KEPT_MS, _A_SWEEP),
    )


_NEAREST_OF = 2000
_BEHIND_ALL = 1 << 62

_Row = tuple[int, str, bytes]  # number, id and body of a task

# Number, id and body of tasks, all of them in one step.
_ROWS = "SELECT json_group_array(json_array(n, id, hex(body))) FROM ({})"
_PAGE = """
SELECT n, id, body FROM tasks
WHERE state IN (SELECT value FROM json_each(?)) AND n < ? ORDER BY n DESC LIMIT ?
"""
# Those that are not finished are few.
_PAGE_OF_ACTIVE = """
SELECT n, id, body FROM tasks WHERE n IN (
    SELECT n FROM tasks INDEXED BY tasks_by_state
    WHERE state IN (SELECT value FROM json_each(?)) AND n < ? ORDER BY n DESC LIMIT ?)
ORDER BY n DESC
"""
_SOME = "SELECT n, id, body FROM tasks WHERE id IN (SELECT value FROM json_each(?))"
_ENDED = """
SELECT n, id, body FROM ended CROSS JOIN tasks ON tasks.id = task_id
WHERE at_ms < ? ORDER BY at_ms LIMIT ? OFFSET ?
"""
_IN_STATES = "SELECT * FROM tasks WHERE state IN (SELECT value FROM json_each(?)) ORDER BY n"
_NEWER = "SELECT * FROM tasks WHERE version > ? ORDER BY version"

# One seek of the index for each state, however many tasks there are.
_STATES = """
WITH RECURSIVE stored (state) AS (
    SELECT min(state) FROM tasks
    UNION ALL SELECT (SELECT min(state) FROM tasks WHERE state > stored.state) FROM stored
    WHERE stored.state IS NOT NULL
) SELECT state FROM stored WHERE state IS NOT NULL
"""

# A lane of its own takes them with it.
_FORGET_PUBLISHERS = (
    "DELETE FROM publishers WHERE lane_id = (SELECT id FROM lanes WHERE name = ?) "
    "AND name BETWEEN ? AND ?"
)
_FORGET_PUBLISHERS_ANYWHERE = "DELETE FROM publishers WHERE name BETWEEN ? AND ?"
_FORGET = (
    "DELETE FROM tasks WHERE id = ?",
    "DELETE FROM progress WHERE task_id = ?",
    "DELETE FROM seen WHERE task_id = ?",
    "DELETE FROM ended WHERE task_id = ?",
    "DELETE FROM fading WHERE task_id = ?",
    "DELETE FROM put_off WHERE task_id = ?",
)


class EmbeddedTasks(StorePort):
    """The part of `backends.ports.Registry` that keeps the tasks and tells of their changes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._news = asyncio.Event()
        self._watching = False
        self._understood = Understood()

    async def add(self, task: Task) -> Task:
        return await self._change(partial(_add, task=task))

    @reads
    def get(self, store: Connection, task_id: str) -> Task:
        return _find(store, task_id)

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        return await self._change(partial(_edit, word=task_id, edit=edit), fence)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        return await self._change(partial(_forget, task_id=task_id), fence)

    async def discard(self, task_id: str) -> bool:
        return await self._change(partial(_discard, task_id=task_id))

    @reads
    def page(
        self, store: Connection, query: TaskQuery, after: str = "", most: int = PAGE
    ) -> TaskPage:
        """A page ends at the number of its last task."""
        states = json.dumps(_stored_states(store, query.states))
        before = number_of(after) if after else _BEHIND_ALL
        statement = _PAGE_OF_ACTIVE if query.is_of_active else _PAGE
        rows = _rows(store, statement, states, before, most)
        last = str(rows[-1][0]) if len(rows) == most else ""
        found = self._found(rows)
        tasks = [task for task in found.tasks if query.fits(task)]
        numbers = {task_id: str(number) for number, task_id, _ in rows}
        return TaskPage(tasks, last, [numbers[task.id] for task in tasks], found.unread)

    @reads
    def some(self, store: Connection, task_ids: Sequence[str]) -> FoundTasks:
        """The store is the truth: what it lacks is forgotten."""
        found = self._found(_rows(store, _SOME, json.dumps(list(task_ids))))
        there = {*(task.id for task in found.tasks), *found.unread}
        return found._replace(forgotten=[one for one in task_ids if one not in there])

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self.some(task_ids)

    @reads
    def ended(self, store: Connection, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        return self._found(_rows(store, _ENDED, before_ms, most, skip))

    async def keep_up(self) -> None:
        """The file is the truth: there is nothing that it could lack."""

    async def tidy(self) -> None:
        """Each add is one transaction, and news go with it: there is nothing to drop."""

    @reads
    def weights(self, store: Connection) -> Weights:
        return _weights(store)

    async def set_weights(self, weights: Weights, over: Weights | None = None) -> bool:
        return await self._change(partial(_set_weights, weights=weights, over=over))

    async def changes(self, since: int, timeout_s: float) -> Changes:
        if timeout_s and not self._watching:  # to watch costs some percent of a core
            self._watching = True
            self._database.on_change(self._tell)
        news, changes = self._news, await self._newer_than(since)
        try:
            async with asyncio.timeout(timeout_s):
                while since and changes.version <= since:
                    await news.wait()
                    news, changes = self._news, await self._newer_than(since)
        except TimeoutError:
            return Changes(since, [], changes.weights)
        return changes

    async def close(self) -> None:
        """Do nothing: the store is closed by whoever opened it."""

    @reads
    def _newer_than(self, store: Connection, since: int) -> Changes:
        """Return the changes after a version; from 0 on, only the tasks that are not finished."""
        version = current(store, "version")  # first: what comes in between is told twice
        forgotten: list[str] = []
        if since == 0:
            rows = _rows(store, _IN_STATES, json.dumps(_stored_states(store, ACTIVE_STATES)))
        else:
            rows = _rows(store, _NEWER, since)
            gone = "SELECT task_id FROM forgotten WHERE version > ?"
            forgotten = [task_id for (task_id,) in store.execute(gone, (since,)).fetchall()]
        found = self._found(rows)
        return Changes(version, found.tasks, _weights(store), found.unread, forgotten)

    def _found(self, rows: Iterable[_Row]) -> FoundTasks:
        return FoundTasks(*self._understood.read((task_id, body) for _, task_id, body in rows))

    async def _change(self, job: Callable[[Connection], T], fence: Fence | None = None) -> T:
        answer = await self._fenced(job, fence)
        self._tell()
        return answer

    @writes_durably
    def _fenced(self, store: Connection, job: Callable[[Connection], T], fence: Fence | None) -> T:
        if fence is not None:
            check_fence(fence, last_number(store, fence.lease))
        return job(store)

    def _tell(self) -> None:
        """Wake all who wait; later callers wait for the next event."""
        self._news.set()
        self._news = asyncio.Event()


def _find(store: Connection, word: str) -> Task:
    """Return the task with this id or key, or else the only one of this name.

    Raises UnknownTask when there is none, or several of that name; says which are near.
    """
    row = store.execute(
        "SELECT id, body FROM tasks WHERE id = ?1 OR (key = ?1 AND key <> '')", (word,)
    ).fetchone()
    if row:
        return decode(*row)
    named = store.execute(
        "SELECT id, body FROM tasks WHERE name = ? AND name <> '' ORDER BY n DESC LIMIT ?",
        (word, MOST_NAMED + 1),
    ).fetchall()
    if len(named) == 1:
        return decode(*named[0])
    if named:
        raise ambiguous_task(word, [read_or_id(*row) for row in named])
    raise unknown_task(word, _words(store))


def _words(store: Connection) -> Iterable[str]:
    """Return the ids, keys and names of the latest tasks."""
    rows = store.execute("SELECT id, key, name FROM tasks ORDER BY n DESC LIMIT ?", (_NEAREST_OF,))
    return (word for row in rows for word in row if word)


def _add(store: Connection, task: Task) -> Task:
    if task.key:
        row = store.execute("SELECT id, body FROM tasks WHERE key = ?", (task.key,)).fetchone()
        if row:
            return decode(*row)
    return _store(store, task)


def _edit(store: Connection, word: str, edit: Edit) -> Task:
    task = _find(store, word)
    edited = edit(task)
    return task if edited == task else _store(store, edited)


def _store(store: Connection, task: Task) -> Task:
    task = replace(task, version=bump(store, "version"))
    store.execute(
        "INSERT INTO tasks (id, key, name, state, version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
        "ON CONFLICT (id) DO UPDATE SET key = ?2, name = ?3, state = ?4, version = ?5, body = ?6",
        (task.id, task.key, task.name, str(task.state), task.version, encode(task)),
    )
    if task.state in TERMINAL_STATES:
        store.execute(
            "INSERT OR REPLACE INTO ended (task_id, at_ms) VALUES (?, ?)",
            (task.id, task.finished_at_ms),
        )
    if task.lane_dropped:
        fade(store, task.id)
    sweep(store)
    return task


def _forget(store: Connection, task_id: str) -> bool:
    row = store.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return False
    task = decode(task_id, *row)
    check_forgettable(task)
    lane = task.first_lane or task.lane
    for first, last in publishers_of(task_id):
        store.execute(_FORGET_PUBLISHERS, (lane, first, last))
    _remove(store, task_id)
    return True


def _discard(store: Connection, task_id: str) -> bool:
    """Remove it; which lanes it was published on is not known."""
    row = store.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return False
    refuse_readable(task_id, *row)
    for names in publishers_of(task_id):
        store.execute(_FORGET_PUBLISHERS_ANYWHERE, names)
    _remove(store, task_id)
    return True


def _remove(store: Connection, task_id: str) -> None:
    for statement in _FORGET:
        store.execute(statement, (task_id,))
    store.execute(
        "INSERT OR REPLACE INTO forgotten (task_id, version, at_ms) VALUES (?, ?, ?)",
        (task_id, bump(store, "version"), now_ms()),
    )
    sweep(store)


def _stored_states(store: Connection, wanted: Sequence[State]) -> list[str]:
    """Return the wanted states as they are stored, and unknown ones, which may be wanted."""
    others = [state for state in State if wanted and state not in wanted]
    return [state for (state,) in store.execute(_STATES).fetchall() if state not in others]


def _rows(store: Connection, statement: str, *values: str | int) -> list[_Row]:
    rows = json_of(store, _ROWS.format(statement), values)
    return [(n, task_id, bytes.fromhex(body)) for n, task_id, body in rows]


def _weights(store: Connection) -> Weights:
    row = store.execute("SELECT high, medium, low FROM weights").fetchone()
    return Weights(*row) if row else Weights()


def _set_weights(store: Connection, weights: Weights, over: Weights | None) -> bool:
    encode_weights(weights)  # refuses what could not be read back
    if over is not None and _weights(store) != over:
        return False
    bump(store, "version")
    values = (weights.high, weights.medium, weights.low)
    store.execute("REPLACE INTO weights VALUES (1, ?, ?, ?)", values)
    return True
