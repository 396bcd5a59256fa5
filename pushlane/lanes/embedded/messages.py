"""Changes lanes and messages, as jobs on the store: open, publish, ack, replay, drop, sweep.

Each job runs inside one transaction and takes a set at a time (see `backends.embedded.database`). A
message is acked by deleting it, unless its lane keeps it; else only the drop of its lane deletes
it.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from pushlane.backends.embedded.schema import DELAYED, LANE_SHIFT, bump
from pushlane.core.errors import UnknownLane
from pushlane.core.ports import of_each
from pushlane.lanes.ports import Delayed, Source

DROP_CHUNK = 5000
REPLAY_PAGE = 1_000
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


def retained_since_ms(connection: sqlite3.Connection, lane: str) -> int | None:
    """Return 0 for a lane that keeps acked messages, since it has all; None for any other."""
    row = connection.execute("SELECT kept FROM lanes WHERE name = ?", (lane,)).fetchone()
    return 0 if row and row[0] else None


def lanes(connection: sqlite3.Connection) -> list[str]:
    row = connection.execute(
        "SELECT json_group_array(name) FROM (SELECT name FROM lanes ORDER BY id)"
    ).fetchone()
    return list(json.loads(row[0]))


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


def _repeated(connection: sqlite3.Connection, lane: int, source: Source) -> int:
    """Count the bodies that this source has published before, and remember the others."""
    row = connection.execute(
        "SELECT last_seq FROM publishers WHERE lane_id = ? AND name = ?", (lane, source.name)
    ).fetchone()
    if not source.numbers:
        return 0
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


def backlog(connection: sqlite3.Connection, lane: str) -> int:
    row = connection.execute(
        "SELECT tail - head "
        "+ (SELECT count(*) FROM waiting WHERE lane_id = lanes.id) "
        "+ (SELECT count(*) FROM claims WHERE id BETWEEN lanes.id << ?2 AND "
        "(lanes.id + 1 << ?2) - 1) FROM lanes WHERE name = ?1",
        (lane, LANE_SHIFT),
    ).fetchone()
    return int(row[0]) if row else 0


def delayed(connection: sqlite3.Connection, lane: str, now_ms: int) -> Delayed:
    """Return which messages of the lane wait for their delay."""
    row = connection.execute(
        "SELECT count(*), min(due_at_ms), max(due_at_ms) FROM waiting "
        "WHERE lane_id = (SELECT id FROM lanes WHERE name = ?) AND due_at_ms > ?",
        (lane, now_ms),
    ).fetchone()
    return Delayed(row[0], row[1] or 0, row[2] or 0)


def published_since(
    connection: sqlite3.Connection, lane: str, since_ms: int
) -> list[tuple[int, int]]:
    """Return the first and last id of messages published since then, delayed ones apart.

    A lane that keeps nothing does not know the times of its messages: all of them are returned.
    """
    row = connection.execute("SELECT id, kept FROM lanes WHERE name = ?", (lane,)).fetchone()
    if row is None:
        return []
    first, last = span(row[0])
    halves = [(first, first + DELAYED - 1), (first + DELAYED, last)]
    if not row[1]:
        return halves
    wanted = "SELECT min(first) FROM published WHERE first BETWEEN ? AND ? AND at_ms >= ?"
    found = [connection.execute(wanted, (*half, since_ms)).fetchone()[0] for half in halves]
    return [(at, half[1]) for at, half in zip(found, halves, strict=True) if at is not None]


def page(connection: sqlite3.Connection, first: int, last: int) -> tuple[list[bytes], int]:
    """Return some messages from the first id on, acked or not, and the id to go on at."""
    rows = connection.execute(
        "SELECT id, body FROM messages WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
        (first, last, REPLAY_PAGE),
    ).fetchall()
    following = rows[-1][0] + 1 if len(rows) == REPLAY_PAGE else last + 1
    return [body for _, body in rows], following


def end_of(connection: sqlite3.Connection, lane: str) -> tuple[int, int]:
    """Return the ids of the last message without a delay, and of the last one with a delay."""
    row = connection.execute(
        "SELECT (id << ?2) + tail, (id << ?2) + ?3 + delayed FROM lanes WHERE name = ?1",
        (lane, LANE_SHIFT, DELAYED),
    ).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def is_past(connection: sqlite3.Connection, lane: str, end: tuple[int, int]) -> bool:
    """Return True when no message of either kind is left up to its end.

    Of a lane that keeps acked messages this says nothing.
    """
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM messages WHERE id BETWEEN lanes.id << ?2 AND ?4) "
        "OR EXISTS (SELECT 1 FROM messages WHERE id BETWEEN (lanes.id << ?2) + ?3 AND ?5) "
        "FROM lanes WHERE name = ?1",
        (lane, LANE_SHIFT, DELAYED, *end),
    ).fetchone()
    return not (row and row[0])


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


def drop_lane(connection: sqlite3.Connection, lane: int) -> None:
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
