"""The registry port on SQLite: the tasks, and how far each is.

Of each task the distinct seqs that ended are counted, by how they did: one bit a seq, so repeats
count once, as their first outcome. Pages of seqs that only left their task's first lane lie beside
those of the finished ones, numbered from -1 downwards. When the pages of a task have faded, its
counts stay as they are.

A change is durable when it returns, and reaches other processes by polling SQLite's counter of
changes. Counts survive a crash of the process; a power cut may take the last ones back together
with the acks that followed them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection

from msgspec.structs import astuple

from pushlane.backends.embedded.database import json_of, reads, writes
from pushlane.backends.embedded.tasks import EmbeddedTasks, fade, has_faded
from pushlane.backends.queries import finished_seqs
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Moved, Progress, Span, now_ms
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.reasons import Reasons, counted_as, has_failed

PAGE_SEQS = 8192
"""Seqs a page: 1 KiB at most, which SQLite keeps in one place; stored as far as it is used."""

_COUNTED = """
SELECT task_id, delivered, dead, expired, dropped, failed FROM progress
WHERE task_id IN (SELECT value FROM json_each(?))
"""
_REASONS = """
SELECT task_id, deaths, reasons FROM progress WHERE task_id IN (SELECT value FROM json_each(?))
"""
_MARKED = """
SELECT json_group_array(json_array(task_id, page, hex(bits)))
FROM json_each(?) AS wanted CROSS JOIN seen
ON task_id = json_extract(wanted.value, '$[0]') AND page = json_extract(wanted.value, '$[1]')
"""
_ADD = {
    Kind.DELIVERED: "UPDATE progress SET delivered = delivered + ? WHERE task_id = ?",
    Kind.DEAD: "UPDATE progress SET dead = dead + ? WHERE task_id = ?",
    Kind.EXPIRED: "UPDATE progress SET expired = expired + ? WHERE task_id = ?",
    Kind.DROPPED: "UPDATE progress SET dropped = dropped + ? WHERE task_id = ?",
}
_ADD_PUT_OFF = """
INSERT INTO put_off VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, reason, quarter) DO UPDATE SET
    pushes = pushes + excluded.pushes,
    zone = CASE WHEN excluded.first_ms < first_ms THEN excluded.zone ELSE zone END,
    first_ms = min(first_ms, excluded.first_ms),
    last_ms = max(last_ms, excluded.last_ms)
"""
_PUT_OFFS = """
SELECT task_id, reason, quarter, pushes, first_ms, last_ms, zone FROM put_off
WHERE task_id IN (SELECT value FROM json_each(?))
"""


class EmbeddedRegistry(EmbeddedTasks):
    """See `backends.ports.Registry`: the counts of the tasks, beside the tasks themselves."""

    @writes
    def record(self, store: Connection, finished: Sequence[Finished]) -> list[Progress]:
        for one in finished:
            pages = _by_page(one.seqs).items()
            if new := sum(_mark(store, one.task_id, page, places) for page, places in pages):
                _count(store, one.task_id, one.kind, new)
                if one.reason:
                    _count_reason(store, one, new)
        return _progress(store, list(dict.fromkeys(one.task_id for one in finished)))

    @reads
    def progress(self, store: Connection, task_ids: Sequence[str]) -> list[Progress]:
        return _progress(store, task_ids)

    @reads
    def reasons(self, store: Connection, task_ids: Sequence[str]) -> list[Reasons]:
        known = _reasons(store, task_ids)
        return [Reasons.of(task_id, known.get(task_id, {})) for task_id in task_ids]

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        return await finished_seqs(self, task_id, seqs)

    async def move(self, moved: Sequence[Moved]) -> None:
        if moved:
            await self._mark_moved(moved)

    @writes
    def _mark_moved(self, store: Connection, moved: Sequence[Moved]) -> None:
        for one in moved:
            for page, places in _by_page(one.seqs).items():
                _mark(store, one.task_id, _of_moves(page), places)

    @reads
    def gone(self, store: Connection, spans: Sequence[Span]) -> list[int]:
        wanted = {(span.task_id, page) for span in spans for page in _pages(span)}
        bits = {
            (task_id, page): int.from_bytes(bytes.fromhex(found), "little")
            for task_id, page, found in json_of(store, _MARKED, (json.dumps(list(wanted)),))
        }
        return [_gone_of(span, bits) for span in spans]

    @writes
    def put_off(self, store: Connection, put_offs: Sequence[PutOff]) -> None:
        for one in put_offs:
            store.execute(_ADD_PUT_OFF, astuple(one))
        passed = now_ms() // QUARTER_MS - 1
        store.execute("DELETE FROM put_off WHERE quarter < ?", (passed,))

    @writes
    def clear_put_offs(self, store: Connection, task_id: str) -> None:
        store.execute("DELETE FROM put_off WHERE task_id = ?", (task_id,))

    @reads
    def put_offs(self, store: Connection, task_ids: Sequence[str]) -> list[list[PutOff]]:
        by_task: dict[str, list[PutOff]] = {task_id: [] for task_id in task_ids}
        for row in store.execute(_PUT_OFFS, (json.dumps(task_ids),)):
            by_task[row[0]].append(PutOff(*row))
        return [by_task[task_id] for task_id in task_ids]

    async def counted_since_ms(self) -> int:
        """Return 0: the counts lie in the store beside the tasks, and are lost only with them."""
        return 0


def _progress(store: Connection, task_ids: Sequence[str]) -> list[Progress]:
    """Return the progress of these tasks, in this order; zeros where nothing has finished."""
    rows = store.execute(_COUNTED, (json.dumps(task_ids),))
    known = {row[0]: Progress(*row) for row in rows}
    return [known.get(task_id, Progress(task_id)) for task_id in task_ids]


def _reasons(store: Connection, task_ids: Sequence[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Return why pushes of these tasks were not delivered, by task, outcome and reason."""
    rows = store.execute(_REASONS, (json.dumps(task_ids),))
    return {
        task_id: {Kind.DEAD: json.loads(deaths), **json.loads(reasons)}
        for task_id, deaths, reasons in rows
    }


