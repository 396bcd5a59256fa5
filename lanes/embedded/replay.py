"""Reads the published messages of a lane, acked or not, without taking anything.

A lane that keeps acked messages holds all of them until it is dropped; any other has only those
that are not acked.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from pushlane.lanes.embedded.messages import span
from pushlane.lanes.embedded.schema import DELAYED

PAGE = 1_000


class Stretch(NamedTuple):
    """A range of ids of messages, both ends included."""

    first: int
    last: int


def stretches(connection: sqlite3.Connection, lane: str, since_ms: int) -> list[Stretch]:
    """Return the ranges of messages published since then: undelayed ones, then delayed ones.

    A lane that keeps nothing does not know the times of its messages: all of them are returned.
    """
    row = connection.execute("SELECT id, kept FROM lanes WHERE name = ?", (lane,)).fetchone()
    if row is None:
        return []
    first, last = span(row[0])
    halves = [Stretch(first, first + DELAYED - 1), Stretch(first + DELAYED, last)]
    if not row[1]:
        return halves
    since = [_first_since(connection, half, since_ms) for half in halves]
    return [
        Stretch(start, half.last)
        for start, half in zip(since, halves, strict=True)
        if start is not None
    ]


def _first_since(connection: sqlite3.Connection, half: Stretch, since_ms: int) -> int | None:
    row = connection.execute(
        "SELECT min(first) FROM published WHERE first BETWEEN ? AND ? AND at_ms >= ?",
        (*half, since_ms),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def page(connection: sqlite3.Connection, stretch: Stretch) -> tuple[list[bytes], Stretch | None]:
    """Return the first messages of a stretch, and the stretch that is left."""
    rows = connection.execute(
        "SELECT id, body FROM messages WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
        (*stretch, PAGE),
    ).fetchall()
    left = Stretch(rows[-1][0] + 1, stretch.last) if len(rows) == PAGE else None
    return [body for _, body in rows], left
