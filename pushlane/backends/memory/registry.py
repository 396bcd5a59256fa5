"""The registry port in memory: tasks by id, and the counts of each.

A task is kept as its stored bytes, as in every store: so what a newer version wrote, or what is
damaged, is met here too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from pushlane.backends.cells import check_fence
from pushlane.backends.memory.claims import MemoryCells
from pushlane.backends.memory.shared import Bell, LockAndClock, MemoryPort, one_step, pop_over
from pushlane.backends.ports import (
    PAGE,
    Changes,
    Edit,
    Fence,
    FoundTasks,
    TaskPage,
    TaskQuery,
    number_of,
)
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Moved, Progress, Span, State, Task, Weights
from pushlane.model.due import QUARTER_MS, PutOff, joined
from pushlane.model.reasons import Reasons, counted_as, has_failed
from pushlane.model.task_bytes import (
    Glimpse,
    Understood,
    decode,
    encode,
    encode_weights,
    glimpse,
    read_or_id,
    refuse_readable,
)
from pushlane.model.task_changes import check_forgettable
from pushlane.util.texts import MOST_NAMED, ambiguous_task, unknown_task

_KEPT_MS = 24 * 3600 * 1000
_NEAREST_OF = 2_000
_STATES = frozenset(State)


class _Row(NamedTuple):
    """A task as it is stored, what can be read of it in any case, and its place by age."""

    number: int
    version: int
    seen: Glimpse
    body: bytes

    def task(self) -> Task:
        return decode(self.seen.id, self.body)

    def may_be(self, states: Sequence[State]) -> bool:
        """Return whether it is in one of these states, or in one that is not known."""
        return not states or self.seen.state in states or self.seen.state not in _STATES


class _Counts:
    """What is counted of one task. Once `faded`, its seqs are forgotten and its counts stay."""

    def __init__(self) -> None:
        self.seqs: set[int] = set()
        self.moved: set[int] = set()
        self.by_kind: Counter[Kind] = Counter()
        self.failed = 0
        self.reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.faded = False

    def record(self, one: Finished) -> None:
        new = set() if self.faded else set(one.seqs) - self.seqs
        self.seqs |= new
        self.by_kind[one.kind] += len(new)
        if new and one.reason:
            self.failed += len(new) if has_failed(one) else 0
            counts = self.reasons[one.kind]
            counts[counted_as(one.reason, counts)] += len(new)

    def progress(self, task_id: str) -> Progress:
        kinds = self.by_kind
        ended = (kinds[Kind.DELIVERED], kinds[Kind.DEAD], kinds[Kind.EXPIRED], kinds[Kind.DROPPED])
        return Progress(task_id, *ended, failed=self.failed)

    def gone(self, span: Span) -> int:
        marked = self.seqs | self.moved if span.moves else self.seqs
        return sum(1 << one - span.first for one in marked if span.first <= one <= span.last)


_NOTHING = _Counts()


class MemoryRegistry(MemoryPort):
    """See `backends.ports.Registry`. Fences are those of `leases`."""

    def __init__(self, shared: LockAndClock, leases: MemoryCells) -> None:
        super().__init__(shared)
        self._leases = leases
        self._tasks: dict[str, _Row] = {}  # by id, in the order of their adds
        self._by_key: dict[str, str] = {}
        self._counts: dict[str, _Counts] = {}
        self._put_offs: dict[tuple[str, str, int], PutOff] = {}
        self._forgotten: dict[str, int] = {}  # the version at which each task was
        self._fading: dict[str, int] = {}  # when the seqs of a task go, in Unix ms
        self._weights = Weights()
        self._version = 1
        self._added = 0
        self._news = Bell()
        self._understood = Understood()

    @one_step
    def add(self, task: Task) -> Task:
        if task.key in self._by_key:
            return self._tasks[self._by_key[task.key]].task()
        return self._store(task)

    @one_step
    def get(self, task_id: str) -> Task:
        return self._find(task_id)

    @one_step
    def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        self._check(fence)
        task = self._find(task_id)
        edited = edit(task)
        return task if edited == task else self._store(edited)

    @one_step
    def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        self._check(fence)
        if row := self._tasks.get(task_id):
            check_forgettable(row.task())
            self._remove(row)
        return row is not None

    @one_step
    def discard(self, task_id: str) -> bool:
        if row := self._tasks.get(task_id):
            refuse_readable(task_id, row.body)
            self._remove(row)
        return row is not None

    @one_step
    def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        before = number_of(after) if after else self._added + 1
        newest = (row for row in reversed(self._tasks.values()) if row.number < before)
        rows = list(islice((row for row in newest if row.may_be(query.states)), most))
        last = str(rows[-1].number) if len(rows) == most else ""
        found = self._read(rows)
        tasks = [task for task in found.tasks if query.fits(task)]
        places = [str(self._tasks[task.id].number) for task in tasks]
        return TaskPage(tasks, last, places, found.unread)

    @one_step
    def some(self, task_ids: Sequence[str]) -> FoundTasks:
        rows = [self._tasks[one] for one in dict.fromkeys(task_ids) if one in self._tasks]
        unknown = [one for one in task_ids if one not in self._tasks]
        return self._read(rows)._replace(forgotten=unknown)

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self.some(task_ids)

    @one_step
    def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        over = [one for one in self._tasks.values() if not one.seen.is_active]
        old = [one for one in over if one.seen.finished_at_ms < before_ms]
        old.sort(key=lambda one: one.seen.finished_at_ms)
        return self._read(old[skip : skip + most])

    async def tidy(self) -> None:
        """Do nothing: no earlier version has written here."""

    async def keep_up(self) -> None:
        """Do nothing: nothing is written past this store."""

    @one_step
    def weights(self) -> Weights:
        return self._weights

    @one_step
    def set_weights(self, weights: Weights, over: Weights | None = None) -> bool:
        encode_weights(weights)  # refuses what could not be read back
        if over is not None and self._weights != over:
            return False
        self._weights = weights
        self._changed()
        return True

    async def changes(self, since: int, timeout_s: float) -> Changes:
        changes, news = await self._look(since)
        try:
            async with asyncio.timeout(timeout_s):
                while since and changes.version <= since:
                    await news
                    changes, news = await self._look(since)
        except TimeoutError:
            return Changes(since, [], changes.weights)
        finally:
            news.cancel()
        return changes

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    @one_step
    def record(self, finished: Sequence[Finished]) -> list[Progress]:
        for one in finished:
            self._counts_of(one.task_id).record(one)
        return self._progress(dict.fromkeys(one.task_id for one in finished))

    @one_step
    def progress(self, task_ids: Sequence[str]) -> list[Progress]:
        return self._progress(task_ids)

    @one_step
    def reasons(self, task_ids: Sequence[str]) -> list[Reasons]:
        return [Reasons.of(one, self._counts.get(one, _NOTHING).reasons) for one in task_ids]

    @one_step
    def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        known = self._counts.get(task_id, _NOTHING).seqs
        return [seq in known for seq in seqs]

    @one_step
    def move(self, moved: Sequence[Moved]) -> None:
        for one in moved:
            counts = self._counts_of(one.task_id)
            if not counts.faded:
                counts.moved.update(one.seqs)

    @one_step
    def gone(self, spans: Sequence[Span]) -> list[int]:
        return [self._counts.get(span.task_id, _NOTHING).gone(span) for span in spans]

    @one_step
    def put_off(self, put_offs: Sequence[PutOff]) -> None:
        for one in put_offs:
            key = (one.task_id, one.reason, one.quarter)
            known = self._put_offs.get(key)
            self._put_offs[key] = one if known is None else joined(known, one)
        oldest = self._now_ms // QUARTER_MS - 1
        passed = [key for key in self._put_offs if key[2] < oldest]
        for key in passed:
            del self._put_offs[key]

    @one_step
    def put_offs(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        notes = self._put_offs.values()
        return [[one for one in notes if one.task_id == task_id] for task_id in task_ids]

    @one_step
    def clear_put_offs(self, task_id: str) -> None:
        for key in [key for key in self._put_offs if key[0] == task_id]:
            del self._put_offs[key]

    async def counted_since_ms(self) -> int:
        """Return 0: counts are lost only with the tasks themselves."""
        return 0

    def _check(self, fence: Fence | None) -> None:
        if fence is not None:
            check_fence(fence, self._leases.numbers.get(fence.lease))

    def _find(self, word: str) -> Task:
        if row := self._tasks.get(self._by_key.get(word, word)):
            return row.task()
        named = [one for one in self._tasks.values() if word and one.seen.name == word]
        if len(named) == 1:
            return named[0].task()
        if named:
            newest = named[::-1][: MOST_NAMED + 1]
            raise ambiguous_task(word, [read_or_id(one.seen.id, one.body) for one in newest])
        raise unknown_task(word, self._words())

    def _words(self) -> Iterator[str]:
        """Yield the ids, keys and names of the latest tasks."""
        for row in islice(reversed(self._tasks.values()), _NEAREST_OF):
            yield from filter(None, (row.seen.id, row.seen.key, row.seen.name))

    def _store(self, task: Task) -> Task:
        task = replace(task, version=self._version + 1)
        body = encode(task)
        known = self._tasks.get(task.id)
        self._added += known is None
        number = known.number if known else self._added
        self._tasks[task.id] = _Row(number, task.version, glimpse(body), body)
        if task.key:
            self._by_key[task.key] = task.id
        if task.lane_dropped:
            self._fade(task.id)
        self._changed()
        return task

    def _remove(self, row: _Row) -> None:
        task_id = row.seen.id
        del self._tasks[task_id]
        self._by_key.pop(row.seen.key, None)
        self._counts.pop(task_id, None)
        self._fading.pop(task_id, None)
        for key in [key for key in self._put_offs if key[0] == task_id]:
            del self._put_offs[key]
        self._forgotten[task_id] = self._version + 1
        self._changed()

    def _changed(self) -> None:
        self._version += 1
        self._sweep()
        self._news.ring()

    @one_step
    def _look(self, since: int) -> tuple[Changes, asyncio.Future[None]]:
        """Return what is newer, and a future that is done when there is more."""
        rows = [row for row in self._tasks.values() if row.version > since]
        if since:
            rows.sort(key=lambda row: row.version)
        else:
            rows = [row for row in rows if row.seen.is_active]
        tasks, unread, _ = self._read(rows)
        gone = [one for one, version in self._forgotten.items() if since and version > since]
        changes = Changes(self._version, tasks, self._weights, unread, gone)
        return changes, self._news.next_ring()

    def _read(self, rows: Iterable[_Row]) -> FoundTasks:
        return FoundTasks(*self._understood.read((row.seen.id, row.body) for row in rows))

    def _progress(self, task_ids: Iterable[str]) -> list[Progress]:
        return [self._counts.get(one, _NOTHING).progress(one) for one in task_ids]

    def _counts_of(self, task_id: str) -> _Counts:
        """Return a task's counts to change. Those of a task that is not there go in a day."""
        if task_id not in self._tasks:
            self._fade(task_id)
        return self._counts.setdefault(task_id, _Counts())

    def _fade(self, task_id: str) -> None:
        """Let the task's seqs go in a day, with its counts if it is gone by then."""
        self._fading.setdefault(task_id, self._now_ms + _KEPT_MS)

    def _sweep(self) -> None:
        now = self._now_ms
        for task_id in pop_over(self._fading, lambda at_ms: at_ms <= now):
            if task_id not in self._tasks:
                self._counts.pop(task_id, None)
            elif counts := self._counts.get(task_id):
                counts.seqs.clear()
                counts.moved.clear()
                counts.faded = True
