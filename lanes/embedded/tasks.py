"""Tasks and weights, as jobs on the store: find, add, change, and what is newer than a version.

What may follow what is not decided here but by the edit that is handed in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from lanes.embedded.schema import bump, current
from lanes.life import Edit
from lanes.nearest import ambiguous_task, unknown_task
from lanes.ports import Changes
from lanes.task import ACTIVE_STATES, State, Task, Weights

_NEAREST_OF = 2000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Task).decode


def find(connection: sqlite3.Connection, word: str) -> Task:
    """The task with this id or key, or else the only one of this name.

    Raises:
        UnknownTask: there is none, or several of that name; says which are near.
    """
    row = connection.execute(
        "SELECT body FROM tasks WHERE id = ?1 OR (key = ?1 AND key <> '')", (word,)
    ).fetchone()
    if row:
        return _decode(row[0])
    named = connection.execute(
        "SELECT body FROM tasks WHERE name = ? AND name <> '' LIMIT 4", (word,)
    ).fetchall()
    if len(named) == 1:
        return _decode(named[0][0])
    if named:
        raise ambiguous_task(word, (_decode(body).id for (body,) in named))
    raise unknown_task(word, _words(connection))


def _words(connection: sqlite3.Connection) -> Iterable[str]:
    """What the latest tasks may be called by."""
    rows = connection.execute(
        "SELECT id, key, name FROM tasks ORDER BY n DESC LIMIT ?", (_NEAREST_OF,)
    )
    return (word for row in rows for word in row if word)


def add(connection: sqlite3.Connection, task: Task) -> Task:
    if task.key:
        row = connection.execute("SELECT body FROM tasks WHERE key = ?", (task.key,)).fetchone()
        if row:
            return _decode(row[0])
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
        (task.id, task.key, task.name, task.state.value, task.version, _encode(task)),
    )
    return task


def in_states(connection: sqlite3.Connection, states: Sequence[State]) -> list[Task]:
    """Oldest first; all tasks when no state is named."""
    rows = connection.execute(
        "SELECT body FROM tasks WHERE state IN (SELECT value FROM json_each(?)) ORDER BY n",
        (json.dumps([state.value for state in states or State]),),
    )
    return [_decode(body) for (body,) in rows]


def newer_than(connection: sqlite3.Connection, since: int) -> Changes:
    """What has changed after version `since`; from 0 on, only what is not finished."""
    version = current(connection, "version")  # first: what comes in between is told twice
    if since == 0:
        tasks = in_states(connection, ACTIVE_STATES)
    else:
        rows = connection.execute(
            "SELECT body FROM tasks WHERE version > ? ORDER BY version", (since,)
        )
        tasks = [_decode(body) for (body,) in rows]
    return Changes(version, tasks, weights(connection))


def weights(connection: sqlite3.Connection) -> Weights:
    row = connection.execute("SELECT high, medium, low FROM weights").fetchone()
    return Weights(*row) if row else Weights()


def set_weights(connection: sqlite3.Connection, weights: Weights) -> None:
    bump(connection, "version")
    connection.execute(
        "REPLACE INTO weights VALUES (1, ?, ?, ?)", (weights.high, weights.medium, weights.low)
    )
