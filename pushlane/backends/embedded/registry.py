"""The registry port on SQLite: tasks as rows, one version counter over all of them.

Of each task the distinct seqs that ended are counted, by how they did: one bit a seq, so repeats
count once, as their first outcome. Pages of seqs that only left their task's first lane lie beside
those of the finished ones, numbered from -1 downwards. When the pages of a task have faded, its
counts stay as they are.

A change is durable when it returns, and reaches other processes by polling SQLite's counter of
changes. Counts survive a crash of the process; a power cut may take the last ones back together
with the acks that followed them.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pushlane.backends.cells import check_fence
from pushlane.backends.embedded import tasks
from pushlane.backends.embedded.cells import last_number
from pushlane.backends.embedded.database import Database, StorePort, json_of
from pushlane.backends.embedded.tasks import fade, has_faded
from pushlane.backends.ports import PAGE, Changes, Fence, FoundTasks, TaskPage, TaskQuery
from pushlane.backends.queries import counted_as, finished_seqs
from pushlane.core.push import Kind
from pushlane.core.task import Edit, Finished, Moved, Progress, Span, Task, Weights, now_ms
from pushlane.model.due import PutOff
from pushlane.model.stop_rule import DEAD_ADDRESS, Deaths
from pushlane.model.task_bytes import Understood

PAGE_SEQS = 8192
"""Seqs a page: 1 KiB at most, which SQLite keeps in one place; stored as far as it is used."""


def record(connection: sqlite3.Connection, finished: Sequence[Finished]) -> list[Progress]:
    for one in finished:
        pages = _by_page(one.seqs).items()
        if new := sum(_mark(connection, one.task_id, page, places) for page, places in pages):
            _count(connection, one.task_id, one.kind, new)
            if one.reason:
                _count_deaths(connection, one.task_id, one.reason, new)
    return progress(connection, list(dict.fromkeys(one.task_id for one in finished)))


def progress(connection: sqlite3.Connection, task_ids: Sequence[str]) -> list[Progress]:
    """Return the progress of these tasks, in this order; zeros where nothing has finished."""
    rows = connection.execute(
        "SELECT task_id, delivered, dead, expired, dropped, failed FROM progress "
        "WHERE task_id IN (SELECT value FROM json_each(?))",
        (json.dumps(task_ids),),
    )
    known = {row[0]: Progress(*row) for row in rows}
    return [known.get(task_id, Progress(task_id)) for task_id in task_ids]


def deaths(connection: sqlite3.Connection, task_ids: Sequence[str]) -> list[Deaths]:
    """Return of what the dead pushes of these tasks died, in this order."""
    rows = connection.execute(
        "SELECT task_id, deaths FROM progress WHERE task_id IN (SELECT value FROM json_each(?))",
        (json.dumps(task_ids),),
    )
    known = {task_id: json.loads(by_reason) for task_id, by_reason in rows}
    return [Deaths.of(task_id, known.get(task_id, {})) for task_id in task_ids]


def move(connection: sqlite3.Connection, moved: Sequence[Moved]) -> None:
    """Mark these seqs as having left their task's first lane."""
    for one in moved:
        for page, places in _by_page(one.seqs).items():
            _mark(connection, one.task_id, _of_moves(page), places)


def gone(connection: sqlite3.Connection, spans: Sequence[Span]) -> list[int]:
    """Return the marked seqs of each span as a bit mask, bit n for `first + n`."""
    wanted = {(span.task_id, page) for span in spans for page in _pages(span)}
    rows = json_of(
        connection,
        "SELECT json_group_array(json_array(task_id, page, hex(bits))) "
        "FROM json_each(?) AS wanted CROSS JOIN seen "
        "ON task_id = json_extract(wanted.value, '$[0]') "
        "AND page = json_extract(wanted.value, '$[1]')",
        (json.dumps(list(wanted)),),
    )
    bits = {
        (task_id, page): int.from_bytes(bytes.fromhex(found), "little")
        for task_id, page, found in rows
    }
    return [_gone_of(span, bits) for span in spans]


def _gone_of(span: Span, bits: Mapping[tuple[str, int], int]) -> int:
    marked = 0
    for page in _pages(span):
        here = bits.get((span.task_id, page), 0)
        offset = max(page, _of_moves(page)) * PAGE_SEQS - span.first
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


def _mark(connection: sqlite3.Connection, task_id: str, page: int, places: list[int]) -> int:
    row = connection.execute(
        "SELECT bits FROM seen WHERE task_id = ? AND page = ?", (task_id, page)
    ).fetchone()
    if row is None and has_faded(connection, task_id):
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
        connection.execute("REPLACE INTO seen VALUES (?, ?, ?)", (task_id, page, bytes(bits)))
    return new


