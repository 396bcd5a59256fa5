"""The dispatcher as one thing to start and stop, alone or inside somebody's own service.

It installs no signal handlers, keeps no globals and shows metrics only in the registry it is given.
Its side tasks are named and supervised: when one dies, `run` stops and says which.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from heapq import nlargest
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from pushlane.dispatcher.assembly import DeliveryParts, LaneParts
from pushlane.dispatcher.breaker import Restraint
from pushlane.dispatcher.housekeeping.janitor import Janitor
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.presence_announcer import PresenceAnnouncer
from pushlane.dispatcher.stats import Gauges, StatsCollector
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError
from pushlane.lanes.naming import DEAD_LANE
from pushlane.lanes.pool import pool_size
from pushlane.lanes.ports import Sink
from pushlane.lanes.presence import Process, Resting, SlowLane
from pushlane.lanes.push import FORMAT
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Level, State, Task
from pushlane.lanes.task_transitions import now_ms
from pushlane.lanes.version import VERSION

log = logging.getLogger("pushlane.dispatcher")

_CANCEL_AGAIN_S = 0.5
_SETTLE_S = 1.5
_RELEASE_S = 0.75
_MOST_SLOW = 50


class Dispatcher:
    """Drains the backend's lanes into a sink.

    With `drain`, `run` returns when no task is left that could move now (those that are paused or
    start later do not count). `registry` is where Prometheus metrics are shown, None for nowhere.
    `clock_ms` tells the time as Unix milliseconds, and `clock_s` to the breaker in seconds since
    whenever; if that one jumps, `wake` has to be called.
    """

    def __init__(
        self,
        backend: Backend,
        sink: Sink,
        settings: Settings,
        *,
        drain: bool = False,
        registry: CollectorRegistry | None = None,
        clock_ms: Callable[[], int] = now_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        lanes = LaneParts(backend, sink, settings, clock_ms)
        delivery = DeliveryParts(lanes, backend, sink, settings, clock_ms, clock_s, drain=drain)
        self.stats = lanes.stats
        self._backend = backend
        self._settings = settings
        self._lanes = lanes
        self._delivery = delivery
        self._tasks = lanes.tasks
        self._ring = lanes.ring
        self._settler = lanes.settler
        self._loop = delivery.loop
        self._id = f"dispatcher-{secrets.token_hex(4)}"
        self._started_at_ms = clock_ms()
        self._sink_name = sink.name
        self._janitor = Janitor(backend, self._id, settings)
        self._announcer = PresenceAnnouncer(backend, self._as_process)
        self._drain_watch = _DrainWatch(lanes.tasks, clock_ms) if drain else None
        lanes.tasks.add_listener(self._janitor)
        if self._drain_watch is not None:
            lanes.tasks.add_listener(self._drain_watch)
        if registry is not None:
            registry.register(StatsCollector(self.stats, self._gauges(), sink.name))

    def stop(self) -> None:
        """Stop gently: take no more, finish what is in flight, send the acks."""
        self._loop.stop()

    def wake(self) -> None:
        """Look at once at what may go."""
        self._lanes.awake.set()

    def resting(self) -> list[Restraint]:
        """List what gets fewer pushes than there are, since it fails."""
        return self._delivery.outage.resting(now_ms())

    def reads(self, lane: str) -> bool:
        """Tell whether this process has the lane open."""
        known = self._ring.lanes.get(lane)
        return known is not None and known.main.reader is not None

    def lanes(self) -> list[str]:
        """List the lanes that this process serves, the shared ones included."""
        return list(self._ring.lanes)

    def is_fed(self, lane: str) -> bool:
        """Tell whether this process has something of the lane at hand."""
        known = self._ring.lanes.get(lane)
        return known is not None and known.fed

    def quota(self, lane: str) -> int:
        """Return the quota in force for a lane that this process knows."""
        return self._lanes.scheduler.quota(self._ring.lanes[lane])

    def app_quota(self, app: str) -> int:
        """Return the quota in force for an app."""
        return self._lanes.scheduler.app_quota(app)

    def weights(self) -> dict[Level, int]:
        """Return the level weights in force."""
        return self._lanes.scheduler.weights()

    async def run(self) -> None:
        """Dispatch until `stop`, or with `drain` until nothing is left.

        When it is cancelled, what is in flight is given up, and its pushes are repeated.

        Raises:
            Unreachable: broker or registry did not answer at the start.
            UserError: lanes may hold messages of a format that this process does not read.
            PushlaneError: a side task died; names it.
        """
        await self._backend.broker.open_lane(DEAD_LANE)
        await self._announcer.enter()
        setting = self._settings.pool_lanes
        pool = max(setting, await pool_size(self._backend.documents, setting))
        self._lanes.manager.open_pool(pool)
        work = [_supervised(name, part) for name, part in self._side_tasks()]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            self._loop.stop()
            await self._settle_all()
        finally:
            await _end(work)
            await self._let_go()
        _raise_first(work)

    def _side_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        lanes, delivery = self._lanes, self._delivery
        yield "loop", self._loop.run()
        yield "registry", lanes.follower.run()
        yield "limits", lanes.limits.run()
        yield "starts", lanes.manager.run_starts()
        yield "openers", lanes.opener.run()
        yield "look-ups", lanes.lookups.run()
        yield "pauses", lanes.pauses.run()
        yield "intake", lanes.intake.run(self._ring.lanes.values)
        yield "guards", delivery.guards.run()
        yield "republish", self._settler.run_moves()
        yield "settle", self._settler.run_ends(delivery.key_order.settled)
        yield "key order", delivery.key_order.run()
        yield "completion", lanes.completion.run()
        yield "delay limit", lanes.delay_limit.run()
        yield "janitor", self._janitor.run()
        yield "presence", self._announcer.run()
        if self._drain_watch is not None:
            yield "drain", self._stop_when_drained(self._drain_watch)

    async def _stop_when_drained(self, drain_watch: _DrainWatch) -> None:
        await drain_watch.wait()
        self._loop.stop()

    async def _settle_all(self) -> None:
        """Let what is in flight land and its outcomes become durable, as far as time allows."""
        timeout_s = self._settings.drain_timeout_s
        until_s = time.monotonic() + timeout_s
        late = await self._delivery.pool.landed(timeout_s)
        if late:
            log.warning(
                "%d deliveries did not end in %g s: they will be repeated",
                late,
                timeout_s,
                extra={"action": "drain_late"},
            )
        try:
            async with asyncio.timeout(max(_SETTLE_S, until_s - time.monotonic())):
                await self._settler.drain()
                await self._lanes.completion.conclude()
        except TimeoutError:
            log.warning(
                "%d outcomes are not acked: their pushes will be repeated",
                self._settler.unsettled,
                extra={"action": "drain_unsettled"},
            )

    async def _let_go(self) -> None:
        """Give up what is in flight; others may have the lanes and the janitor's lease at once."""
        closing = (
            ("what is in flight", self._delivery.pool.give_up),
            ("the lanes", self._ring.close),
            ("the janitor's lease and what it says of itself", self._resign),
        )
        for what, close in closing:
            try:
                async with asyncio.timeout(_RELEASE_S):
                    await close()
            except (TimeoutError, PushlaneError):
                log.warning("%s: left to run out", what, extra={"action": "left_behind"})

    async def _resign(self) -> None:
        await self._announcer.close()
        await self._janitor.close()
        if self._delivery.poison_guard is not None:
            await self._delivery.poison_guard.close()

    def _as_process(self) -> Process:
        return Process(
            id=self._id,
            kind="dispatcher",
            pid=os.getpid(),
            version=VERSION,
            format=FORMAT,
            lanes=len(self._ring.lanes),
            sinks=(self._sink_name,),
            started_at_ms=self._started_at_ms,
            resting=tuple(self._said_resting()),
            slow=tuple(self._said_slow()),
        )

    def _said_resting(self) -> Iterator[Resting]:
        for one in self.resting():
            what = f"{one.scope} {self._sink_name} ({one.state})"
            yield Resting(what, one.since_ms, one.reason, one.next_try_ms or 0)

    def _said_slow(self) -> Iterator[SlowLane]:
        now_s, now = time.monotonic(), now_ms()
        slow = nlargest(_MOST_SLOW, self._delivery.shares.slow(), key=lambda one: one.times)
        for lane, times, since_s in slow:
            yield SlowLane(lane.name, round(times, 1), now - round((now_s - since_s) * 1000))

    def _gauges(self) -> Gauges:
        return Gauges(
            in_flight=lambda: self._delivery.pool.in_flight,
            unsettled=lambda: self._settler.unsettled,
            receipts_waiting=lambda: self._lanes.receipts.waiting,
            parked=lambda: self._delivery.key_order.parked,
            lanes_open=lambda: len(self._ring.lanes),
            lanes_full=self._lanes.delay_limit.full,
            refused=lambda: self._delivery.outage.waiting,
            resting=self.resting,
            backlog=self._backlog,
            weights=self.weights,
        )

    def _backlog(self) -> dict[Level, int]:
        waiting = dict.fromkeys(Level, 0)
        for task in self._tasks.active.values():
            finished = self._lanes.completion.finished.get(task.id, 0)
            waiting[task.level] += max(0, (task.total or 0) - finished)
        return waiting


