"""The parts of one dispatcher, made in the order in which they need each other.

Nothing is passed back: a part is given only what was made before it. What it has to tell to later
ones it tells when it runs, or to those that listen to `KnownTasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pushlane.dispatcher.admission import Admission
from pushlane.dispatcher.breaker import Breaker
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
from pushlane.dispatcher.loop import Loop
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.reader_opener import ReaderOpener
from pushlane.dispatcher.registry_follower import RegistryFollower, TaskLookups
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.dispatcher.settlement.completion import Completion
from pushlane.dispatcher.settlement.outcomes import Outcomes, PauseRequests, backoff
from pushlane.dispatcher.settlement.receipts import Receipts
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.shares import Shares
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.backend import Backend
from pushlane.lanes.naming import DEFAULT_SINK
from pushlane.lanes.ports import Sink
from pushlane.lanes.settings import Settings

_LANDING_S = 60.0


class LaneParts:
    """The parts that know tasks and lanes, and settle what became of pushes."""

    def __init__(
        self,
        backend: Backend,
        sink: Sink,
        settings: Settings,
        clock_ms: Callable[[], int],
    ) -> None:
        self.stats = Stats()
        self.awake = asyncio.Event()
        wake = self.awake.set
        self.scheduler: Scheduler[OpenLane] = Scheduler(slots=settings.slots)
        self.tasks = tasks = KnownTasks(backend)
        self.ring = ring = LaneRing(self.scheduler, wake, clock_ms)
        self.completion = Completion(backend.registry, tasks)
        self.receipts = Receipts(
            backend.receipts, settings, sink.name, self.scheduler.weights, tasks.find, self.stats
        )
        self.settler = Settler(backend, tasks, self.receipts, self.completion, ring, wake)
        self.pauses = PauseRequests(backend, tasks)
        wait_s = backoff(settings.retry_first_s, settings.retry_longest_s)
        self.outcomes = Outcomes(self.settler, self.receipts, self.stats, self.pauses, wait_s)
        self.intake = Intake(backend.registry, self.settler, tasks.find, ring.resume, self.stats)
        self.opener = ReaderOpener(backend.broker, tasks, ring, self.intake.fill)
        self.manager = LaneManager(tasks, ring, self.opener, settings.prefetch, wake, clock_ms)
        self.lookups = TaskLookups(tasks, ring, wake)
        self.follower = RegistryFollower(backend, tasks, self.scheduler, self.manager, wake)
        tasks.add_listener(self.manager)
        tasks.add_listener(self.completion)
        self.delay_limit = DelayLimit(
            backend.broker, settings.later_max, ring.lanes.values, ring.resume
        )


class DeliveryParts:
    """The parts that choose pushes and bring them to the sink."""

    def __init__(
        self,
        lanes: LaneParts,
        backend: Backend,
        sink: Sink,
        settings: Settings,
        clock_ms: Callable[[], int],
        clock_s: Callable[[], float],
        *,
        drain: bool,
    ) -> None:
        slots, stats, outcomes, ring = settings.slots, lanes.stats, lanes.outcomes, lanes.ring
        breaker = Breaker(slots, settings.outage_patience_s, quotes=not sink.hosts_code)
        self.outage = Outage(
            breaker, sink.name, outcomes, ring.released, stats, drain=drain, clock_s=clock_s
        )
        self.key_order = _key_order(lanes, backend, settings, breaker)
        self.poison_guard = (
            PoisonGuard(backend.ledger, settings, outcomes, stats) if sink.hosts_code else None
        )
        self.contact_guard = ContactGuard(
            backend, DEFAULT_SINK, settings, outcomes, lanes.settler, stats, clock_ms
        )
        self.guards = _guards(self.poison_guard, self.contact_guard, lanes, backend, settings)
        self.shares = Shares(lanes.scheduler, slots)
        self.pool = DeliveryPool(
            sink,
            slots,
            self.guards,
            outcomes,
            self.outage,
            self.shares,
            stats,
            lanes.awake.set,
        )
        self.loop = _loop(lanes, self, clock_ms)


def _key_order(
    lanes: LaneParts, backend: Backend, settings: Settings, breaker: Breaker
) -> KeyOrder:
    return KeyOrder(
        backend.registry,
        lanes.settler,
        lanes.tasks,
        lanes.ring,
        lanes.stats,
        settings.order_timeout_s,
        settings.sink_timeout_s + _LANDING_S,
        breaker,
    )


def _guards(
    poison_guard: PoisonGuard | None,
    contact_guard: ContactGuard,
    lanes: LaneParts,
    backend: Backend,
    settings: Settings,
) -> Guards:
    common = (settings, lanes.outcomes, lanes.settler, lanes.stats)
    guards: list[Guard] = [
        RecipientGuard(backend.recipient_windows, *common),
        contact_guard,
        ClaimGuard(backend.ledger, *common),
    ]
    return Guards(guards if poison_guard is None else [poison_guard, *guards])


def _loop(lanes: LaneParts, delivery: DeliveryParts, clock_ms: Callable[[], int]) -> Loop:
    admission = Admission(
        lanes.tasks,
        lanes.lookups,
        lanes.ring,
        lanes.settler,
        delivery.key_order,
        lanes.receipts,
        lanes.stats,
        clock_ms,
    )
    return Loop(
        lanes.scheduler,
        delivery.shares,
        lanes.ring,
        lanes.opener,
        lanes.intake,
        admission,
        delivery.outage,
        delivery.pool,
        lanes.settler,
        lanes.awake,
    )