def _count(connection: sqlite3.Connection, task_id: str, kind: Kind, new: int) -> None:
    is_first = "INSERT OR IGNORE INTO progress (task_id) VALUES (?)"
    if connection.execute(is_first, (task_id,)).rowcount:
        is_kept = connection.execute("SELECT 1 FROM tasks WHERE id = ?", (task_id,)).fetchone()
        if is_kept is None:
            fade(connection, task_id)
    connection.execute(_ADD[kind], (new, task_id))


def _count_deaths(connection: sqlite3.Connection, task_id: str, reason: str, new: int) -> None:
    failed = 0 if reason == DEAD_ADDRESS else new
    [found] = deaths(connection, [task_id])
    counts = Counter(found.by_reason)
    counts[counted_as(reason, counts)] += new
    connection.execute(
        "UPDATE progress SET failed = failed + ?, deaths = ? WHERE task_id = ?",
        (failed, json.dumps(counts), task_id),
    )


_ADD = {
    Kind.DELIVERED: "UPDATE progress SET delivered = delivered + ? WHERE task_id = ?",
    Kind.DEAD: "UPDATE progress SET dead = dead + ? WHERE task_id = ?",
    Kind.EXPIRED: "UPDATE progress SET expired = expired + ? WHERE task_id = ?",
    Kind.DROPPED: "UPDATE progress SET dropped = dropped + ? WHERE task_id = ?",
}

T = TypeVar("T")


class EmbeddedRegistry(StorePort):
    """See `core.ports.Registry`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._news = asyncio.Event()
        self._watching = False
        self._understood = Understood()

    async def add(self, task: Task) -> Task:
        return await self._change(partial(tasks.add, task=task))

    async def get(self, task_id: str) -> Task:
        return await self._database.read(partial(tasks.find, word=task_id))

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        return await self._change(partial(tasks.change, word=task_id, edit=edit), fence)

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        look = partial(tasks.page, query=query, after=after, most=most, understood=self._understood)
        return await self._database.read(look)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        look = partial(tasks.some, task_ids=task_ids, understood=self._understood)
        return await self._database.read(look)

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self.some(task_ids)

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        look = partial(
            tasks.ended, before_ms=before_ms, most=most, skip=skip, understood=self._understood
        )
        return await self._database.read(look)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        return await self._change(partial(tasks.forget, task_id=task_id), fence)

    async def discard(self, task_id: str) -> bool:
        return await self._change(partial(tasks.discard, task_id=task_id))

    async def keep_up(self) -> None:
        """The file is the truth: there is nothing that it could lack."""

    async def tidy(self) -> None:
        """Each add is one transaction, and news go with it: there is nothing to drop."""

    async def weights(self) -> Weights:
        return await self._database.read(tasks.weights)

    async def set_weights(self, weights: Weights) -> None:
        await self._change(partial(tasks.set_weights, weights=weights))

    async def changes(self, since: int, timeout_s: float) -> Changes:
        self._watch()
        news, changes = self._news, await self._look(since)
        try:
            async with asyncio.timeout(timeout_s):
                while since and changes.version <= since:
                    await news.wait()
                    news, changes = self._news, await self._look(since)
        except TimeoutError:
            return Changes(since, [], changes.weights)
        return changes

    async def record(self, finished: Sequence[Finished]) -> list[Progress]:
        return await self._database.write(partial(record, finished=finished))

    async def progress(self, task_ids: Sequence[str]) -> list[Progress]:
        return await self._database.read(partial(progress, task_ids=task_ids))

    async def deaths(self, task_ids: Sequence[str]) -> list[Deaths]:
        return await self._database.read(partial(deaths, task_ids=task_ids))

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        return await finished_seqs(self, task_id, seqs)

    async def move(self, moved: Sequence[Moved]) -> None:
        if moved:
            await self._database.write(partial(move, moved=moved))

    async def put_off(self, put_offs: Sequence[PutOff]) -> None:
        job = partial(tasks.put_off, put_offs=put_offs, now_ms=now_ms())
        await self._database.write(job)

    async def put_offs(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        return await self._database.read(partial(tasks.found, task_ids=task_ids))

    async def gone(self, spans: Sequence[Span]) -> list[int]:
        return await self._database.read(partial(gone, spans=spans))

    async def counted_since_ms(self) -> int:
        """Return 0: the counts lie in the store beside the tasks, and are lost only with them."""
        return 0

    async def close(self) -> None:
        """Do nothing: the store is closed by whoever opened it."""

    async def _change(
        self, job: Callable[[sqlite3.Connection], T], fence: Fence | None = None
    ) -> T:
        def fenced(connection: sqlite3.Connection) -> T:
            if fence is not None:
                check_fence(fence, last_number(connection, fence.lease))
            return job(connection)

        answer = await self._database.write(fenced, durable=True)
        self._tell()
        return answer

    async def _look(self, since: int) -> Changes:
        return await self._database.read(
            partial(tasks.newer_than, since=since, understood=self._understood)
        )

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._database.on_change(self._tell)

    def _tell(self) -> None:
        """Wake all who wait; later callers wait for the next event."""
        self._news.set()
        self._news = asyncio.Event()
