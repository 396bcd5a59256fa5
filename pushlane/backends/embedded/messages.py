"""Moves messages to readers and back: claims for many lanes at once, gives back, drops lanes.

A claim takes messages that are due in `waiting` first, then moves the lane's head over fresh ones.
The cost of a lane does not depend on how many other lanes there are.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pushlane.backends.embedded.owners import OwnerBeat, find_frozen, last_beats
from pushlane.backends.embedded.schema import LANE_SHIFT, bump
from pushlane.lanes.embedded import messages
from pushlane.lanes.embedded.process_liveness import is_alive
from pushlane.lanes.ports import Taken


class ClaimRequest(NamedTuple):
    """A reader that asks for at most so many messages of its lane."""

    reader_id: int
    lane_id: int
    lane: str
    most: int


class ClaimedBatch(NamedTuple):
    """The messages that one reader got.

    `more` says to look again at once, else `due_at_ms` says when something comes due. With `more`
    and nothing taken there was no room for what the lane has.
    """

    reader_id: int
    taken: list[Taken]
    more: bool
    due_at_ms: int | None


class _Pick(NamedTuple):
    """The messages that a reader is to get: rows of `waiting` that are due, then fresh ids."""

    request: ClaimRequest
    due: list[tuple[int, int, int]]
    fresh: list[int]
    head: int
    more: bool
    due_at_ms: int | None

    @property
    def ids(self) -> list[int]:
        return [*(number for _, _, number in self.due), *self.fresh]

    def cut(self, count: int) -> _Pick:
        """Return the pick with no more than its first messages."""
        if count >= len(self.due) + len(self.fresh):
            return self
        fresh = self.fresh[: max(0, count - len(self.due))]
        head = self.head - len(self.fresh) + len(fresh)
        return self._replace(due=self.due[:count], fresh=fresh, head=head, more=True)


def register(connection: sqlite3.Connection, owner: str, lane: str) -> tuple[int, int]:
    """Add a reader of the lane; return its id and the lane's."""
    found = messages.lane_id(connection, lane)
    connection.execute("INSERT OR IGNORE INTO owners (name) VALUES (?)", (owner,))
    cursor = connection.execute(
        "INSERT INTO readers (owner, lane_id) VALUES (?, ?)", (owner, found)
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid, found


def claim(
    connection: sqlite3.Connection,
    requests: Sequence[ClaimRequest],
    now_ms: int,
    most_bytes: int = sys.maxsize,
) -> list[ClaimedBatch]:
    """Claim for each reader; readers are left out that get nothing and have nothing coming.

    All bodies together have no more than `most_bytes`, but for a first one that is larger. Each
    reader gets one message, in the order of the requests, before any of them gets more.
    """
    ends = _look(connection, requests)
    picks = [
        _pick(connection, request, *ends[request.lane_id], now_ms)
        for request in requests
        if request.lane_id in ends
    ]
    if _bytes(connection, picks) > most_bytes:
        picks = _within(picks, _lengths(connection, picks), most_bytes)
    bodies = iter(_take(connection, picks))
    return [
        ClaimedBatch(
            pick.request.reader_id,
            _in_hand(pick, bodies),
            pick.more,
            pick.due_at_ms,
        )
        for pick in picks
    ]


def _in_hand(pick: _Pick, bodies: Iterator[bytes]) -> list[Taken]:
    return [
        Taken(next(bodies), pick.request.lane, number, place >= len(pick.due))
        for place, number in enumerate(pick.ids)
    ]


def _look(
    connection: sqlite3.Connection, requests: Sequence[ClaimRequest]
) -> dict[int, tuple[int, int, int | None]]:
    """Return head, tail and next due time of each lane that has anything."""
    row = connection.execute(
        "SELECT json_group_array(json_array(id, head, tail, due_at_ms)) FROM ("
        "SELECT lanes.id AS id, head, tail, "
        "(SELECT min(due_at_ms) FROM waiting WHERE lane_id = lanes.id) AS due_at_ms "
        "FROM json_each(?) AS wanted CROSS JOIN lanes ON lanes.id = wanted.value) "
        "WHERE tail > head OR due_at_ms IS NOT NULL",
        (json.dumps([request.lane_id for request in requests]),),
    ).fetchone()
    return {lane: (head, tail, due) for lane, head, tail, due in json.loads(row[0])}


def _pick(
    connection: sqlite3.Connection,
    request: ClaimRequest,
    head: int,
    tail: int,
    due_at_ms: int | None,
    now_ms: int,
) -> _Pick:
    """Choose the messages that this reader gets if there is room for all."""
    due: list[tuple[int, int, int]] = []
    if due_at_ms is not None and due_at_ms <= now_ms:
        due = _due(connection, request, now_ms)
        due_at_ms = None
    last = max(head, min(tail, head + request.most - len(due)))
    base = request.lane_id << LANE_SHIFT
    fresh = list(range(base + head + 1, base + last + 1))
    return _Pick(request, due, fresh, last, bool(due) or tail > last, due_at_ms)


def _due(
    connection: sqlite3.Connection, request: ClaimRequest, now_ms: int
) -> list[tuple[int, int, int]]:
    row = connection.execute(
        "SELECT json_group_array(json_array(lane_id, due_at_ms, id)) FROM ("
        "SELECT lane_id, due_at_ms, id FROM waiting WHERE lane_id = ? AND due_at_ms <= ? "
        "ORDER BY due_at_ms, id LIMIT ?)",
        (request.lane_id, now_ms, request.most),
    ).fetchone()
    return [tuple(one) for one in json.loads(row[0])]


def _bytes(connection: sqlite3.Connection, picks: Sequence[_Pick]) -> int:
    """Return how long all picked bodies are together. SQLite looks at none of them."""
    spans = [(pick.fresh[0], pick.fresh[-1]) for pick in picks if pick.fresh]
    spans += [(number, number) for pick in picks for _, _, number in pick.due]
    row = connection.execute(
        "SELECT total(length(body)) FROM json_each(?) CROSS JOIN messages "
        "ON messages.id BETWEEN json_extract(value, '$[0]') AND json_extract(value, '$[1]')",
        (json.dumps(spans),),
    ).fetchone()
    return int(row[0])


def _lengths(connection: sqlite3.Connection, picks: Sequence[_Pick]) -> list[int]:
    """Return how long the picked bodies are, in the order of the picks."""
    row = connection.execute(
        "SELECT json_group_array(length(body)) FROM json_each(?) AS one "
        "CROSS JOIN messages ON messages.id = one.value",
        (json.dumps([number for pick in picks for number in pick.ids]),),
    ).fetchone()
    lengths: list[int] = json.loads(row[0])
    return lengths


def _within(picks: Sequence[_Pick], lengths: Sequence[int], most_bytes: int) -> list[_Pick]:
    """Cut the picks to what fits: one message each as far as it goes, then more of each."""
    waiting = iter(lengths)
    sizes = [list(islice(waiting, len(pick.due) + len(pick.fresh))) for pick in picks]
    counts, used = [0] * len(picks), 0
    for place, of_pick in enumerate(sizes):
        if of_pick and (not used or used + of_pick[0] <= most_bytes):
            counts[place], used = 1, used + of_pick[0]
    for place, of_pick in enumerate(sizes):
        for size in of_pick[1:] if counts[place] else ():
            if used + size > most_bytes:
                break
            counts[place], used = counts[place] + 1, used + size
    return [pick.cut(count) for pick, count in zip(picks, counts, strict=True)]


def _take(connection: sqlite3.Connection, picks: Sequence[_Pick]) -> list[bytes]:
    """Record the claims on the picked messages; return the bodies in the order of the picks."""
    claimed = {pick.request.reader_id: ids for pick in picks if (ids := pick.ids)}
    if not claimed:
        return []
    by_reader = (json.dumps(claimed),)
    if came_due := [row for pick in picks for row in pick.due]:
        connection.execute(
            "DELETE FROM waiting WHERE (lane_id, due_at_ms, id) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), "
            "json_extract(value, '$[2]') FROM json_each(?))",
            (json.dumps(came_due),),
        )
    connection.execute(
        "INSERT INTO claims (id, reader_id) SELECT one.value, CAST(reader.key AS INTEGER) "
        "FROM json_each(?) AS reader CROSS JOIN json_each(reader.value) AS one",
        by_reader,
    )
    connection.execute(
        "UPDATE lanes SET head = new.value FROM json_each(?) AS new "
        "WHERE lanes.id = CAST(new.key AS INTEGER)",
        (json.dumps({pick.request.lane_id: pick.head for pick in picks}),),
    )
    row = connection.execute(
        "SELECT group_concat(hex(body)) FROM json_each(?) AS reader "
        "CROSS JOIN json_each(reader.value) AS one CROSS JOIN messages ON messages.id = one.value",
        by_reader,
    ).fetchone()
    return [bytes.fromhex(body) for body in row[0].split(",")]


def give_back(connection: sqlite3.Connection, reader_id: int, lane_id: int) -> None:
    """Put the unacked messages that this reader claimed back to the front of their lane."""
    claimed = connection.execute(
        "SELECT json_group_array(id) FROM claims WHERE id BETWEEN ? AND ? AND reader_id = ?",
        (*messages.span(lane_id), reader_id),
    ).fetchone()
    _release(connection, claimed[0])
    connection.execute("DELETE FROM readers WHERE id = ?", (reader_id,))


def give_back_all(connection: sqlite3.Connection, owner: str) -> None:
    """Give back for all readers of an owner that ends, or has died."""
    _release_all(connection, owner)
    connection.execute("DELETE FROM readers WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owners WHERE name = ?", (owner,))
    connection.execute("DELETE FROM beats WHERE owner NOT IN (SELECT name FROM owners)")


def take_from_frozen(connection: sqlite3.Connection, last: OwnerBeat) -> bool:
    """Give back for an owner that is frozen. False, with nothing done, when it has beaten since.

    Its readers stay: they go on when it does, and are not counted as reading until then.
    """
    if not find_frozen(connection, last):
        return False
    _release_all(connection, last.owner)
    return True


def _release_all(connection: sqlite3.Connection, owner: str) -> None:
    claimed = connection.execute(
        "SELECT json_group_array(id) FROM claims "
        "WHERE reader_id IN (SELECT id FROM readers WHERE owner = ?)",
        (owner,),
    ).fetchone()
    _release(connection, claimed[0])


def _release(connection: sqlite3.Connection, ids: str) -> None:
    """Move messages from `claims` to `waiting`, due at once; `ids` is a JSON array."""
    connection.execute(
        "INSERT INTO waiting (lane_id, due_at_ms, id) "
        "SELECT value >> ?, 0, value FROM json_each(?)",
        (LANE_SHIFT, ids),
    )
    connection.execute(
        "UPDATE lanes SET stamp = ? WHERE id IN (SELECT value >> ? FROM json_each(?))",
        (bump(connection, "stamp"), LANE_SHIFT, ids),
    )
    connection.execute("DELETE FROM claims WHERE id IN (SELECT value FROM json_each(?))", (ids,))


def due_maintenance(
    connection: sqlite3.Connection, folder: Path, own: str
) -> tuple[list[str], list[OwnerBeat], bool]:
    """Return dead owners, all last beats, and whether dropped lanes have left any messages."""
    rows = connection.execute("SELECT name FROM owners WHERE name <> ?", (own,)).fetchall()
    dead = [name for (name,) in rows if not is_alive(folder, name)]
    dropped = connection.execute("SELECT 1 FROM dropped LIMIT 1").fetchone()
    return dead, last_beats(connection), dropped is not None


def drop_lane(connection: sqlite3.Connection, lane: str, unless_read_in: Path | None) -> bool:
    """Drop the lane. False when a live owner of that folder reads it that was not found frozen.

    A lane that is not there counts as dropped.
    """
    row = connection.execute("SELECT id FROM lanes WHERE name = ?", (lane,)).fetchone()
    if row is None:
        return True
    if unless_read_in and _is_read(connection, unless_read_in, row[0]):
        return False
    messages.drop_lane(connection, row[0])
    return True


def _is_read(connection: sqlite3.Connection, folder: Path, lane_id: int) -> bool:
    rows = connection.execute(
        "SELECT DISTINCT owner FROM readers WHERE lane_id = ? "
        "AND owner NOT IN (SELECT owner FROM beats WHERE at_ms = 0)",
        (lane_id,),
    )
    return any(is_alive(folder, owner) for (owner,) in rows.fetchall())
