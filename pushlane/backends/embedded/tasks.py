"""Reads, writes and forgets tasks and what was put off of them, as jobs on the store.

The edit that a caller hands in decides which change is allowed. A day after they were needed last,
the counted seqs of a task whose lanes are dropped go, the counts of a task that is not there any
more, and the news that a task was forgotten: every write of a task sweeps some of them away.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from msgspec.structs import astuple, replace

from pushlane.backends.embedded.database import json_of
from pushlane.backends.embedded.schema import bump, current
from pushlane.backends.ports import Changes, FoundTasks, TaskPage, TaskQuery
from pushlane.core.task import ACTIVE_STATES, TERMINAL_STATES, Edit, State, Task, Weights, now_ms
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.names import publishers_of
from pushlane.model.task_bytes import Understood, decode, encode, encode_weights, refuse_readable
from pushlane.model.task_changes import check_forgettable
from pushlane.util.texts import ambiguous_task, unknown_task

KEPT_MS = 24 * 3600 * 1000
_A_SWEEP = 16


def fade(connection: sqlite3.Connection, task_id: str) -> None:
    """Let the task's seqs go in a day, with its counts if it is gone. Harmless when repeated."""
    connection.execute(
        "INSERT OR IGNORE INTO fading (task_id, at_ms) VALUES (?, ?)",
        (task_id, now_ms() + KEPT_MS),
    )


def has_faded(connection: sqlite3.Connection, task_id: str) -> bool:
    """Return True when the task has counts, but its counted seqs are forgotten."""
    row = connection.execute(
        "SELECT 1 FROM progress WHERE task_id = ?1 "
        "AND NOT EXISTS (SELECT 1 FROM seen WHERE task_id = ?1 AND page >= 0)",
        (task_id,),
    ).fetchone()
    return row is not None


def sweep(connection: sqlite3.Connection) -> None:
    now = now_ms()
    rows = connection.execute(
        "SELECT task_id FROM fading WHERE at_ms <= ? ORDER BY at_ms LIMIT ?", (now, _A_SWEEP)
    ).fetchall()
    for row in rows:
        connection.execute("DELETE FROM seen WHERE task_id = ?", row)
        connection.execute(
            "DELETE FROM progress WHERE task_id = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = ?1)",
            row,
        )
        connection.execute("DELETE FROM fading WHERE task_id = ?", row)
    connection.execute(
        "DELETE FROM forgotten WHERE task_id IN (SELECT task_id FROM forgotten "
        "WHERE at_ms <= ? ORDER BY at_ms LIMIT ?)",
        (now - KEPT_MS, _A_SWEEP),
    )


_NEAREST_OF = 2000
_BEHIND_ALL = 1 << 62

_Row = tuple[int, str, bytes]  # number, id and body of a task

# Number, id and body of tasks, all of them in one step. Those that are not finished are few.
_PAGE = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM (
    SELECT n, id, body FROM tasks
    WHERE state IN (SELECT value FROM json_each(?)) AND n < ? ORDER BY n DESC LIMIT ?)
"""
_PAGE_OF_ACTIVE = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM (
    SELECT n, id, body FROM tasks WHERE n IN (
        SELECT n FROM tasks INDEXED BY tasks_by_state
        WHERE state IN (SELECT value FROM json_each(?)) AND n < ? ORDER BY n DESC LIMIT ?)
    ORDER BY n DESC)
"""
_SOME = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM tasks
WHERE id IN (SELECT value FROM json_each(?))
"""
_ENDED = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM (
    SELECT n, id, body FROM ended CROSS JOIN tasks ON tasks.id = task_id
    WHERE at_ms < ? ORDER BY at_ms LIMIT ? OFFSET ?)
"""
_IN_STATES = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM (
    SELECT * FROM tasks WHERE state IN (SELECT value FROM json_each(?)) ORDER BY n)
"""
_NEWER = """
SELECT json_group_array(json_array(n, id, hex(body))) FROM (
    SELECT * FROM tasks WHERE version > ? ORDER BY version)
