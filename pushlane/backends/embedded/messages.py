"""Changes lanes and messages, and moves messages to readers and back, as jobs on the store.

Each job runs inside one transaction and takes a set at a time (see `backends.embedded.database`). A
message is acked by deleting it, unless its lane keeps it; else only the drop of its lane deletes
it. A claim takes messages that are due in `waiting` first, then moves the lane's head over fresh
ones. The cost of a lane does not depend on how many other lanes there are.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from pushlane.backends.embedded.database import json_of
from pushlane.backends.embedded.owners import OwnerBeat, find_frozen, is_alive, last_beats
from pushlane.backends.embedded.schema import DELAYED, LANE_SHIFT, bump
from pushlane.backends.ports import of_each, refuse_second
from pushlane.core.errors import UnknownLane
from pushlane.core.ports import Source, Taken

DROP_CHUNK = 5000
HASTEN_CHUNK = 5000
_INSERT_CHUNK = 4096  # SQLite takes at most 1 GB at once


def lane_id(connection: sqlite3.Connection, lane: str) -> int:
    """Return the id of the lane. Raises UnknownLane when there is none of this name."""
    row = connection.execute("SELECT id FROM lanes WHERE name = ?", (lane,)).fetchone()
    if row is None:
        raise UnknownLane(f"there is no lane {lane}: it was never opened, or is dropped")
    return int(row[0])


def open_lane(connection: sqlite3.Connection, lane: str, keep: bool = False) -> None:
    """Make the lane. With `keep` it keeps acked messages from now on, which is never undone."""
    connection.execute(
        "INSERT INTO lanes (name, kept) VALUES (?1, ?2) "
        "ON CONFLICT (name) DO UPDATE SET kept = 1 WHERE ?2 AND NOT kept",
        (lane, keep),
    )


def publish(
    connection: sqlite3.Connection,
    lane: str,
    bodies: Sequence[bytes],
    due_at_ms: int | Sequence[int],
    source: Source | None,
    now_ms: int = 0,
) -> int:
    """Keep these bodies, without those that the source published before; return the lane's id.

    All are due at that Unix ms, or each at its own; at once with 0.
    """
    found = lane_id(connection, lane)
    known = _repeated(connection, found, source) if source else 0
    dues_ms = of_each(due_at_ms, len(bodies))
    by_due: dict[int, list[bytes]] = {}
    for body, due_ms in zip(bodies[known:], dues_ms[known:], strict=True):
        by_due.setdefault(due_ms, []).append(body)
    for due_ms, some in by_due.items():
        first = _make_room(connection, found, len(some), due_ms)
        for start in range(0, len(some), _INSERT_CHUNK):
            _insert(connection, first + start, some[start : start + _INSERT_CHUNK])
        connection.execute(
            "INSERT INTO published SELECT ?, ? FROM lanes WHERE id = ? AND kept",
            (first, now_ms, found),
        )
    return found


def last_of(connection: sqlite3.Connection, lane: str, source: str) -> int:
    """Return the highest number that a source has published on a lane, 0 for none."""
    row = _last_of(connection, lane_id(connection, lane), source)
    return int(row[0]) if row else 0


def _last_of(connection: sqlite3.Connection, lane: int, name: str) -> Any:
    known = "SELECT last_seq FROM publishers WHERE lane_id = ? AND name = ?"
    return connection.execute(known, (lane, name)).fetchone()


def _repeated(connection: sqlite3.Connection, lane: int, source: Source) -> int:
    """Count the bodies that this source has published before, and remember the others.

    Raises TaskConflict where another publisher has taken its place.
    """
    if not source.numbers:
        return 0
    row = _last_of(connection, lane, source.name)
    refuse_second(source, int(row[0]) if row else 0)
    connection.execute(
        "INSERT INTO publishers VALUES (?1, ?2, ?3) "
        "ON CONFLICT DO UPDATE SET last_seq = max(last_seq, ?3)",
        (lane, source.name, source.numbers[-1]),
    )
    return bisect_right(source.numbers, row[0]) if row else 0


def _make_room(connection: sqlite3.Connection, lane: int, count: int, due_at_ms: int) -> int:
    """Return the id of the first of `count` new messages; with a due time they wait for it."""
    if not due_at_ms:
        return _grow(connection, lane, count, 0)[0] - count + 1
    first = _grow(connection, lane, 0, count)[1] - count + 1
    _wait(connection, lane, due_at_ms, range(first, first + count))
    return first


def _grow(connection: sqlite3.Connection, lane: int, fresh: int, delayed: int) -> tuple[int, int]:
    """Make room for so many more messages of each kind; return the last id of each kind."""
    connection.execute(
        "UPDATE lanes SET tail = tail + ?, delayed = delayed + ?, stamp = ? WHERE id = ?",
        (fresh, delayed, bump(connection, "stamp"), lane),
    )
    row = connection.execute("SELECT tail, delayed FROM lanes WHERE id = ?", (lane,)).fetchone()
    base = lane << LANE_SHIFT
    return base + int(row[0]), base + DELAYED + int(row[1])


def _insert(connection: sqlite3.Connection, first: int, bodies: Sequence[bytes]) -> None:
    """Insert all bodies in one statement: joined, with the places to cut (substr counts from 1)."""
    starts = accumulate(map(len, bodies), initial=1)
    cuts = [(start, len(body)) for start, body in zip(starts, bodies, strict=False)]
    connection.execute(
        "INSERT INTO messages (id, body) "
        "SELECT ?1 + key, substr(?2, json_extract(value, '$[0]'), json_extract(value, '$[1]')) "
        "FROM json_each(?3)",
        (first, b"".join(bodies), json.dumps(cuts)),
    )


def _wait(connection: sqlite3.Connection, lane: int, due_at_ms: int, ids: Iterable[int]) -> None:
    connection.execute(
        "INSERT INTO waiting (lane_id, due_at_ms, id) SELECT ?, ?, value FROM json_each(?)",
        (lane, due_at_ms, json.dumps(list(ids))),
    )


def ack(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete these messages, or keep them for a replay only. Those already acked are ignored."""
    gone = (json.dumps(ids),)
    connection.execute(
        "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?) "
        "WHERE NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.id = value >> ? AND kept))",
        (*gone, LANE_SHIFT),
    )
    connection.execute("DELETE FROM claims WHERE id IN (SELECT value FROM json_each(?))", gone)
    connection.execute(
        "DELETE FROM waiting WHERE (lane_id, due_at_ms, id) IN "
        "(SELECT value >> ?, 0, value FROM json_each(?))",
        (LANE_SHIFT, *gone),
    )


