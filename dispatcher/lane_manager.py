"""Which lanes exist and which are ready: follows the registry, opens and closes readers.

The only writer of the scheduler's membership. It never takes a message.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pushlane.dispatcher.backoff import Backoff, Backoffs, for_each, raise_first, whenever
from pushlane.dispatcher.lane import LaneInput, OpenLane
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.dispatcher.start_timer import StartTimer
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError, UnknownFormat, UnknownLane
from pushlane.lanes.naming import is_later, is_pool, own_lane, pool_lanes, task_of
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import Changes, LaneReader, OnReady
from pushlane.lanes.task import Level, State, Task
from pushlane.lanes.task_transitions import now_ms

log = logging.getLogger("pushlane.roster")

OPENERS = 16
_PATIENCE_S = 0.5
_LOOKUPS = 16
_FIRST_FEED_S = 0.05
_AGAIN_MS = 60_000
_ENDED_KEPT = 10_000
_APPLIED_AT_ONCE = 100
_SHARED = 2  # as if bundles were so small: many tasks that share a lane have one at hand, or a push
_RANK = {level: rank for rank, level in enumerate(Level)}


class _Opening(NamedTuple):
    """A reader to open: those that failed before come last, then high lanes first."""

    failed: bool
    rank: int
    turn: int
    lane: OpenLane
    inlet: LaneInput


class LaneManager:
    """Tasks and lanes as this process knows them, at most a second behind the registry.

    `wake` is called when a lane may have become ready; `on_task` when a task is new or changed;
    `fill` when a lane's reader has something; `on_unread` with the id of a task that only a newer
    version understands. `prefetch` is how many pushes of a lane may be at hand.
    """

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler[OpenLane],
        wake: Callable[[], None],
        on_task: Callable[[Task], None],
        fill: Callable[[OpenLane], None],
        on_unread: Callable[[str], None],
        prefetch: int,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._backend = backend
        self._fill = fill
        self._prefetch = prefetch
        self._scheduler = scheduler
        self._wake = wake
        self._on_task = on_task
        self._on_unread = on_unread
        self._schedule = StartTimer(clock_ms)
        self._clock_ms = clock_ms
        self._foreign: set[OpenLane] = set()
        self._opening: asyncio.PriorityQueue[_Opening] = asyncio.PriorityQueue()
        self._turn = itertools.count()
        self._strangers: dict[str, list[tuple[OpenLane, Held]]] = {}
        self._asked = asyncio.Event()
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._backoffs = Backoffs(log)
        self._version = 0
        self.tasks: dict[str, Task] = {}
        self.lanes: dict[str, OpenLane] = {}
        self.synced = asyncio.Event()

    def find(self, task_id: str) -> Task | None:
        """The task, if this process has heard of it."""
        return self.tasks.get(task_id) or self._ended.get(task_id)

    def find_here(self, task_id: str) -> Task | None:
        """The task, if this process has heard of it and its lane is not left to others."""
        task = self.find(task_id)
        lane = self.lanes.get(task.lane) if task is not None else None
        return None if lane is not None and lane.foreign else task

    def open_pool(self, count: int) -> None:
        """Read every lane that low tasks share, with its later lane."""
        for name in pool_lanes(count):
            self._open(name, Level.LOW, quota=1)

    async def follow(self) -> None:
        """Apply what changes in the registry, for ever."""
        self._version = 0
        await Backoff(log, "the broker").until_done(self._open_old_pool)
        backoff = Backoff(log, "the registry")
        while True:
            changes = await backoff.until_done(self._changes)
            await self._apply(changes)
            self._version = changes.version
            self.synced.set()

    async def _open_old_pool(self) -> None:
        """Something may be left on lanes from when the pool was larger."""
        for name in await self._backend.broker.lanes():
            if is_pool(name) and not is_later(name) and name not in self.lanes:
                self._open(name, Level.LOW, quota=1)

    async def _changes(self) -> Changes:
        return await self._backend.registry.changes(self._version, timeout_s=1.0)

    async def _apply(self, changes: Changes) -> None:
        if changes.weights.by_level() != self._scheduler.weights():
            self._scheduler.set_weights(changes.weights)
        for some in paged(changes.tasks, _APPLIED_AT_ONCE):
            for task in some:
                self.apply(task)
            await asyncio.sleep(0)
        for task_id in changes.unread:
            self._leave_task(task_id)
        for task_id in changes.forgotten:
            forgotten = _forgotten(task_id)
            self._end(forgotten)
            self._on_task(forgotten)
        self._try_again()
        self._wake()

    def apply(self, task: Task) -> None:
        """Take a newer value of a task into account; an older one changes nothing."""
        known = self.find(task.id)
        if known is not None and known.version > task.version:
            return
        if task.state.is_terminal:
            self._end(task)
        else:
            self.tasks[task.id] = task
            self._open_shared(task)
            if not task.pooled and task.state is not State.SUBMITTED:
                self._place(task)
        self._on_task(task)

    def _leave_task(self, task_id: str) -> None:
        """Only a newer version understands the task: it, and its lane, are left to that."""
        self.tasks.pop(task_id, None)
        self._ended.pop(task_id, None)
        if lane := self.lanes.get(own_lane(task_id)):
            self._retire(lane)
        self._on_unread(task_id)

    def _open_shared(self, task: Task) -> None:
        """A task may have begun on a pool lane that by this process's settings there is none of."""
        for name in (task.first_lane, task.lane):
            if is_pool(name) and name not in self.lanes:
                self._open(name, Level.LOW, quota=1)

    def _place(self, task: Task) -> None:
        """Give a task's own lane its level, its quota, and leave to move unless it has to wait."""
        lane = self.lanes.get(task.lane)
        if lane is None:
            is_home = task.lane == (task.first_lane or task.lane)
            lane = self._open(task.lane, task.level, task.quota, task.bundle if is_home else 1)
        elif lane.level is not task.level:
            self._scheduler.remove(lane)
            lane.set_task(task.level, lane.total, held=lane.held)
            self._scheduler.add(lane, task.level, task.quota)
        if task.has_later and not lane.later.wanted:
            self._read(lane, lane.later)
        self._scheduler.set_quota(lane, task.quota)
        total = (task.total or 0) if task.lane == (task.first_lane or task.lane) else 0
        held = self._schedule.waits(task) or task.state is State.PAUSED
        lane.set_task(task.level, total, held=held)
        self._refresh(lane)

    async def run_starts(self) -> None:
        """Let scheduled tasks move when their time has come, for ever."""
        await self._schedule.run(self._start)

    def _start(self, task_id: str) -> None:
        if task := self.tasks.get(task_id):
            log.info("task %s starts", task_id, extra={"action": "task_started"})
            self._place(task)
            self._wake()

    def _open(self, name: str, level: Level, quota: int, bundle: int = _SHARED) -> OpenLane:
        """`bundle` is how many pushes a message has at most; on a later lane each is alone."""
        depth = max(2, self._prefetch // max(1, bundle))
        lane = self.lanes[name] = OpenLane(name, level, depth, self._prefetch)
        self._scheduler.add(lane, level, quota)
        self._read(lane, lane.main)
        return lane

    def _read(self, lane: OpenLane, inlet: LaneInput) -> None:
        inlet.wanted = True
        self._queue(lane, inlet, failed=False)

    def _queue(self, lane: OpenLane, inlet: LaneInput, *, failed: bool) -> None:
        rank = _RANK[lane.level]
        self._opening.put_nowait(_Opening(failed, rank, next(self._turn), lane, inlet))

    async def first_opened(self, timeout_s: float) -> None:
        """Wait for the lanes that are there at the start, and a moment for what is on them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.synced.wait()
                await self._opening.join()
                await asyncio.sleep(_FIRST_FEED_S)

    async def run_openers(self) -> None:
        """Open readers, so many at once, for ever.

        One that takes long or fails gives up its place, so that it never delays another: at most
        as many are waited for as there are lanes.
        """
        places = asyncio.Semaphore(OPENERS)
        async with asyncio.TaskGroup() as attempts:
            while True:
                await places.acquire()
                attempts.create_task(self._attempt(await self._opening.get(), places))

    async def _attempt(self, opening: _Opening, places: asyncio.Semaphore) -> None:
        def leave() -> None:
            places.release()
            self._opening.task_done()

        patience = asyncio.get_running_loop().call_later(_PATIENCE_S, leave)
        try:
            await self._open_reader(opening.lane, opening.inlet)
        finally:
            if patience.when() > asyncio.get_running_loop().time():
                patience.cancel()
                leave()

    async def _open_reader(self, lane: OpenLane, inlet: LaneInput) -> None:
        if lane.retired:
            return self._backoffs.forget(inlet.name)
        if lane.foreign or inlet.reader is not None:
            return None
        try:
            if is_pool(lane.name):
                await self._make_shared(lane)
            inlet.reader = await self._read_known(lane, inlet)
        except PushlaneError as error:
            wait_s = self._backoffs.failed(inlet.name, error)
            again = partial(self._queue, lane, inlet, failed=True)
            asyncio.get_running_loop().call_later(wait_s, again)
            return None
        self._backoffs.reset(inlet.name)
        self.released(lane)
        return self._wake()

    async def _read_known(self, lane: OpenLane, inlet: LaneInput) -> LaneReader | None:
        """None when its task has ended. A lane that the broker does not know, of a task that has
        not, is one that the broker has not heard of yet, or that is about to be made anew.
        """
        try:
            return await self._backend.broker.read(
                inlet.name, self._feeder(lane, inlet), inlet.depth
            )
        except UnknownLane:
            task_id = task_of(lane.name)
            if task_id is None or not await self._has_ended(task_id):
                raise
            return None

    async def _has_ended(self, task_id: str) -> bool:
        """What the registry says now; it is taken into account here."""
        task = await self._backend.find(task_id)
        if task is None:
            self._end(_forgotten(task_id))
            return True
        self.apply(task)
        return task.state.is_terminal

    async def _make_shared(self, lane: OpenLane) -> None:
        """Its later lane before it is read: what comes off it may have to wait there."""
        for name in (lane.later.name, lane.name):
            await self._backend.broker.open_lane(name)
        if not lane.later.wanted:
            self._read(lane, lane.later)

    def _feeder(self, lane: OpenLane, inlet: LaneInput) -> OnReady:
        def feed(_: LaneReader) -> None:
            inlet.has_more = True
            self._fill(lane)

        return feed

    def starve(self, lane: OpenLane) -> None:
        """The lane has nothing at hand; its readers will say when it has."""
        self._scheduler.rest(lane)

    def hold(self, lane: OpenLane, taken: Held) -> None:
        """Its task is paused: keep what was taken for when it goes on."""
        lane.give_back(taken)
        lane.hold()
        self._scheduler.rest(lane)

    def _refresh(self, lane: OpenLane) -> None:
        if lane.retired:
            return
        if lane.may_move:
            self._scheduler.ready(lane)
        else:
            self._scheduler.rest(lane)

    def _end(self, task: Task) -> None:
        self.tasks.pop(task.id, None)
        self._ended[task.id] = task
        if len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)
        lane = self.lanes.get(own_lane(task.id))
        if lane is not None:
            self._retire(lane)

    def _retire(self, lane: OpenLane) -> None:
        if not lane.retired:
            del self.lanes[lane.name]
            self._scheduler.remove(lane)
            lane.retire()
            self.released(lane)

    def released(self, lane: OpenLane) -> None:
        """Less of the lane is pending: it may move again, or close if it is to be left."""
        if not (lane.retired or lane.foreign):
            self._refresh(lane)
        elif not lane.pending:
            self._close(lane)

    def _close(self, lane: OpenLane) -> None:
        for reader in lane.let_go():
            closing = asyncio.create_task(_closed(reader))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def leave(self, lane: OpenLane, error: UnknownFormat) -> None:
        """A message was taken that only a newer version can read: leave the lane to others.

        The message is not acked, so the broker gives it to another process when the readers close,
        once what is in flight of the lane is settled. After a while the lane is tried again.
        """
        if not lane.again_at_ms:
            log.warning("lane %s: %s", lane.name, error, extra={"action": "format_unknown"})
        lane.leave(self._clock_ms() + _AGAIN_MS)
        self._foreign.add(lane)
        if not lane.retired:
            self._scheduler.rest(lane)
        self.released(lane)

    def _try_again(self) -> None:
        """Read lanes that were left, if it is time: a newer process may have emptied them."""
        now = self._clock_ms()
        for lane in [
            lane for lane in self._foreign if lane.again_at_ms <= now and not lane.pending
        ]:
            self._foreign.discard(lane)
            if not lane.retired:
                lane.come_back()
                for inlet in lane.inlets:
                    if inlet.wanted:
                        self._read(lane, inlet)

    def ask(self, task_id: str, lane: OpenLane, taken: Held) -> None:
        """A push surfaced of a task not heard of: look the task up, then offer the push again.

        It is parked meanwhile, so that a lane holds no more of these than it has room for.
        """
        lane.park()
        self._strangers.setdefault(task_id, []).append((lane, taken))
        self._asked.set()

    async def run_lookups(self) -> None:
        """Look up the tasks that pushes named before the registry did, several at once."""
        await whenever(self._asked, self._look_all_up, Backoff(log, "the registry"))

    async def _look_all_up(self) -> None:
        strangers = list(self._strangers)
        groups = [strangers[at : at + _LOOKUPS] for at in range(0, len(strangers), _LOOKUPS)]
        await for_each(groups, self._look_up_some)

    async def _look_up_some(self, task_ids: Sequence[str]) -> None:
        looks = (self._look_up(task_id) for task_id in task_ids)
        raise_first(await asyncio.gather(*looks, return_exceptions=True))

    async def _look_up(self, task_id: str) -> None:
        try:
            await self._has_ended(task_id)
        except UnknownFormat as error:
            for lane, _ in self._strangers.pop(task_id, ()):
                lane.unpark()
                self.leave(lane, error)
            return
        for lane, taken in self._strangers.pop(task_id, ()):
            lane.unpark()
            lane.give_back(taken)
            self.released(lane)
        self._wake()

    async def close(self) -> None:
        """Close every reader; what they hold goes to other processes."""
        for lane in self.lanes.values():
            self._close(lane)
        self.lanes.clear()
        await asyncio.gather(*self._closing)


async def _closed(reader: LaneReader) -> None:
    try:
        await reader.close()
    except PushlaneError as error:
        log.warning("lane %s is given back later: %s", reader.lane, error)


def _forgotten(task_id: str) -> Task:
    """Stands for a task that the registry does not know (any more): its pushes are dropped."""
    return Task(
        id=task_id,
        level=Level.LOW,
        lane="pool-0",
        state=State.CANCELLED,
        reason="unknown task",
        lane_dropped=True,
    )