class _DrainWatch:
    """Tells when no task is left that could move now."""

    def __init__(self, tasks: KnownTasks, clock_ms: Callable[[], int]) -> None:
        self._tasks = tasks
        self._clock_ms = clock_ms
        self._changed = asyncio.Event()

    def on_task(self, task: Task) -> None:
        self._changed.set()

    def on_unread(self, task_id: str) -> None:
        self._changed.set()

    async def wait(self) -> None:
        """Return once none is left."""
        await self._tasks.synced.wait()
        while any(self._can_move(task) for task in self._tasks.active.values()):
            await self._changed.wait()
            self._changed.clear()

    def _can_move(self, task: Task) -> bool:
        return task.state is not State.PAUSED and not task.is_scheduled(self._clock_ms())


def _supervised(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    async def run() -> None:
        try:
            await work
        except PushlaneError:
            raise
        except Exception as error:
            raise PushlaneError(f"the dispatcher's {name} task died of {_fault(error)}") from error

    return asyncio.create_task(run(), name=name)


def _fault(error: BaseException) -> str:
    """Name the kind and place of an error: its text might hold what a push holds."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all until they have ended: a library below may swallow the first cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical(
                "stopped since its task %r has ended: %s",
                task.get_name(),
                error,
                extra={"action": "task_died"},
            )
            raise error