def hasten(connection: sqlite3.Connection, lane: str, later_than_ms: int) -> int:
    """Make a chunk of what is due after then due at once; return how many, 0 when none is left."""
    hastened = connection.execute(
        "UPDATE waiting SET due_at_ms = 0 WHERE (lane_id, due_at_ms, id) IN "
        "(SELECT lane_id, due_at_ms, id FROM waiting "
        "WHERE lane_id = (SELECT id FROM lanes WHERE name = ?) AND due_at_ms > ? LIMIT ?)",
        (lane, later_than_ms, HASTEN_CHUNK),
    ).rowcount
    if hastened:
        stamp = bump(connection, "stamp")
        connection.execute("UPDATE lanes SET stamp = ? WHERE name = ?", (stamp, lane))
    return hastened


def backlog(connection: sqlite3.Connection, lane: str) -> int:
    row = connection.execute(
        "SELECT tail - head "
        "+ (SELECT count(*) FROM waiting WHERE lane_id = lanes.id) "
        "+ (SELECT count(*) FROM claims WHERE id BETWEEN lanes.id << ?2 AND "
        "(lanes.id + 1 << ?2) - 1) FROM lanes WHERE name = ?1",
        (lane, LANE_SHIFT),
    ).fetchone()
    return int(row[0]) if row else 0