def _gone_of(span: Span, bits: Mapping[tuple[str, int], int]) -> int:
    marked = 0
    for page in range(span.first // PAGE_SEQS, span.last // PAGE_SEQS + 1):
        here = bits.get((span.task_id, page), 0)
        if span.moves:
            here |= bits.get((span.task_id, _of_moves(page)), 0)
        offset = page * PAGE_SEQS - span.first
        marked |= here << offset if offset >= 0 else here >> -offset
    return marked & ((1 << (span.last - span.first + 1)) - 1)


def _pages(span: Span) -> Iterator[int]:
    for page in range(span.first // PAGE_SEQS, span.last // PAGE_SEQS + 1):
        yield page
        if span.moves:
            yield _of_moves(page)


def _of_moves(page: int) -> int:
    return -1 - page


def _by_page(seqs: Iterable[int]) -> dict[int, list[int]]:
    pages: defaultdict[int, list[int]] = defaultdict(list)
    for seq in seqs:
        pages[seq // PAGE_SEQS].append(seq % PAGE_SEQS)
    return pages


def _mark(store: Connection, task_id: str, page: int, places: list[int]) -> int:
    row = store.execute(
        "SELECT bits FROM seen WHERE task_id = ? AND page = ?", (task_id, page)
    ).fetchone()
    if row is None and has_faded(store, task_id):
        return 0
    bits = bytearray(row[0] if row else b"")
    bits.extend(bytes(max(0, (max(places) >> 3) + 1 - len(bits))))
    new = 0
    for place in places:
        mask = 1 << (place & 7)
        if not bits[place >> 3] & mask:
            bits[place >> 3] |= mask
            new += 1
    if new:
        store.execute("REPLACE INTO seen VALUES (?, ?, ?)", (task_id, page, bytes(bits)))
    return new


def _count(store: Connection, task_id: str, kind: Kind, new: int) -> None:
    is_first = "INSERT OR IGNORE INTO progress (task_id) VALUES (?)"
    if store.execute(is_first, (task_id,)).rowcount:
        is_kept = store.execute("SELECT 1 FROM tasks WHERE id = ?", (task_id,)).fetchone()
        if is_kept is None:
            fade(store, task_id)
    store.execute(_ADD[kind], (new, task_id))


def _count_reason(store: Connection, one: Finished, new: int) -> None:
    by_kind = _reasons(store, [one.task_id])[one.task_id]
    counts = Counter(by_kind.get(one.kind, {}))
    counts[counted_as(one.reason, counts)] += new
    by_kind[one.kind] = counts
    deaths = by_kind.pop(Kind.DEAD)  # in the column that older processes use, too
    failed = new if has_failed(one) else 0
    store.execute(
        "UPDATE progress SET failed = failed + ?, deaths = ?, reasons = ? WHERE task_id = ?",
        (failed, json.dumps(deaths), json.dumps(by_kind), one.task_id),
    )
