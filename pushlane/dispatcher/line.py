"""A line: all that one sink has in a process, from its lanes' readers to the settling of outcomes.

Each sink has a ring, slots, a breaker and pool lanes of its own, so that levels share *this sink*,
and a sink that rests or is slow holds up nobody else's pushes. What lines share is in `Shared`.
The parts are made in the order in which they need each other, and nothing is passed back: a part is
given only what was made before it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from pushlane.dispatcher.adaptive_cap import AdaptiveCap
from pushlane.dispatcher.admission import Admission
from pushlane.dispatcher.breaker import Breaker, Restraint
from pushlane.dispatcher.budgets.budget_gate import BudgetGate, OwnLaneRequests
from pushlane.dispatcher.budgets.budgets import Budgets
from pushlane.dispatcher.delay_limit import DelayLimit
from pushlane.dispatcher.delivery_pool import DeliveryPool
from pushlane.dispatcher.guards.claim_guard import ClaimGuard
from pushlane.dispatcher.guards.contact_guard import ContactGuard
from pushlane.dispatcher.guards.guard import Guard, Guards
from pushlane.dispatcher.guards.key_order import KeyOrder
from pushlane.dispatcher.guards.poison_guard import PoisonGuard
from pushlane.dispatcher.guards.recipient_guard import RecipientGuard
from pushlane.dispatcher.intake import Intake
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_manager import LaneManager
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.limits_follower import AppLimits, LimitsFollower
from pushlane.dispatcher.line_report import LineReport
from pushlane.dispatcher.loop import Loop
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.reader_opener import ReaderOpener
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.dispatcher.settlement.completion import Completion
from pushlane.dispatcher.settlement.dead_address_recorder import DeadAddressRecorder
from pushlane.dispatcher.settlement.death_warnings import DeathWarnings
from pushlane.dispatcher.settlement.outcomes import Outcomes, PauseRequests, backoff
from pushlane.dispatcher.settlement.receipts import Receipts
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.settlement.stop_if_dead import StopIfDead
from pushlane.dispatcher.shares import Shares
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.target_memory import TargetMemory
from pushlane.dispatcher.task_lookups import TaskLookups
from pushlane.lanes.backend import Backend
from pushlane.lanes.limits import Limits
from pushlane.lanes.ports import Sink
from pushlane.lanes.presence import SinkTarget
from pushlane.lanes.settings import Settings
from pushlane.lanes.sink_target import SinkTargets, target_of
from pushlane.lanes.task_transitions import now_ms

log = logging.getLogger("pushlane.dispatcher")

_LANDING_S = 60.0
_SETTLE_S = 1.5


@dataclass(frozen=True)
class Clocks:
    """The time: Unix milliseconds, and for breakers seconds on a monotonic clock."""

    now_ms: Callable[[], int] = now_ms
    monotonic_s: Callable[[], float] = time.monotonic


class Shared:
    """The parts of a process that all of its lines use.

    `limits` are those that hold where none is set at runtime.
    """

    def __init__(self, backend: Backend, clocks: Clocks, limits: Limits) -> None:
        self.backend = backend
        self.clocks = clocks
        self.tasks = KnownTasks(backend)
        self.completion = Completion(backend.registry, self.tasks)
        self.pauses = PauseRequests(backend, self.tasks)
        self.stops = StopIfDead(backend, self.tasks)
        self.budgets = Budgets(backend.limiter, limits, clock_ms=clocks.now_ms)
        self.own_lanes = OwnLaneRequests(backend, self.tasks)
        self.limits = LimitsFollower(backend.documents)
        self.targets = SinkTargets(backend.documents)
        self.outages: dict[str, Outage] = {}
        self.limits.add_listener(self.budgets)

    def rests(self, sink: str) -> bool:
        """Tell whether a sink rests, as far as this process serves it."""
        outage = self.outages.get(sink)
        return outage is not None and outage.rests


class Line:
    """Drains the lanes of the sink `name`. `settings` are those that hold for this sink."""

    def __init__(
        self, shared: Shared, name: str, sink: Sink, settings: Settings, *, drain: bool
    ) -> None:
        self.name = name
        self._sink = sink
        self._targets = shared.targets
        self._settings = settings
        self.stats = Stats()
        self._awake = asyncio.Event()
        self._make_lanes(shared)
        self.gate = self._make_gate(shared)
        self._make_delivery(shared, drain=drain)
        self.loop = self._make_loop(shared)
        self.report = LineReport(
            name,
            settings,
            self.stats,
            self.ring,
            self.pool,
            self.outage,
            self.shares,
            self.lookups,
        )
        shared.tasks.add_listener(self.manager)
        shared.tasks.add_listener(self.gate)
        shared.budgets.add_listener(self.gate)

    def _make_lanes(self, shared: Shared) -> None:
        """Make the parts that know lanes, and settle what became of pushes."""
        backend, tasks, settings = shared.backend, shared.tasks, self._settings
        wake, clock_ms = self.wake, shared.clocks.now_ms
        self.scheduler: Scheduler[OpenLane] = Scheduler(slots=settings.slots)
        shared.limits.add_listener(AppLimits(self.scheduler))
        self.ring = ring = LaneRing(self.scheduler, wake, shared.clocks.monotonic_s)
        self.receipts = Receipts(
            backend.receipts, settings, self.name, self.scheduler.weights, tasks.find, self.stats
        )
        completion, stops = shared.completion, shared.stops
        self.settler = Settler(
            backend,
            tasks,
            self.receipts,
            completion,
            stops,
            ring,
            wake,
            numbered=not settings.capabilities.remembers_sources,
        )
        self.death_warnings = DeathWarnings(self.name, shared.clocks.monotonic_s)
        wait_s = backoff(settings.retry_first_s, settings.retry_longest_s)
        self.outcomes = Outcomes(
            self.name,
            self.settler,
            self.receipts,
            self.stats,
            shared.pauses,
            self.death_warnings,
            wait_s,
            hosts_code=self._sink.hosts_code,
        )
        self.dead_addresses = DeadAddressRecorder(
            backend,
            self.name,
            settings,
            self.stats,
            clock_ms,
            hosts_code=self._sink.hosts_code,
        )
        self.intake = Intake(
            backend.registry,
            self.settler,
            tasks.find,
            ring.resume,
            self.stats,
            lambda: backend.broker.in_doubt,
        )
        self.opener = ReaderOpener(backend.broker, tasks, ring, self.intake.fill)
        self.manager = LaneManager(
            self.name, tasks, ring, self.opener, settings.prefetch, wake, clock_ms
        )
        self.lookups = TaskLookups(
            backend.registry,
            tasks,
            ring,
            self.settler,
            self.stats,
            wake,
            shared.clocks.monotonic_s,
        )
        self.delay_limit = DelayLimit(
            backend.broker, settings.later_max, ring.lanes.values, ring.resume
        )

    def _make_gate(self, shared: Shared) -> BudgetGate:
        own = self._settings.sinks.get(self.name)
        return BudgetGate(
            self.name,
            1.0 if own is None else own.cost,
            shared.budgets,
            shared.own_lanes,
            self.ring,
            self.stats,
            self.wake,
        )

    def _make_delivery(self, shared: Shared, *, drain: bool) -> None:
        """Make the parts that bring pushes to the sink."""
        sink, settings, stats = self._sink, self._settings, self.stats
        breaker = Breaker(settings.slots, settings.outage_patience_s, quotes=not sink.hosts_code)
        self.outage = Outage(
            breaker,
            self.name,
            self.outcomes,
            self.ring.released,
            stats,
            drain=drain,
            clock_s=shared.clocks.monotonic_s,
        )
        self.target_memory = TargetMemory(
            shared.backend.documents,
            lambda: self.target,
            self.outage,
            shared.clocks.now_ms,
            self.wake,
        )
        self.key_order = KeyOrder(
            shared.backend.registry,
            self.settler,
            shared.tasks,
            self.ring,
            stats,
            settings.order_timeout_s,
            settings.sink_timeout_s + _LANDING_S,
            self.name,
            shared.rests,
        )
        shared.tasks.add_listener(self.key_order)
        shared.outages[self.name] = self.outage
        self.poison_guard = (
            PoisonGuard(shared.backend.ledger, settings, self.outcomes, stats)
            if sink.hosts_code
            else None
        )
        self.guards = self._make_guards(shared)
        self.shares = Shares(self.scheduler, settings.slots)
        self.pool = DeliveryPool(
            sink,
            settings.slots,
            self.guards,
            self.outcomes,
            self.dead_addresses,
            self.outage,
            self.gate,
            self.shares,
            stats,
            self.wake,
            sink_name=self.name,
            cap=self._make_cap(),
        )

    def _make_cap(self) -> AdaptiveCap | None:
        own = self._settings.sinks.get(self.name)
        if own is None or own.least_slots is None:
            return None
        return AdaptiveCap(min(own.least_slots, self._settings.slots), self._settings.slots)

    def _make_guards(self, shared: Shared) -> Guards:
        backend = shared.backend
        common = (self._settings, self.outcomes, self.settler, self.stats)
        self.contact_guard = contact_guard = ContactGuard(
            backend, self.name, *common, shared.clocks.now_ms
        )
        shared.limits.add_listener(contact_guard)
        self.dead_addresses.add_listener(contact_guard.on_dead_address)
        guards: list[Guard] = [
            RecipientGuard(backend.recipient_windows, *common),
            contact_guard,
            ClaimGuard(backend.ledger, *common),
        ]
        return Guards(guards if self.poison_guard is None else [self.poison_guard, *guards])

    def _make_loop(self, shared: Shared) -> Loop:
        admission = Admission(
            self.name,
            shared.tasks,
            self.lookups,
            self.ring,
            self.settler,
            self.outcomes,
            self.key_order,
            self.gate,
            self.stats,
            shared.clocks.now_ms,
        )
        return Loop(
            self.scheduler,
            self.shares,
            self.ring,
            self.opener,
            self.intake,
            admission,
            self.gate,
            self.outage,
            self.pool,
            self.settler,
            self._awake,
        )

    @property
    def target(self) -> SinkTarget | None:
        """What the sink delivers to now, which a file of its options may change.

        None until the process has read the key of the hashes, at its start.
        """
        return self._targets.of(target_of(self._sink))

    def wake(self) -> None:
        """Look at once at what may go."""
        self._awake.set()

    def resting(self) -> list[Restraint]:
        """List what gets fewer pushes than there are, since it fails."""
        return self.outage.resting(now_ms())

    def side_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield what runs beside the others, each under its name."""
        yield "loop", self.loop.run()
        yield "starts", self.manager.run_starts()
        yield "openers", self.opener.run()
        yield "look-ups", self.lookups.run()
        yield "intake", self.intake.run(self.ring.lanes.values)
        yield "guards", self.guards.run()
        yield "republish", self.settler.run_moves()
        yield "settle", self.settler.run_ends(self.key_order.settled)
        yield "key order", self.key_order.run()
        yield "delay limit", self.delay_limit.run()
        yield "dead addresses", self.dead_addresses.run()
        yield "death warnings", self.death_warnings.run()
        yield "target", self.target_memory.run()

    async def settle_all(self) -> None:
        """Let what is in flight land and its outcomes become durable, as far as time allows."""
        timeout_s = self._settings.drain_timeout_s
        until_s = time.monotonic() + timeout_s
        late = await self.pool.landed(timeout_s)
        if late:
            log.warning(
                "%d deliveries did not end in %g s: they will be repeated",
                late,
                timeout_s,
                extra={"action": "drain_late"},
            )
        try:
            async with asyncio.timeout(max(_SETTLE_S, until_s - time.monotonic())):
                await self.settler.drain()
        except TimeoutError:
            log.warning(
                "%d outcomes are not acked: their pushes will be repeated",
                self.settler.unsettled,
                extra={"action": "drain_unsettled"},
            )
        await self.dead_addresses.drain(_SETTLE_S)
        self.death_warnings.close()
        await self.target_memory.drain(_SETTLE_S)

    async def close_guards(self) -> None:
        """Say that this process ends well."""
        if self.poison_guard is not None:
            await self.poison_guard.close()