def unacked(
    connection: sqlite3.Connection, lane: str, after: int, most: int
) -> list[tuple[int, bytes]]:
    """Return the first messages of a lane behind this id that are not acked, by their ids."""
    row = connection.execute(
        "SELECT id, kept, head, tail FROM lanes WHERE name = ?", (lane,)
    ).fetchone()
    if row is None:
        return []
    found, kept, head, tail = row
    base, last = span(found)
    wanted = "SELECT id, body FROM messages WHERE id BETWEEN ? AND ? {which} ORDER BY id LIMIT ?"
    ends = (max(after + 1, base), last)
    if not kept:  # what is acked is not there
        return connection.execute(wanted.format(which=""), (*ends, most)).fetchall()
    which = (
        "AND (id BETWEEN ? AND ? OR EXISTS (SELECT 1 FROM claims WHERE claims.id = messages.id) "
        "OR id IN (SELECT id FROM waiting WHERE lane_id = ?))"
    )
    fresh = (base + head + 1, base + tail)
    given = (*ends, *fresh, found, most)
    return connection.execute(wanted.format(which=which), given).fetchall()


def span(lane: int) -> tuple[int, int]:
    return lane << LANE_SHIFT, (lane + 1 << LANE_SHIFT) - 1


def stamped_after(connection: sqlite3.Connection, stamp: int) -> tuple[int, list[int]]:
    """Return the newest stamp, and the lanes that got something after `stamp`."""
    row = connection.execute(
        "SELECT (SELECT value FROM counters WHERE name = 'stamp'), json_group_array(id) "
        "FROM lanes WHERE stamp > ?",
        (stamp,),
    ).fetchone()
    return row[0], json.loads(row[1])


def drop_lane_now(connection: sqlite3.Connection, lane: int) -> None:
    """Take the lane away at once. Its messages are swept later, in chunks."""
    connection.execute("DELETE FROM lanes WHERE id = ?", (lane,))
    connection.execute("DELETE FROM readers WHERE lane_id = ?", (lane,))
    connection.execute("DELETE FROM publishers WHERE lane_id = ?", (lane,))
    connection.execute("DELETE FROM published WHERE first BETWEEN ? AND ?", span(lane))
    connection.execute("INSERT INTO dropped VALUES (?)", (lane,))


def sweep(connection: sqlite3.Connection) -> bool:
    """Delete a chunk of the messages of dropped lanes. False when nothing is left."""
    row = connection.execute("SELECT lane_id FROM dropped LIMIT 1").fetchone()
    if row is None:
        return False
    lane = row[0]
    swept = connection.execute(
        "DELETE FROM messages WHERE id IN "
        "(SELECT id FROM messages WHERE id BETWEEN ? AND ? LIMIT ?)",
        (*span(lane), DROP_CHUNK),
    ).rowcount
    swept += connection.execute(
        "DELETE FROM waiting WHERE (lane_id, due_at_ms, id) IN "
        "(SELECT lane_id, due_at_ms, id FROM waiting WHERE lane_id = ? LIMIT ?)",
        (lane, DROP_CHUNK),
    ).rowcount
    if not swept:
        connection.execute("DELETE FROM claims WHERE id BETWEEN ? AND ?", span(lane))
        connection.execute("DELETE FROM dropped WHERE lane_id = ?", (lane,))
    return True


class ClaimRequest(NamedTuple):
    """A reader that asks for at most so many messages of its lane."""

    reader_id: int
    lane_id: int
    lane: str
    most: int


class ClaimedBatch(NamedTuple):
    """The messages that one reader got.

    `more` says to look again at once, else `due_at_ms` says when something comes due.
    """

    reader_id: int
    taken: list[Taken]
    more: bool
    due_at_ms: int | None

    @property
    def is_left_out(self) -> bool:
        """True when there was no room for what the lane has."""
        return self.more and not self.taken


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

    def batch(self, bodies: Iterator[bytes]) -> ClaimedBatch:
        """Return what the reader gets, given all bodies from its own on."""
        lane = self.request.lane
        due = [Taken(next(bodies), lane, number) for _, _, number in self.due]
        fresh = [Taken(next(bodies), lane, number, is_first=True) for number in self.fresh]
        return ClaimedBatch(self.request.reader_id, [*due, *fresh], self.more, self.due_at_ms)

    def cut(self, count: int) -> _Pick:
        """Return the pick with no more than its first messages."""
        if count >= len(self.due) + len(self.fresh):
            return self
        fresh = self.fresh[: max(0, count - len(self.due))]
        head = self.head - len(self.fresh) + len(fresh)
        return self._replace(due=self.due[:count], fresh=fresh, head=head, more=True)


