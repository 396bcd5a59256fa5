"""Ends tasks that are past their expiry and drops the lanes of tasks that have ended.

One process at a time does this, whoever leads; its changes carry the number of its lease, so one
that led before changes nothing. Dropping a lane needs no such number: the lane's task is over for
good and its name is never used again, so a late or a second drop does no harm. A lane goes when its
task was cancelled, or else when its retention is over and nothing on it is left to send; and only
when nobody reads it any more.

A lane that tasks share stays: what is waited for is that nothing of the task is left on it. That is
known by where its end once was: when all up to there is acked, whatever ended before that look has
nothing left on it. One end is remembered a lane; if it is waited for long, since something has to
wait for its time there, it is kept for the next leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.leases import WORK_TTL_S, Leader, SteadyClock, is_awaited
from pushlane.backends.ports import TaskQuery, pages
from pushlane.core.errors import TaskConflict, UnknownFormat
from pushlane.core.names import is_pool, later_lane
from pushlane.core.retrying import Backoff
from pushlane.core.task import TERMINAL_STATES, State, Task, now_ms, seal, start
from pushlane.dispatcher.leader.forgetting import Forgetting
from pushlane.dispatcher.leader.recovery import Change, Recovery
from pushlane.dispatcher.tasks import DueTimes
from pushlane.model import task_changes
from pushlane.model.names import submit_lease
from pushlane.model.streams import is_of_partition, is_of_producer, is_of_stream, source_of
from pushlane.model.wait_words import took_text
from pushlane.settings import Settings
from pushlane.util.errors import Superseded, UnknownTask
from pushlane.util.retrying import for_each

half_made_log = logging.getLogger("pushlane.half_made")

JUST_BEGUN_MS = 10_000
GONE_MS = 600_000
"""How long a producer without a spool may stand still, or not reach the registry."""

_LOOK_EVERY_S = 30.0
_AT_ONCE = 8
_SEALER = "janitor"
_ABANDONED = "never completed: its submit or its producer did not come back"


@dataclass(eq=False, repr=False)
class HalfMade:
    """Watches over tasks whose submit, or the producer that feeds them, is gone too early.

    Since when is written into the task, so that the next leader knows it too. `ends_after_s` is how
    long one may stand still, `forgets_after_s` how long the broker surely knows who published. A
    stream's task is sealed instead: nobody comes back to it. So is that of a producer without a
    spool, `GONE_MS` later: until then it may only stand still. That of an ingested partition is
    left alone, as the partition's next reader goes on with it, whenever that is. `change` makes a
    leader's change. `clock_ms` is Unix milliseconds, `clock_s` a monotonic clock.
    """

    backend: Backend
    change: Change
    ends_after_s: float
    clock_ms: Callable[[], int] = task_changes.now_ms
    clock_s: Callable[[], float] = time.monotonic
    forgets_after_s: float = math.inf

    def __post_init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._look_at_s = 0.0

    def on_task(self, task: Task) -> None:
        if task.is_half_made and not is_of_partition(task):
            self._tasks[task.id] = task
        else:
            self._tasks.pop(task.id, None)

    def on_unread(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)

    async def step(self) -> None:
        now_s = self.clock_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        now = self.clock_ms()
        settled = [t for t in self._tasks.values() if now - t.created_at_ms >= JUST_BEGUN_MS]
        await for_each(settled, self._look, _AT_ONCE)

    async def _look(self, task: Task) -> None:
        now = self.clock_ms()
        if await is_awaited(self.backend.lease, task.id):
            if task.stalled_at_ms:
                await self.change(task, task_changes.stalled(0))
        elif self._is_to_seal(task, now) and await self._sealed(task):
            return
        elif not task.stalled_at_ms:
            await self.change(task, task_changes.stalled(now))
            is_sealed = is_of_producer(task)
            half_made_log.warning(
                "task %s was never completed, and its submit or producer is gone; it %s in %s "
                "(pushlane why %s)",
                task.id,
                "is closed" if is_sealed else "will expire",
                took_text(GONE_MS if is_sealed else self.ends_after_s * 1_000),
                task.id,
                extra={"action": "task_stalled"},
            )
        elif now - task.stalled_at_ms >= round(self.ends_after_s * 1000):
            await self.change(task, task_changes.abandon(task.stalled_at_ms, _ABANDONED))
            half_made_log.warning(
                "task %s has expired: %s", task.id, _ABANDONED, extra={"action": "abandoned"}
            )

    def _is_to_seal(self, task: Task, now: int) -> bool:
        has_waited = 0 < task.stalled_at_ms <= now - GONE_MS
        return is_of_stream(task) or (is_of_producer(task) and has_waited)

    async def _sealed(self, task: Task) -> bool:
        """Seal a task whose process was killed, with what the broker has of it.

        False where the broker may have forgotten how much that is, or another is about to know. The
        lease keeps a process that was only slow from putting more on the lane meanwhile.
        """
        lease, lane = submit_lease(task.id), task.first_lane
        if await self.backend.lease.acquire(lease, _SEALER, WORK_TTL_S) is None:
            return False
        try:
            await self.backend.broker.open_lane(lane, keep=task.retention_s > 0)
            last = await self.backend.broker.last_of(lane, source_of(task))
            await self.backend.broker.close_source(lane, source_of(task))
            if not last and self.clock_ms() - task.created_at_ms >= self.forgets_after_s * 1000:
                return False
            await self.change(task, lambda found: start(seal(last)(found)))
        except TaskConflict:  # the broker has not seen yet that the process died
            return False
        finally:
            await self.backend.lease.release(lease, _SEALER)
        told = "task %s is closed with %d pushes: its producer's process is gone"
        half_made_log.warning(told, task.id, last, extra={"action": "stream_sealed"})
        return True


CLOCKS_APART_MS = 600_000
_KIND = "passed-lane"
_LONG_MS = 3_600_000
_AGAIN_S = 5.0
_ENDS_A_LOOK = 2  # the first may be from before the task ended


class _Look(msgspec.Struct, array_like=True):
    """A look at a lane: where its end was, and when."""

    at_ms: int
    end: tuple[int, int]
    is_kept: bool = False


@dataclass(eq=False, repr=False)
class SharedLanes:
    """`clock_ms` is a clock in Unix milliseconds that never steps, `clock_s` a monotonic one."""

    backend: Backend
    clock_ms: Callable[[], int] = now_ms
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        self._past_ms: dict[str, int] = {}
        self._again_s: dict[str, float] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}

    def holds_up(self, task: Task, ended_ms: int) -> bool:
        """True while something of a task that ended by then may be on a lane that it shares.

        If so, `look` gives its id once there is nothing of it on that one.
        """
        for lane in _shared_lanes(task):
            if self._past_ms.get(lane, 0) < ended_ms:
                heapq.heappush(self._waiting.setdefault(lane, []), (ended_ms, task.id))
                return True
        return False

    async def look(self) -> list[str]:
        """The tasks that waited for a lane, and do so no more: they may have to for another."""
        now_s = self.clock_s()
        due = [lane for lane in self._waiting if now_s >= self._again_s.get(lane, 0.0)]
        await for_each(due, self._look, _AT_ONCE)
        over: list[str] = []
        for lane in due:
            waiting = self._waiting[lane]
            while waiting and waiting[0][0] <= self._past_ms.get(lane, 0):
                over.append(heapq.heappop(waiting)[1])
            if not waiting:
                del self._waiting[lane]
        return over

    async def _look(self, lane: str) -> None:
        latest_ms, _ = max(self._waiting[lane])
        for _ in range(_ENDS_A_LOOK):
            look = self._looks.get(lane) or await self._first(lane)
            if not await self.backend.broker.is_past(lane, look.end):
                self._again_s[lane] = self.clock_s() + _AGAIN_S
                return await self._keep(lane, look)
            self._past_ms[lane] = max(look.at_ms, self._past_ms.get(lane, 0))
            self._looks.pop(lane, None)
            if look.at_ms >= latest_ms:
                return None
        return None

    async def _first(self, lane: str) -> _Look:
        """The one that an earlier leader waited for, on its clock, or else the end of now."""
        if lane not in self._past_ms and (kept := await self.backend.documents.get(_KIND, lane)):
            look = msgspec.msgpack.decode(kept.body, type=_Look)
            self._looks[lane] = _Look(look.at_ms - CLOCKS_APART_MS, look.end, is_kept=True)
        else:
            self._looks[lane] = _Look(self.clock_ms(), await self.backend.broker.end_of(lane))
        return self._looks[lane]

    async def _keep(self, lane: str, look: _Look) -> None:
        if look.is_kept or self.clock_ms() - look.at_ms < _LONG_MS:
            return
        before = await self.backend.documents.get(_KIND, lane)
        body = msgspec.msgpack.encode(look)
        await self.backend.documents.put(_KIND, lane, body, before.version if before else None)
        look.is_kept = True


def _shared_lanes(task: Task) -> list[str]:
    homes = {lane for lane in (task.first_lane, task.lane) if is_pool(lane)}
    return [lane for home in sorted(homes) for lane in (home, later_lane(home))]


log = logging.getLogger("pushlane.janitor")

LEASE = "janitor"
_EVERY_S = 1.0
_SOON_S = 0.1
_JUST_ENDED_MS = 5_000
_SOON_MS = 100
_AGAIN_MS = 1_000
_A_ROUND = 256


class Janitor:
    """Tidies up after tasks while it holds the lease.

    It keeps the tasks that still need it in mind, by when they do: a round costs as much as is due.
    What destroys something goes by the store's clock, and waits while that is in doubt.
    """

    def __init__(
        self,
        backend: Backend,
        holder: str,
        settings: Settings,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        self._backend = backend
        self.leader = Leader(backend.lease, LEASE, holder, clock=clock_s, wall_ms=wall_ms)
        self._now_ms = now = self.leader.store_clock.now_ms
        self._steady_ms = steady = SteadyClock(clock_s, wall_ms)
        change = self._change
        self._recovery = Recovery(
            backend, change, self._leads_still, settings.dead_retention_s, now, clock_s
        )
        forgets = not settings.capabilities.remembers_sources
        forgets_after_s = settings.dedup_window_s if forgets else math.inf
        self._half_made = HalfMade(
            backend, change, settings.half_made_retention_s, now, clock_s, forgets_after_s
        )
        self._forgetting = Forgetting(backend, self.leader, settings, now, clock_s)
        self._passed = SharedLanes(backend, steady, clock_s)
        self._doubt = ""
        self._due = asyncio.Event()
        self._knows_all = False
        self._leads = False
        self._tasks: dict[str, Task] = {}
        self._heard_ms: dict[str, int] = {}
        self._expiries = DueTimes()
        self._drops = DueTimes()

    @property
    def is_waiting(self) -> bool:
        """True while it leads and destroys nothing, as it cannot tell what time it is."""
        return self.leader.leads and bool(self._doubt)

    def on_task(self, task: Task) -> None:
        self._recovery.on_task(task)
        self._half_made.on_task(task)
        if task.state.is_terminal and not task.lane_dropped:
            self._tasks[task.id] = task
            self._heard_ms.setdefault(task.id, self._steady_ms())
            self._expiries.discard(task.id)
            self._drops.put(task.id, _drop_at_ms(task))
            self._due.set()
        elif not task.state.is_terminal and task.expires_at_ms:
            self._tasks[task.id] = task
            self._expiries.put(task.id, task.expires_at_ms)
        else:
            self._forget(task.id)

    def on_unread(self, task_id: str) -> None:
        """Only a newer version understands the task: its lanes are left alone."""
        self._recovery.on_unread(task_id)
        self._half_made.on_unread(task_id)
        self._forget(task_id)

    def _forget(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
        self._heard_ms.pop(task_id, None)
        self._expiries.discard(task_id)
        self._drops.discard(task_id)

    async def run(self) -> None:
        backoff = Backoff(log, "a service that the janitor needs")
        while True:
            await backoff.until_done(self._lead)
            await self._wait()

    async def _lead(self) -> None:
        try:
            await self._round()
        except Superseded as error:
            log.warning("%s", error, extra={"action": "superseded"})
            self.leader.step_down()

    async def _wait(self) -> None:
        """Until something is due; not for long, since another may have ceased to lead."""
        now = self._now_ms()
        times_ms = [due.soonest_ms() for due in (self._expiries, self._drops)]
        next_s = min((at_ms - now for at_ms in times_ms if at_ms is not None), default=0) / 1000
        if self._leads and self._forgetting.has_more:
            next_s = _SOON_S
        is_soon = self._leads and (any(times_ms) or self._forgetting.has_more)
        wait_s = min(max(_SOON_S, next_s), _EVERY_S) if is_soon else _EVERY_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._due.wait()

    async def _round(self) -> None:
        self._due.clear()
        self._leads = await self.leader.fence() is not None
        if not self._leads:
            return
        async with self.leader.leading():
            if not self._knows_all:
                await self._take_over()
            parts: list[Callable[[], Awaitable[None]]] = [self._backend.registry.keep_up]
            if self._is_in_doubt():
                parts.append(partial(self._recovery.step, may_destroy=False))
            else:
                parts += [self._tidy, self._recovery.step]
                parts += [self._half_made.step, self._forgetting.step]
            await for_each(parts, lambda part: part())

    def _is_in_doubt(self) -> bool:
        """Tell whether nothing may be destroyed now, and log when that begins and ends."""
        doubt, before = self.leader.store_clock.doubt(), self._doubt
        self._doubt = doubt
        if doubt and not before:
            log.warning(
                "%s: no task expires, and nothing is dropped or forgotten, until that is over; set "
                "the clocks of all hosts by NTP",
                doubt,
                extra={"action": "clocks_apart"},
            )
        elif before and not doubt:
            log.info("clocks agree again: housekeeping goes on", extra={"action": "clocks_agree"})
            for task in list(self._tasks.values()):
                self.on_task(task)  # what is due is due by the clock of now
        return bool(doubt)

    async def _take_over(self) -> None:
        """Take over tasks that ended before this process began to lead."""
        await self._backend.registry.tidy()
        async for page in pages(self._backend.registry, TaskQuery(TERMINAL_STATES)):
            for task in page:
                if not (task.lane_dropped or task.id in self._tasks):
                    self.on_task(task)
        self._knows_all = True

    async def _tidy(self) -> None:
        now = self._now_ms()
        past = self._due_of(self._expiries, now)
        await for_each(
            past, lambda task: self._change(task, task_changes.expire(task.expires_at_ms)), _AT_ONCE
        )
        for task_id in await self._passed.look():
            if task_id in self._tasks:
                self._drops.put(task_id, now)
        await for_each(self._due_of(self._drops, now), self._drop_ended, _AT_ONCE)

    def _due_of(self, due: DueTimes, now: int) -> list[Task]:
        """Each is due again until it is done: at once if it has just ended, else a little later."""
        tasks = [self._tasks[task_id] for task_id in due.take(now, _A_ROUND)]
        for task in tasks:
            just_ended = task.state.is_terminal and now - _drop_at_ms(task) < _JUST_ENDED_MS
            due.put(task.id, now + (_SOON_MS if just_ended else _AGAIN_MS))
        return tasks

    async def _drop_ended(self, task: Task) -> None:
        if self._tasks.get(task.id) is not task:  # another has dropped it meanwhile
            return
        ahead_ms = self._steady_ms() - self._now_ms()  # of a clock that was wrong at our start
        latest_ms = task.finished_at_ms + CLOCKS_APART_MS + ahead_ms
        ended_ms = min(self._heard_ms[task.id], latest_ms)
        if self._passed.holds_up(task, ended_ms):
            self._drops.discard(task.id)
        else:
            await self._drop(task)

    async def _drop(self, task: Task) -> None:
        """A lane that is not there counts as dropped; a task may never have had one of its own."""
        if not await self._is_spent(task):
            return
        lane, later, *further = task.own_lanes()
        for name in (*further, *([later] if task.has_later else ()), lane):
            if not await self._backend.broker.drop_lane(name):
                return
        await self._change(task, task_changes.lane_dropped)
        log.debug(
            "lane %s is removed (task %s)", lane, task.state, extra={"action": "lane_dropped"}
        )

    async def _is_spent(self, task: Task) -> bool:
        """Whether nothing that lies on its lanes is to be sent any more.

        When every push of a task that is done is counted, what may be left are repeats.
        """
        if task.state is not State.DONE:
            return True
        [progress] = await self._backend.registry.progress([task.id])
        if progress.finished >= (task.total or 0):
            return True
        left = [await self._backend.broker.backlog(name) for name in task.own_lanes()]
        return not any(left)

    async def _leads_still(self) -> bool:
        """Ask the store itself: who has lost it meanwhile destroys nothing."""
        self.leader.step_down()
        return await self.leader.fence() is not None

    async def _change(self, task: Task, edit: task_changes.Edit) -> None:
        try:
            fence = await self.leader.fence()
            if fence is not None:
                self.on_task(await self._backend.registry.change(task.id, edit, fence))
        except UnknownTask:
            self._forget(task.id)
        except UnknownFormat:
            self.on_unread(task.id)

    async def close(self) -> None:
        """Let another process take over at once."""
        await self.leader.resign()


def _drop_at_ms(task: Task) -> int:
    """Return from when on (Unix ms) the lane of a task that ended may be dropped.

    That of a cancelled one at once: nobody is to send it again by mistake.
    """
    kept_s = 0.0 if task.state is State.CANCELLED else task.retention_s
    return task.finished_at_ms + round(kept_s * 1000)
