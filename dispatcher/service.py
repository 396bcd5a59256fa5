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
from collections.abc import Callable, Coroutine, Iterable, Iterator
from heapq import nlargest
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from pushlane.dispatcher.admission import Admission
from pushlane.dispatcher.breaker import Breaker, Restraint
from pushlane.dispatcher.delay_limit import DelayLimit
from pushlane.dispatcher.delivery_pool import DeliveryPool
from pushlane.dispatcher.guards.claim_guard import ClaimGuard
from pushlane.dispatcher.guards.guard import Guards
from pushlane.dispatcher.guards.key_chains import Place
from pushlane.dispatcher.guards.key_order import KeyOrder
from pushlane.dispatcher.guards.poison_guard import PoisonGuard
from pushlane.dispatcher.guards.recipient_guard import RecipientGuard
from pushlane.dispatcher.heartbeat import Heartbeat
from pushlane.dispatcher.housekeeping.janitor import Janitor
from pushlane.dispatcher.intake import Intake
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_manager import LaneManager
from pushlane.dispatcher.loop import Loop
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.dispatcher.settlement.completion import Completion
from pushlane.dispatcher.settlement.outcomes import Outcomes, PauseRequests, backoff
from pushlane.dispatcher.settlement.receipts import Receipts
from pushlane.dispatcher.settlement.republisher import DelayLanes
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.shares import Shares
from pushlane.dispatcher.stats import Gauges, Stats, StatsCollector
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
_LANDING_S = 60.0
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
        self.stats = Stats()
        self._backend = backend
        self._settings = settings
        self._drain = drain
        self._clock_ms = clock_ms
        self._changed = asyncio.Event()
        self._awake = asyncio.Event()
        self._scheduler: Scheduler[OpenLane] = Scheduler(slots=settings.slots)
        self._shares = Shares(self._scheduler, settings.slots)
        self._roster = self._new_roster()
        self._completion = Completion(backend.registry, self._roster.find, self._roster.apply)
        self._pauses = PauseRequests(backend, self._roster.find, self._roster.apply)
        self._receipts = Receipts(
            backend.receipts, settings, sink.name, self.weights, self._roster.find, self.stats
        )
        self._settler = self._new_settler()
        self._intake = Intake(
            backend.registry, self._settler, self._roster.find, self._on_movable, self.stats
        )
        self._order = self._new_order()
        outcomes = self._new_outcomes()
        suspects = PoisonGuard(backend.ledger, settings, outcomes, self.stats)
        self._suspects = suspects if sink.hosts_code else None
        self._guards = self._new_guards(outcomes)
        self._outage = self._new_outage(sink, outcomes, clock_s)
        self._flights = self._new_flights(sink, outcomes)
        self._loop = self._new_loop()
        self._brim = DelayLimit(
            backend.broker, settings.later_max, self._roster.lanes.values, self._on_movable
        )
        self._id = f"dispatcher-{secrets.token_hex(4)}"
        self._started_at_ms = clock_ms()
        self._sink_name = sink.name
        self._janitor = Janitor(backend, self._id, settings)
        self._attendance = Heartbeat(backend, self._as_process)
        if registry is not None:
            registry.register(StatsCollector(self.stats, self._gauges(), sink.name))

    def stop(self) -> None:
        """Stop gently: take no more, finish what is in flight, send the acks."""
        self._loop.stop()

    def wake(self) -> None:
        """Look at once at what may go."""
        self._awake.set()

    def resting(self) -> list[Restraint]:
        """What gets fewer pushes than there are, since it fails."""
        return self._outage.resting(now_ms())

    def reads(self, lane: str) -> bool:
        """Whether this process has the lane open."""
        known = self._roster.lanes.get(lane)
        return known is not None and known.main.reader is not None

    def lanes(self) -> list[str]:
        """List the lanes that this process serves, the shared ones included."""
        return list(self._roster.lanes)

    def is_fed(self, lane: str) -> bool:
        """Whether this process has something of the lane at hand."""
        known = self._roster.lanes.get(lane)
        return known is not None and known.fed

    def quota(self, lane: str) -> int:
        """The quota in force for a lane that this process knows."""
        return self._scheduler.quota(self._roster.lanes[lane])

    def weights(self) -> dict[Level, int]:
        """The level weights in force."""
        return self._scheduler.weights()

    async def run(self) -> None:
        """Dispatch until `stop`, or with `drain` until nothing is left.

        When it is cancelled, what is in flight is given up, and its pushes are repeated.

        Raises:
            Unreachable: broker or registry did not answer at the start.
            UserError: lanes may hold messages of a format that this process does not read.
            PushlaneError: a side task died; names it.
        """
        await self._backend.broker.open_lane(DEAD_LANE)
        await self._attendance.enter()
        setting = self._settings.pool_lanes
        self._roster.open_pool(max(setting, await pool_size(self._backend.documents, setting)))
        work = [
            _supervised(name, part)
            for name, part in (
                ("loop", self._loop.run()),
                ("roster", self._roster.follow()),
                ("starts", self._roster.run_starts()),
                ("openers", self._roster.run_openers()),
                ("look-ups", self._roster.run_lookups()),
                ("pauses", self._pauses.run()),
                ("intake", self._intake.run(self._roster.lanes.values)),
                ("guards", self._guards.run()),
                ("settle moves", self._settler.run_moves()),
                ("settle ends", self._settler.run_ends()),
                ("order", self._order.run()),
                ("completion", self._completion.run()),
                ("brim", self._brim.run()),
                ("janitor", self._janitor.run()),
                ("presence", self._attendance.run()),
            )
        ]
        if self._drain:
            work.append(_supervised("drain", self._stop_when_drained()))
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            self._loop.stop()
            await self._settle_all()
        finally:
            await _end(work)
            await self._let_go()
        _raise_first(work)

    def _new_roster(self) -> LaneManager:
        return LaneManager(
            self._backend,
            self._scheduler,
            self.wake,
            self._on_task,
            self._fill,
            self._on_unread,
            self._settings.prefetch,
            self._clock_ms,
        )

    def _new_outcomes(self) -> Outcomes:
        first_s, longest_s = self._settings.retry_first_s, self._settings.retry_longest_s
        wait_s = backoff(first_s, longest_s)
        return Outcomes(self._settler, self._receipts, self.stats, self._pauses, wait_s)

    def _new_outage(self, sink: Sink, outcomes: Outcomes, clock_s: Callable[[], float]) -> Outage:
        settings = self._settings
        return Outage(
            Breaker(settings.slots, settings.outage_patience_s, quotes=not sink.hosts_code),
            sink.name,
            outcomes,
            self._roster.released,
            self.stats,
            drain=self._drain,
            clock_s=clock_s,
        )

    def _new_guards(self, outcomes: Outcomes) -> Guards:
        backend, settings = self._backend, self._settings
        return Guards(
            [
                *([self._suspects] if self._suspects is not None else []),
                RecipientGuard(
                    backend.recipient_windows, settings, outcomes, self._settler, self.stats
                ),
                ClaimGuard(backend.ledger, settings, outcomes, self._settler, self.stats),
            ]
        )

    def _new_settler(self) -> Settler:
        return Settler(
            self._backend,
            DelayLanes(self._backend, self._roster.find, self._roster.apply),
            self._receipts,
            self._completion.on_progress,
            self._roster.released,
            self.wake,
            self._on_durable,
        )

    def _new_order(self) -> KeyOrder:
        return KeyOrder(
            self._backend.registry,
            self._settler,
            self._roster.find_here,  # what waits on a lane that is left goes to others with it
            self._on_movable,
            self.stats,
            self._settings.order_timeout_s,
            self._settings.sink_timeout_s + _LANDING_S,
            lambda: self._outage.rests,
        )

    def _new_flights(self, sink: Sink, outcomes: Outcomes) -> DeliveryPool:
        return DeliveryPool(
            sink,
            self._settings.slots,
            self._guards,
            outcomes,
            self._outage,
            self._shares,
            self.stats,
            self.wake,
        )

    def _new_loop(self) -> Loop:
        return Loop(
            self._scheduler,
            self._shares,
            self._roster,
            self._intake,
            Admission(
                self._roster,
                self._settler,
                self._order,
                self._receipts,
                self.stats,
                self._clock_ms,
            ),
            self._outage,
            self._flights,
            self._settler,
            self._awake,
        )

    async def _settle_all(self) -> None:
        """What flies lands, then outcomes become durable and acked: each as far as time allows."""
        timeout_s = self._settings.drain_timeout_s
        until_s = time.monotonic() + timeout_s
        late = await self._flights.landed(timeout_s)
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
                await self._completion.conclude()
        except TimeoutError:
            log.warning(
                "%d outcomes are not acked: their pushes will be repeated",
                self._settler.unsettled,
                extra={"action": "drain_unsettled"},
            )

    async def _let_go(self) -> None:
        """Give up what still flies; others may have the lanes and the janitor's lease at once."""
        closing = (
            ("what flies", self._flights.give_up),
            ("the lanes", self._roster.close),
            ("the janitor's lease and what it says of itself", self._resign),
        )
        for what, close in closing:
            try:
                async with asyncio.timeout(_RELEASE_S):
                    await close()
            except (TimeoutError, PushlaneError):
                log.warning("%s: left to run out", what, extra={"action": "left_behind"})

    async def _resign(self) -> None:
        await self._attendance.close()
        await self._janitor.close()
        if self._suspects is not None:
            await self._suspects.close()

    async def _stop_when_drained(self) -> None:
        await self._roster.synced.wait()
        while any(self._can_move(task) for task in self._roster.tasks.values()):
            await self._changed.wait()
            self._changed.clear()
        self._loop.stop()

    def _can_move(self, task: Task) -> bool:
        return task.state is not State.PAUSED and not task.is_scheduled(self._clock_ms())

    def _on_durable(self, finished: Iterable[Place], moved: Iterable[Place]) -> None:
        self._order.settled(finished, moved)

    def _on_movable(self, lane: OpenLane) -> None:
        self._roster.released(lane)
        self.wake()

    def _fill(self, lane: OpenLane) -> None:
        self._intake.fill(lane)

    def _on_task(self, task: Task) -> None:
        self._completion.on_task(task)
        self._janitor.on_task(task)
        self._changed.set()

    def _on_unread(self, task_id: str) -> None:
        self._janitor.on_unread(task_id)
        self._changed.set()

    def _as_process(self) -> Process:
        return Process(
            id=self._id,
            kind="dispatcher",
            pid=os.getpid(),
            version=VERSION,
            format=FORMAT,
            lanes=len(self._roster.lanes),
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
        slow = nlargest(_MOST_SLOW, self._shares.slow(), key=lambda one: one.times)
        for lane, times, since_s in slow:
            yield SlowLane(lane.name, round(times, 1), now - round((now_s - since_s) * 1000))

    def _gauges(self) -> Gauges:
        return Gauges(
            in_flight=lambda: self._flights.in_flight,
            unsettled=lambda: self._settler.unsettled,
            receipts_waiting=lambda: self._receipts.waiting,
            parked=lambda: self._order.parked,
            lanes_open=lambda: len(self._roster.lanes),
            lanes_full=self._brim.full,
            refused=lambda: self._outage.waiting,
            resting=self.resting,
            backlog=self._backlog,
            weights=self.weights,
        )

    def _backlog(self) -> dict[Level, int]:
        waiting = dict.fromkeys(Level, 0)
        for task in self._roster.tasks.values():
            finished = self._completion.finished.get(task.id, 0)
            waiting[task.level] += max(0, (task.total or 0) - finished)
        return waiting


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
    """Kind and place of it: its text might hold what a push holds."""
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