def register(connection: sqlite3.Connection, owner: str, lane: str) -> tuple[int, int]:
    """Add a reader of the lane; return its id and the lane's."""
    found = lane_id(connection, lane)
    connection.execute("INSERT OR IGNORE INTO owners (name) VALUES (?)", (owner,))
    new = "INSERT INTO readers (owner, lane_id) VALUES (?, ?)"
    cursor = connection.execute(new, (owner, found))
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
    return [pick.batch(bodies) for pick in picks]


def _look(
    connection: sqlite3.Connection, requests: Sequence[ClaimRequest]
) -> dict[int, tuple[int, int, int | None]]:
    """Return head, tail and next due time of each lane that has anything."""
    rows = json_of(
        connection,
        "SELECT json_group_array(json_array(id, head, tail, due_at_ms)) FROM ("
        "SELECT lanes.id AS id, head, tail, "
        "(SELECT min(due_at_ms) FROM waiting WHERE lane_id = lanes.id) AS due_at_ms "
        "FROM json_each(?) AS wanted CROSS JOIN lanes ON lanes.id = wanted.value) "
        "WHERE tail > head OR due_at_ms IS NOT NULL",
        (json.dumps([request.lane_id for request in requests]),),
    )
    return {lane: (head, tail, due) for lane, head, tail, due in rows}


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
    rows = json_of(
        connection,
        "SELECT json_group_array(json_array(lane_id, due_at_ms, id)) FROM ("
        "SELECT lane_id, due_at_ms, id FROM waiting WHERE lane_id = ? AND due_at_ms <= ? "
        "ORDER BY due_at_ms, id LIMIT ?)",
        (request.lane_id, now_ms, request.most),
    )
    return [tuple(row) for row in rows]


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
    wanted = (
        "SELECT json_group_array(length(body)) FROM json_each(?) AS one "
        "CROSS JOIN messages ON messages.id = one.value"
    )
    ids = [number for pick in picks for number in pick.ids]
    return list(json_of(connection, wanted, (json.dumps(ids),)))


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
    _release(connection, _CLAIMED_BY_READER, *span(lane_id), reader_id)
    connection.execute("DELETE FROM readers WHERE id = ?", (reader_id,))


def give_back_all(connection: sqlite3.Connection, owner: str) -> None:
    """Give back for all readers of an owner that ends, or has died."""
    _release(connection, _CLAIMED_BY_OWNER, owner)
    connection.execute("DELETE FROM readers WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owners WHERE name = ?", (owner,))
    connection.execute("DELETE FROM beats WHERE owner NOT IN (SELECT name FROM owners)")


def take_from_frozen(connection: sqlite3.Connection, last: OwnerBeat) -> bool:
    """Give back for an owner that is frozen. False, with nothing done, when it has beaten since.

    Its readers stay: they go on when it does, and are not counted as reading until then.
    """
    if not find_frozen(connection, last):
        return False
    _release(connection, _CLAIMED_BY_OWNER, last.owner)
    return True


_CLAIMED_BY_READER = (
    "SELECT json_group_array(id) FROM claims WHERE id BETWEEN ? AND ? AND reader_id = ?"
)
_CLAIMED_BY_OWNER = (
    "SELECT json_group_array(id) FROM claims "
    "WHERE reader_id IN (SELECT id FROM readers WHERE owner = ?)"
)


def _release(connection: sqlite3.Connection, claimed: str, *values: str | int) -> None:
    """Move the messages that `claimed` finds from `claims` to `waiting`, due at once."""
    [ids] = connection.execute(claimed, values).fetchone()
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
    drop_lane_now(connection, row[0])
    return True


def _is_read(connection: sqlite3.Connection, folder: Path, lane_id: int) -> bool:
    rows = connection.execute(
        "SELECT DISTINCT owner FROM readers WHERE lane_id = ? "
        "AND owner NOT IN (SELECT owner FROM beats WHERE at_ms = 0)",
        (lane_id,),
    )
    return any(is_alive(folder, owner) for (owner,) in rows.fetchall())
