"""Notes of pushes that were put off, as jobs on the store (`model.due`)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from pushlane.model.due import QUARTER_MS, PutOff

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
        connection.execute(
            _ADD,
            (
                *(one.task_id, one.reason, one.quarter, one.pushes),
                *(one.first_ms, one.last_ms, one.zone),
            ),
        )
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
