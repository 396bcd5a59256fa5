"""Tasks and weights, as jobs on the store: find, add, change, and what is newer than a version.

What may follow what is not decided here but by the edit that is handed in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lanes.embedded.schema import bump, current
from lanes.life import Edit
from lanes.nearest import ambiguous_task, unknown_task
from lanes.ports import Changes
from lanes.task import ACTIVE_STATES, State, Task, Weights
from lanes.task_bytes import Understood, decode, encode

_NEAREST_OF = 2000


def find(connection: sqlite3.Connection, word: str) -> Task:
    """The task with this id or key, or else the only one of this name.

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
    """What the latest tasks may be called by."""
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
    return task


def in_states(
    connection: sqlite3.Connection, states: Sequence[State], understood: Understood
) -> tuple[list[Task], list[str]]:
    """Oldest first; all tasks when no state is named.

    Also the ids of those not understood: a state that is not known here may be any of these.
    """
    known = connection.execute("SELECT DISTINCT state FROM tasks").fetchall()
    others = [state for state in State if states and state not in states]
    wanted = [state for (state,) in known if state not in others]
    rows = connection.execute(
        "SELECT id, body FROM tasks WHERE state IN (SELECT value FROM json_each(?)) ORDER BY n",
        (json.dumps(wanted),),
    )
    return understood.read(rows)


def newer_than(connection: sqlite3.Connection, since: int, understood: Understood) -> Changes:
    """What has changed after version `since`; from 0 on, only what is not finished."""
    version = current(connection, "version")  # first: what comes in between is told twice
    if since == 0:
        tasks, unread = in_states(connection, ACTIVE_STATES, understood)
    else:
        rows = connection.execute(
            "SELECT id, body FROM tasks WHERE version > ? ORDER BY version", (since,)
        )
        tasks, unread = understood.read(rows)
    return Changes(version, tasks, weights(connection), unread)


def weights(connection: sqlite3.Connection) -> Weights:
    row = connection.execute("SELECT high, medium, low FROM weights").fetchone()
    return Weights(*row) if row else Weights()


def set_weights(connection: sqlite3.Connection, weights: Weights) -> None:
    bump(connection, "version")
    connection.execute(
        "REPLACE INTO weights VALUES (1, ?, ?, ?)", (weights.high, weights.medium, weights.low)
    )
