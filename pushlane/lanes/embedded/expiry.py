"""Forgets rows of tasks a day after they were needed last, as jobs on the store.

These are the counted seqs of a task whose lanes are dropped, the counts of a task that is not there
any more, and the news that a task was forgotten. Every write of a task sweeps some of them away.
"""

from __future__ import annotations

import sqlite3

from pushlane.core.task import now_ms

KEPT_MS = 24 * 3600 * 1000
_A_SWEEP = 16


def fade(connection: sqlite3.Connection, task_id: str) -> None:
    """Let the task's seqs go in a day, with its counts if it is gone. Harmless when repeated."""
    connection.execute(
        "INSERT OR IGNORE INTO fading (task_id, at_ms) VALUES (?, ?)",
        (task_id, now_ms() + KEPT_MS),
    )


def tell(connection: sqlite3.Connection, task_id: str, version: int) -> None:
    """Tell all who follow the changes that the task was forgotten."""
    connection.execute(
        "INSERT OR REPLACE INTO forgotten (task_id, version, at_ms) VALUES (?, ?, ?)",
        (task_id, version, now_ms()),
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
