"""The lanes that this process reads: how they are found, opened and held.

`LaneManager` opens a lane when a task has one, holds it while the task is paused or starts later,
and retires it when the task ends. `ReaderOpener` opens several readers at once, high lanes first;
one that takes long or fails never delays another.

`DelayLimit` bounds what waits on later lanes: at the limit a main lane rests until less of it
waits. Nothing is lost by that: what is left on the main lane stays there, and what comes due goes
on. A process looks at a later lane again after so many pushes of its own have gone there, so the
limit may be passed by that many for each process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pushlane.backends.ports import Broker
from pushlane.core.errors import PushlaneError, UnknownLane
from pushlane.core.lane import Lane, LaneInput
from pushlane.core.lanes import Lanes
from pushlane.core.names import (
    is_later,
    is_pool,
    lane_at,
    later_lane,
    own_lane,
    pool_lanes,
    pool_sink,
    task_of,
)
from pushlane.core.ports import LaneReader
from pushlane.core.retrying import Backoff, Backoffs
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.dispatcher.tasks import DueTimes, KnownTasks
from pushlane.util.retrying import for_each

log = logging.getLogger("pushlane.lanes")

OPENERS = 64
_PATIENCE_S = 0.5
_LOOK_AFTER_S = 0.025
_LAST_LOOKS = 2
_LOOKS_IF_STUCK = 8
_RANK = {level: rank for rank, level in enumerate(Level)}


class _Opening(NamedTuple):
    """A reader to open: those that failed before come last, then high lanes first."""

    failed: bool
    rank: int
    turn: int
    lane: Lane
    lane_input: LaneInput


class ReaderOpener:
    """Opens readers while `run` runs; `fill` is called when a lane's reader has something."""

    def __init__(
        self, broker: Broker, tasks: KnownTasks, lanes: Lanes, fill: Callable[[Lane], None]
    ) -> None:
        self._broker = broker
        self._tasks = tasks
        self._lanes = lanes
        self._fill = fill
        self._opening: asyncio.PriorityQueue[_Opening] = asyncio.PriorityQueue()
        self._unopened = 0  # neither open nor given up for now
        self._turn = itertools.count()
        self._backoffs = Backoffs(log)

    def open(self, lane: Lane, lane_input: LaneInput) -> None:
        """Have a reader opened, as soon as it can be."""
        lane_input.wanted = True
        self._queue(lane, lane_input, failed=False)

    async def first_opened(self, timeout_s: float) -> None:
        """Wait for the lanes that are there at the start, and for what is on them.

        Who began with the first of them would give those all slots, beside others who share. Those
        that do not open, as when a broker is only just there, are not waited for once something of
        others is at hand.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._tasks.synced.wait()
                before, still = self._fed(), 0
                while still < self._looks(before):
                    await asyncio.sleep(_LOOK_AFTER_S)
                    now = self._fed()
                    still = still + 1 if now == before else 0
                    before = now

    def _looks(self, fed: tuple[int, int]) -> float:
        """Return after how many looks at which nothing more has opened, or come, it begins."""
        if not self._unopened:
            return _LAST_LOOKS
        return _LOOKS_IF_STUCK if fed[0] else math.inf

    def _fed(self) -> tuple[int, int]:
        """Count readers that had something, and how far the others are: open, asked about."""
        inputs = [one for lane in self._lanes.by_name.values() for one in lane.inputs]
        return (
            sum(bool(one.messages) for one in inputs),
            sum(bool(one.asking) + (one.reader is not None) for one in inputs),
        )

    async def run(self) -> None:
        """Open readers, so many at once, for ever.

        One that takes long or fails gives up its place, so that it never delays another: at most
        as many are waited for as there are lanes.
        """
        places = asyncio.Semaphore(OPENERS)
        async with asyncio.TaskGroup() as attempts:
            while True:
                await places.acquire()
                attempts.create_task(self._attempt(await self._opening.get(), places))

    def _queue(self, lane: Lane, lane_input: LaneInput, *, failed: bool) -> None:
        rank = _RANK[lane.level]
        self._unopened += 1
        self._opening.put_nowait(_Opening(failed, rank, next(self._turn), lane, lane_input))

    async def _attempt(self, opening: _Opening, places: asyncio.Semaphore) -> None:
        def leave() -> None:
            places.release()
            self._unopened -= 1

        patience = asyncio.get_running_loop().call_later(_PATIENCE_S, leave)
        try:
            await self._open_reader(opening.lane, opening.lane_input)
        finally:
            if patience.when() > asyncio.get_running_loop().time():
                patience.cancel()
                leave()

    async def _open_reader(self, lane: Lane, lane_input: LaneInput) -> None:
        if lane.retired:
            return self._backoffs.forget(lane_input.name)
        if lane.is_left or lane_input.reader is not None:
            return None
        try:
            if is_pool(lane.name):
                await self._make_shared(lane)
            reader = await self._read_known(lane, lane_input)
        except PushlaneError as error:
            wait_s = self._backoffs.failed(lane_input.name, error)
            again = partial(self._queue, lane, lane_input, failed=True)
            asyncio.get_running_loop().call_later(wait_s, again)
            return None
        self._backoffs.reset(lane_input.name)
        return lane.opened(lane_input, reader)

    async def _read_known(self, lane: Lane, lane_input: LaneInput) -> LaneReader | None:
        """Return the reader, or None when its task has ended for sure.

        A lane that the broker does not know, of a task that has not, is one that the broker has not
        heard of yet, or that is about to be made anew.
        """
        try:
            return await self._broker.read(
                lane_input.name, partial(self._feed, lane, lane_input), lane_input.depth
            )
        except UnknownLane:
            task_id = task_of(lane.name)
            if task_id is None or not await self._tasks.has_ended(task_id):
                raise
            return None

    async def _make_shared(self, lane: Lane) -> None:
        """Make the later lane before the lane is read: what comes off it may have to wait there."""
        await asyncio.gather(*map(self._broker.open_lane, (lane.later.name, lane.name)))
        if not lane.later.wanted:
            self.open(lane, lane.later)

    def _feed(self, lane: Lane, lane_input: LaneInput, _: LaneReader) -> None:
        lane_input.ready()
        self._fill(lane)


_LOOK_EVERY_S = 1.0


class StartTimer:
    """Remembers each task once, until its time has come: also one that has ended meanwhile.

    The wall clock may be set while we wait, so it is looked at once a second at least.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._starts = DueTimes()
        self._added = asyncio.Event()

    def waits(self, task: Task) -> bool:
        """Tell whether its start is still to come; then remember it."""
        if not task.is_scheduled(self._clock_ms()):
            self._starts.discard(task.id)
            return False
        self._starts.put(task.id, task.not_before_ms)
        self._added.set()
        return True

    async def run(self, start: Callable[[str], None]) -> None:
        """Call `start` with the id of each task whose time has come, for ever."""
        while True:
            self._added.clear()
            for task_id in self._starts.take(self._clock_ms(), len(self._starts)):
                start(task_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._added.wait()

    def _wait_s(self) -> float | None:
        """Return the time to the next start, at most to the next look; None without a start."""
        soonest_ms = self._starts.soonest_ms()
        if soonest_ms is None:
            return None
        left_s = (soonest_ms - self._clock_ms()) / 1000
        return min(_LOOK_EVERY_S, max(0.0, left_s))


_SHARED = 2  # as if bundles were so small: many tasks that share a lane have one at hand, or a push


@dataclass(eq=False, repr=False)
class LaneManager:
    """Listens to tasks and keeps their lanes at one sink.

    `prefetch` is how many pushes of one are at hand.
    """

    sink: str
    tasks: KnownTasks
    lanes: Lanes
    opener: ReaderOpener
    prefetch: int
    clock_ms: Callable[[], int] = now_ms

    def __post_init__(self) -> None:
        self._start_timer = StartTimer(self.clock_ms)

    def open_pool(self, count: int) -> None:
        """Read every lane that low tasks share, with its later lane."""
        for name in pool_lanes(count, self.sink):
            self._open_pool_lane(name)

    async def open_old_pool(self, broker: Broker) -> None:
        """Read the lanes of when the pool was larger: something may be left on them."""
        for name in await self._pool_at(broker):
            self._open_pool_lane(name)

    async def open_used_pool(self, broker: Broker) -> None:
        """Read the lanes of the pool on which something is, whether its task is known or not."""
        await for_each(await self._pool_at(broker), partial(self._open_used, broker), OPENERS)

    async def _pool_at(self, broker: Broker) -> list[str]:
        """Return all lanes of the pool that the broker has, as many as it ever was large."""
        return [
            name
            for name in await broker.lanes()
            if is_pool(name) and not is_later(name) and pool_sink(name) == self.sink
        ]

    async def _open_used(self, broker: Broker, name: str) -> None:
        for lane in (name, later_lane(name)):
            with suppress(UnknownLane):
                if await broker.backlog(lane):
                    self._open_pool_lane(name)

    def on_task(self, task: Task) -> None:
        if task.state.is_terminal:
            self._retire(task.id)
        elif self.sink in task.reached:
            self._place(task, task.lane_at(self.sink), has_later=True)
        elif self.sink == task.chain[0]:
            for name in (task.first_lane, task.lane):  # our settings may have a smaller pool
                if is_pool(name):
                    self._open_pool_lane(name)
            if not task.pooled and task.state is not State.SUBMITTED:
                self._place(task, task.lane, has_later=task.has_later)

    def on_unread(self, task_id: str) -> None:
        self._retire(task_id)

    def _retire(self, task_id: str) -> None:
        self.lanes.retire(own_lane(task_id))
        self.lanes.retire(lane_at(task_id, self.sink))

    def read_again(self) -> None:
        """Read the lanes that were left to others for long enough."""
        for lane in self.lanes.take_left():
            for lane_input in lane.inputs:
                if lane_input.wanted:
                    self.opener.open(lane, lane_input)

    async def run_starts(self) -> None:
        """Let scheduled tasks move when their time has come, for ever."""
        await self._start_timer.run(self._start)

    def _start(self, task_id: str) -> None:
        if task := self.tasks.active.get(task_id):
            log.info("task %s starts", task_id, extra={"action": "task_started"})
            self.on_task(task)

    def _place(self, task: Task, name: str, *, has_later: bool) -> None:
        """Open a lane that a task has alone, unless it is open; let it move unless it must wait."""
        is_home = name == (task.first_lane or task.lane)
        lane = self.lanes.by_name.get(name)
        if lane is None:
            bundle = task.bundle if is_home else 1
            lane = self._open(name, task.level, task.quota, bundle, task.app)
        highest_seq = task.highest_seq if is_home else 0
        held = self._start_timer.waits(task) or task.state is State.PAUSED
        self.lanes.update(lane, task, highest_seq, held=held)  # first: a reader opens by its level
        if has_later and not lane.later.wanted:
            self.opener.open(lane, lane.later)

    def _open_pool_lane(self, name: str) -> None:
        if name not in self.lanes.by_name:
            self._open(name, Level.LOW, 1, _SHARED)

    def _open(self, name: str, level: Level, quota: int, bundle: int, app: str = "") -> Lane:
        """Open a lane of at most `bundle` pushes a message; on its later lane each is alone."""
        depth = max(2, self.prefetch // max(1, bundle))
        lane = self.lanes.add(
            name, level, quota=quota, app=app, depth=depth, later_depth=self.prefetch
        )
        self.opener.open(lane, lane.main)
        return lane


delay_log = logging.getLogger("pushlane.delay_limit")

_EVERY_S = 1.0
_LOOKS_A_LIMIT = 100
_AT_ONCE = 16


class DelayLimit:
    """`lanes` are those that this process reads."""

    def __init__(self, broker: Broker, most: int, lanes: Callable[[], Iterable[Lane]]) -> None:
        self._broker = broker
        self._most = most
        self._step = max(1, most // _LOOKS_A_LIMIT)
        self._lanes = lanes

    def full(self) -> int:
        """Return how many lanes rest now. It may be asked on any thread."""
        return sum(lane.later_full for lane in list(self._lanes()))

    async def run(self) -> None:
        backoff = Backoff(delay_log, "the broker")
        while True:
            await backoff.until_done(self._look)
            await asyncio.sleep(_EVERY_S)

    async def _look(self) -> None:
        due = [lane for lane in self._lanes() if lane.later_full or lane.deferred >= self._step]
        await for_each(due, self._measure, _AT_ONCE)

    async def _measure(self, lane: Lane) -> None:
        deferred, lane.deferred = lane.deferred, 0
        try:
            is_full = await self._broker.backlog(lane.later.name) >= self._most
        except UnknownLane:  # dropped with its task
            return
        except PushlaneError:  # it is due still
            lane.deferred += deferred
            raise
        if is_full is not lane.later_full:
            lane.set_later_full(is_full)
            if is_full:
                text = "lane %s rests: %d of its pushes wait for their time (later_max)"
                delay_log.warning(text, lane.name, self._most, extra={"action": "lane_full"})
            else:
                delay_log.info("lane %s goes on", lane.name, extra={"action": "lane_resumed"})