"""

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


def find(connection: sqlite3.Connection, word: str) -> Task:
    """Return the task with this id or key, or else the only one of this name.

    Raises:
        UnknownTask: there is none, or several of that name; says which are near.
    """
    row = connection.execute(
        "SELECT id, body FROM tasks WHERE id = ?1 OR (key = ?1 AND key <> '')", (word,)
    ).fetchone()
    if row:
        return decode(*row)
    named = connection.execute(
        "SELECT id, body FROM tasks WHERE name = ? AND name <> '' LIMIT 4", (word,)
    ).fetchall()
    if len(named) == 1:
        return decode(*named[0])
    if named:
        raise ambiguous_task(word, (task_id for task_id, _ in named))
    raise unknown_task(word, _words(connection))


def _words(connection: sqlite3.Connection) -> Iterable[str]:
    """Return the ids, keys and names of the latest tasks."""
    rows = connection.execute(
        "SELECT id, key, name FROM tasks ORDER BY n DESC LIMIT ?", (_NEAREST_OF,)
    )
    return (word for row in rows for word in row if word)


def add(connection: sqlite3.Connection, task: Task) -> Task:
    if task.key:
        row = connection.execute("SELECT id, body FROM tasks WHERE key = ?", (task.key,)).fetchone()
        if row:
            return decode(*row)
    return _store(connection, task)


def change(connection: sqlite3.Connection, word: str, edit: Edit) -> Task:
    task = find(connection, word)
    edited = edit(task)
    return task if edited == task else _store(connection, edited)


def _store(connection: sqlite3.Connection, task: Task) -> Task:
    task = replace(task, version=bump(connection, "version"))
    connection.execute(
        "INSERT INTO tasks (id, key, name, state, version, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
        "ON CONFLICT (id) DO UPDATE SET key = ?2, name = ?3, state = ?4, version = ?5, body = ?6",
        (task.id, task.key, task.name, str(task.state), task.version, encode(task)),
    )
    if task.state in TERMINAL_STATES:
        connection.execute(
            "INSERT OR REPLACE INTO ended (task_id, at_ms) VALUES (?, ?)",
            (task.id, task.finished_at_ms),
        )
    if task.lane_dropped:
        fade(connection, task.id)
    sweep(connection)
    return task


def forget(connection: sqlite3.Connection, task_id: str) -> bool:
    """See `core.ports.TaskStore.forget`."""
    row = connection.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return False
    task = decode(task_id, *row)
    check_forgettable(task)
    lane = task.first_lane or task.lane
    for first, last in publishers_of(task_id):
        connection.execute(_FORGET_PUBLISHERS, (lane, first, last))
    _remove(connection, task_id)
    return True


def discard(connection: sqlite3.Connection, task_id: str) -> bool:
    """See `core.ports.TaskStore.discard`. Which lanes it was published on is not known."""
    row = connection.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return False
    refuse_readable(task_id, *row)
    for names in publishers_of(task_id):
        connection.execute(_FORGET_PUBLISHERS_ANYWHERE, names)
    _remove(connection, task_id)
    return True


def _remove(connection: sqlite3.Connection, task_id: str) -> None:
    for statement in _FORGET:
        connection.execute(statement, (task_id,))
    connection.execute(
        "INSERT OR REPLACE INTO forgotten (task_id, version, at_ms) VALUES (?, ?, ?)",
        (task_id, bump(connection, "version"), now_ms()),
    )
    sweep(connection)


def page(
    connection: sqlite3.Connection, query: TaskQuery, after: str, most: int, understood: Understood
) -> TaskPage:
    """See `core.ports.TaskStore.page`. A page ends at the number of its last task."""
    states = json.dumps(_stored_states(connection, query.states))
    statement = _PAGE_OF_ACTIVE if query.is_of_active else _PAGE
    rows = _rows(connection, statement, states, int(after or _BEHIND_ALL), most)
    last = str(rows[-1][0]) if len(rows) == most else ""
    return TaskPage([task for task in _found(rows, understood).tasks if query.fits(task)], last)


def _stored_states(connection: sqlite3.Connection, wanted: Sequence[State]) -> list[str]:
    """Return the wanted states as they are stored, and unknown ones, which may be wanted."""
    others = [state for state in State if wanted and state not in wanted]
    return [state for (state,) in connection.execute(_STATES).fetchall() if state not in others]


def some(
    connection: sqlite3.Connection, task_ids: Sequence[str], understood: Understood
) -> FoundTasks:
    """See `core.ports.TaskStore.some`. The store is the truth: what it lacks is forgotten."""
    found = _found(_rows(connection, _SOME, json.dumps(list(task_ids))), understood)
    there = {*(task.id for task in found.tasks), *found.unread}
    return found._replace(forgotten=[one for one in task_ids if one not in there])


def ended(
    connection: sqlite3.Connection, before_ms: int, most: int, skip: int, understood: Understood
) -> FoundTasks:
    """See `core.ports.TaskStore.ended`."""
    return _found(_rows(connection, _ENDED, before_ms, most, skip), understood)


def newer_than(connection: sqlite3.Connection, since: int, understood: Understood) -> Changes:
    """Return the changes after version `since`; from 0 on, only the tasks that are not finished."""
    version = current(connection, "version")  # first: what comes in between is told twice
    forgotten: list[str] = []
    if since == 0:
        rows = _rows(connection, _IN_STATES, json.dumps(_stored_states(connection, ACTIVE_STATES)))
    else:
        rows = _rows(connection, _NEWER, since)
        gone = "SELECT task_id FROM forgotten WHERE version > ?"
        forgotten = [task_id for (task_id,) in connection.execute(gone, (since,)).fetchall()]
    found = _found(rows, understood)
    return Changes(version, found.tasks, weights(connection), found.unread, forgotten)


def _rows(connection: sqlite3.Connection, statement: str, *values: str | int) -> list[_Row]:
    rows = json_of(connection, statement, values)
    return [(n, task_id, bytes.fromhex(body)) for n, task_id, body in rows]


def _found(rows: Iterable[_Row], understood: Understood) -> FoundTasks:
    return FoundTasks(*understood.read((task_id, body) for _, task_id, body in rows))


def weights(connection: sqlite3.Connection) -> Weights:
    row = connection.execute("SELECT high, medium, low FROM weights").fetchone()
    return Weights(*row) if row else Weights()


def set_weights(connection: sqlite3.Connection, weights: Weights) -> None:
    encode_weights(weights)  # refuses what could not be read back
    bump(connection, "version")
    connection.execute(
        "REPLACE INTO weights VALUES (1, ?, ?, ?)", (weights.high, weights.medium, weights.low)
    )


_ADD = """
INSERT INTO put_off VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, reason, quarter) DO UPDATE SET
    pushes = pushes + excluded.pushes,
    zone = CASE WHEN excluded.first_ms < first_ms THEN excluded.zone ELSE zone END,
    first_ms = min(first_ms, excluded.first_ms),
    last_ms = max(last_ms, excluded.last_ms)
"""


def put_off(connection: sqlite3.Connection, put_offs: Sequence[PutOff], now_ms: int) -> None:
    """Add these notes, and drop those of quarters that have passed."""
    for one in put_offs:
        connection.execute(_ADD, astuple(one))
    connection.execute("DELETE FROM put_off WHERE quarter < ?", (now_ms // QUARTER_MS - 1,))


def found(connection: sqlite3.Connection, task_ids: Sequence[str]) -> list[list[PutOff]]:
    """Return the notes of each of these tasks, in this order."""
    rows = connection.execute(
        "SELECT task_id, reason, quarter, pushes, first_ms, last_ms, zone FROM put_off "
        "WHERE task_id IN (SELECT value FROM json_each(?))",
        (json.dumps(task_ids),),
    )
    by_task: dict[str, list[PutOff]] = {task_id: [] for task_id in task_ids}
    for row in rows:
        by_task[row[0]].append(PutOff(*row))
    return [by_task[task_id] for task_id in task_ids]
