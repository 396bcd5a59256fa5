"""How many distinct seqs of a task ended in which way: one bit a seq, so a repeat counts once.

A seq counts as what it ended as first.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence

from lanes.push import Kind
from lanes.task import Finished, Progress

PAGE_SEQS = 8192
"""Seqs a page: 1 KiB at most, which SQLite keeps in one place; stored as far as it is used."""


def record(connection: sqlite3.Connection, finished: Sequence[Finished]) -> list[Progress]:
    for one in finished:
        _count(connection, one.task_id, one.kind, _mark_all(connection, one.task_id, one.seqs))
    return progress(connection, list(dict.fromkeys(one.task_id for one in finished)))


def progress(connection: sqlite3.Connection, task_ids: Sequence[str]) -> list[Progress]:
    """In the order asked for; a task of which nothing has finished has zeros."""
    rows = connection.execute(
        "SELECT task_id, delivered, dead, expired, dropped FROM progress "
        "WHERE task_id IN (SELECT value FROM json_each(?))",
        (json.dumps(task_ids),),
    )
    known = {row[0]: Progress(*row) for row in rows}
    return [known.get(task_id, Progress(task_id)) for task_id in task_ids]


def finished(connection: sqlite3.Connection, task_id: str, seqs: Sequence[int]) -> list[bool]:
    """Whether each of these seqs is marked."""
    wanted = json.dumps(list({seq // PAGE_SEQS for seq in seqs}))
    row = connection.execute(
        "SELECT json_group_object(page, hex(bits)) FROM seen "
        "WHERE task_id = ? AND page IN (SELECT value FROM json_each(?))",
        (task_id, wanted),
    ).fetchone()
    pages = {int(page): bytes.fromhex(bits) for page, bits in json.loads(row[0]).items()}
    return [_is_marked(pages.get(seq // PAGE_SEQS), seq % PAGE_SEQS) for seq in seqs]


def _is_marked(bits: bytes | None, place: int) -> bool:
    at = place >> 3
    return bits is not None and at < len(bits) and bool(bits[at] & 1 << (place & 7))


def _mark_all(connection: sqlite3.Connection, task_id: str, seqs: Iterable[int]) -> int:
    """How many of these seqs were not marked yet; from now on they are."""
    pages: defaultdict[int, list[int]] = defaultdict(list)
    for seq in seqs:
        pages[seq // PAGE_SEQS].append(seq % PAGE_SEQS)
    return sum(_mark(connection, task_id, page, places) for page, places in pages.items())


def _mark(connection: sqlite3.Connection, task_id: str, page: int, places: list[int]) -> int:
    row = connection.execute(
        "SELECT bits FROM seen WHERE task_id = ? AND page = ?", (task_id, page)
    ).fetchone()
    bits = bytearray(row[0] if row else b"")
    bits.extend(bytes(max(0, (max(places) >> 3) + 1 - len(bits))))
    new = 0
    for place in places:
        mask = 1 << (place & 7)
        if not bits[place >> 3] & mask:
            bits[place >> 3] |= mask
            new += 1
    if new:
        connection.execute("REPLACE INTO seen VALUES (?, ?, ?)", (task_id, page, bytes(bits)))
    return new


def _count(connection: sqlite3.Connection, task_id: str, kind: Kind, new: int) -> None:
    if new:
        connection.execute("INSERT OR IGNORE INTO progress (task_id) VALUES (?)", (task_id,))
        connection.execute(_ADD[kind], (new, task_id))


_ADD = {
    Kind.DELIVERED: "UPDATE progress SET delivered = delivered + ? WHERE task_id = ?",
    Kind.DEAD: "UPDATE progress SET dead = dead + ? WHERE task_id = ?",
    Kind.EXPIRED: "UPDATE progress SET expired = expired + ? WHERE task_id = ?",
    Kind.DROPPED: "UPDATE progress SET dropped = dropped + ? WHERE task_id = ?",
}
