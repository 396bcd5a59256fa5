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
from functools import partial
from typing import Any

from pushlane.backends.backend import Backend
from pushlane.backends.queries import pool_size
from pushlane.core.admission import Admission, Gate, Guard, Options
from pushlane.core.endings import EndingListener, Flusher
from pushlane.core.intake import Intake
from pushlane.core.lane import Lane, LaneInput
from pushlane.core.lanes import Lanes
from pushlane.core.loop import Loop
from pushlane.core.ports import Sink
from pushlane.core.republish import Republisher
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.slots import Slots, Watcher
from pushlane.core.task import now_ms
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.breaker import Breaker
from pushlane.dispatcher.checked_sink import CheckedSink
from pushlane.dispatcher.deaths import DeathWarnings, PauseRequests, StopIfDead
from pushlane.dispatcher.gates.budget_gate import (
    AppQuotas,
    BudgetGate,
    LimitsFollower,
    OwnLaneRequests,
)
from pushlane.dispatcher.gates.budgets import Budgets
from pushlane.dispatcher.gates.key_order import KeyOrder
from pushlane.dispatcher.gates.times import PutOffNotes, Times
from pushlane.dispatcher.guards.claim_guard import ClaimGuard
from pushlane.dispatcher.guards.poison_guard import PoisonGuard
from pushlane.dispatcher.guards.recipient_guard import (
    ContactGuard,
    DeadAddressRecorder,
    RecipientGuard,
)
from pushlane.dispatcher.lanes import DelayLimit, LaneManager, ReaderOpener
from pushlane.dispatcher.outage import Outage, TargetMemory
from pushlane.dispatcher.progress import TaskRates
from pushlane.dispatcher.receipts import Receipts
from pushlane.dispatcher.slow import AdaptiveCap, CapWatch, Shares
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.tasks import Completion, FurtherLanes, KnownTasks, TaskLookups
from pushlane.dispatcher.tracing.traces import LineTraces, Tracing
from pushlane.dispatcher.waits import Waits
from pushlane.model.limits import Limits
from pushlane.model.presence import SinkTarget
from pushlane.model.targets import SinkTargets, target_of
from pushlane.model.waits import Cause
from pushlane.settings import Settings
from pushlane.util.retrying import backoff

log = logging.getLogger("pushlane.dispatcher")

_LANDING_S = 60.0
_SETTLE_S = 1.5
_FIRST_LANES_S = 2.0


@dataclass(frozen=True)
class Clocks:
    """The time: Unix milliseconds, and for breakers seconds on a monotonic clock."""

    now_ms: Callable[[], int] = now_ms
    monotonic_s: Callable[[], float] = time.monotonic


class Shared:
    """The parts of a process that all of its lines use.

    `limits` are those that hold where none is set at runtime.
    """

    def __init__(
        self, backend: Backend, clocks: Clocks, limits: Limits, tracing: Tracing | None = None
    ) -> None:
        self.backend = backend
        self.tracing = tracing
        self.clocks = clocks
        self.limits = LimitsFollower(backend.documents)
        self.tasks = KnownTasks(backend, self.limits.look)
        self.completion = Completion(backend.registry, self.tasks)
        self.pauses = PauseRequests(backend, self.tasks)
        self.stops = StopIfDead(backend, self.tasks)
        self.budgets = Budgets(backend.limiter, limits, clock_ms=clocks.now_ms)
        self.own_lanes = OwnLaneRequests(backend, self.tasks)
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
        self._shared = shared
        self._settings = settings
        self._drains = drain
        self._began = asyncio.Event()
        self.own = settings.sinks.get(name)
        self.stats = Stats(hosts_code=sink.hosts_code)
        self.scheduler: Scheduler[Lane] = Scheduler(slots=settings.slots)
        self.waits = Waits()
        self.lanes = Lanes(self.scheduler, shared.clocks.monotonic_s, self.waits.watch)
        self.wake = self.lanes.wake
        tracing = shared.tracing
        self.traces = None if tracing is None else LineTraces(tracing, name)
        self._make_settlement()
        self._make_lanes()
        self._make_outage(drain=drain)
        self.options = Options(self._make_gates(), self._make_guards())
        self._make_delivery()

    def _make_settlement(self) -> None:
        """Make the parts that settle what became of pushes."""
        shared, settings, stats = self._shared, self._settings, self.stats
        backend = shared.backend
        self.receipts = Receipts(
            backend.receipts,
            settings,
            self.name,
            self.scheduler.weights,
            self.waits,
            stats,
            shared.clocks.monotonic_s,
            self.traces,
        )
        self.death_warnings = DeathWarnings(self.name, shared.clocks.monotonic_s)
        self.task_rates = TaskRates(shared.clocks.monotonic_s)
        self._listeners: list[EndingListener] = [
            PutOffNotes(backend.registry),
            shared.completion,
            shared.stops,
            self.death_warnings,
            self.task_rates,
        ]
        self.flusher = Flusher(
            backend.broker, backend.registry, self.receipts.write, self._listeners
        )
        self.republisher = Republisher(
            backend.broker,
            FurtherLanes(backend, shared.tasks),
            self.flusher,
            numbered=not settings.capabilities.remembers_sources,
        )
        self.settler = Settler(
            self.name,
            self.flusher,
            self.republisher,
            stats,
            backoff(settings.retry_first_s, settings.retry_longest_s),
            shared.pauses.ask,
            self.waits.carried,
        )

    def _make_lanes(self) -> None:
        """Make the parts that read lanes, and know which there are."""
        shared, settings, lanes = self._shared, self._settings, self.lanes
        backend, tasks = shared.backend, shared.tasks
        shared.limits.add_listener(AppQuotas(self.scheduler))
        self.intake = Intake(
            backend.registry,
            self.settler.ack,
            tasks.find,
            self.stats,
            lambda: backend.broker.in_doubt,
            lambda: backend.broker.held_since_s,
        )
        self.opener = ReaderOpener(backend.broker, tasks, lanes, self.intake.fill)
        self.manager = LaneManager(
            self.name, tasks, lanes, self.opener, settings.prefetch, shared.clocks.now_ms
        )
        self.lookups = TaskLookups(
            backend.registry, tasks, lanes, self.settler, self.stats, shared.clocks.monotonic_s
        )
        self.delay_limit = DelayLimit(backend.broker, settings.later_max, lanes.by_name.values)
        tasks.add_listener(self.manager)

    def _make_outage(self, *, drain: bool) -> None:
        shared, settings, clocks = self._shared, self._settings, self._shared.clocks
        quotes = not self._sink.hosts_code
        breaker = Breaker(settings.slots, settings.outage_patience_s, quotes=quotes)
        self.outage = shared.outages[self.name] = Outage(
            breaker, self.settler, self.stats, drain=drain, clock_s=clocks.monotonic_s
        )
        self.target_memory = TargetMemory(
            shared.backend.documents, lambda: self.target, self.outage, clocks.now_ms, self.wake
        )

    def _make_gates(self) -> list[Gate]:
        """List what may keep pushes back before they take a slot, in the order it is asked.

        A push that has to wait for its time blocks nothing behind it, and no budget is charged for
        one that waits for another.
        """
        shared, settings = self._shared, self._settings
        times = Times(self.settler, self.stats, shared.clocks.now_ms)
        self.key_order = KeyOrder(
            shared.backend.registry,
            self.settler,
            shared.tasks.find,
            self.stats,
            settings.order_timeout_s,
            settings.sink_timeout_s + _LANDING_S,
            shared.rests,
        )
        cost = 1.0 if self.own is None else self.own.cost
        self.gate = BudgetGate(
            self.name, cost, shared.budgets, shared.own_lanes, self.stats, self.scheduler.weights
        )
        self._listeners.append(self.key_order)
        shared.tasks.add_listener(self.gate)
        shared.tasks.add_listener(self.key_order)
        shared.budgets.add_listener(self.gate)
        shared.limits.add_listener(self.gate)
        return [times, self.key_order, self.gate]

    def _make_guards(self) -> list[Guard]:
        """List what may keep pushes from the sink while they hold a slot, in the order it is asked.

        The watch over the process comes first, as it is about what ends it; then what drops
        duplicates, so that none of them takes a place of a cap; a claim is made last of all.
        """
        shared, backend = self._shared, self._shared.backend
        common = (self._settings, self.settler, self.stats)
        clock_ms = shared.clocks.now_ms
        self.contact_guard = contact = ContactGuard(backend, *common, clock_ms)
        shared.limits.add_listener(contact)
        self.dead_addresses = DeadAddressRecorder(
            backend, self.name, self._settings, self.stats, clock_ms, contact.on_dead_address
        )
        self.poison_guard = PoisonGuard(backend.ledger, *common) if self._sink.hosts_code else None
        guards: list[Guard] = [
            RecipientGuard(backend.recipient_windows, *common),
            contact,
            ClaimGuard(backend.ledger, *common),
        ]
        return guards if self.poison_guard is None else [self.poison_guard, *guards]

    def _make_delivery(self) -> None:
        """Make the parts that choose pushes and bring them to the sink."""
        shared, settings, lanes = self._shared, self._settings, self.lanes
        self.shares = Shares(self.scheduler, settings.slots)
        watchers: list[Watcher] = [self.shares, self.gate, self.dead_addresses]
        own, cap = self.own, None
        if own is not None and own.least_slots is not None:
            cap = CapWatch(AdaptiveCap(min(own.least_slots, settings.slots), settings.slots))
            watchers.insert(0, cap)
        self.slots = Slots(
            CheckedSink(self._sink, self.traces),
            settings.slots,
            self.settler,
            self.outage,
            watchers,
            self.stats,
            lanes,
        )
        if cap is not None:
            cap.limit(self.slots)
        admission = Admission(
            shared.tasks.find,
            self.lookups.ask,
            self.options,
            lanes,
            self.settler,
            self.stats,
            shared.clocks.now_ms,
        )
        self.loop = Loop(
            lanes, self.intake, admission, self.outage, self.slots, self.flusher, self._look
        )

    def _look(self, now_s: float) -> None:
        """Do once a round what is not done push by push."""
        self.shares.look(now_s)
        late = self.flusher.is_late and not self.outage.rests  # then nobody asks for room
        held = self.outage.rests or self.outage.holds_back
        self.waits.note(Cause.DURABLE if late else Cause.BREAKER if held else None)

    @property
    def target(self) -> SinkTarget | None:
        """What the sink delivers to now, which a file of its options may change.

        None until the process has read the key of the hashes, at its start.
        """
        return self._shared.targets.of(target_of(self._sink))

    def at_hand(self) -> int:
        """Return how many pushes off lanes wait here for their turn. Any thread may ask."""
        return sum(message.untaken for one in self._inputs() for message in one.at_hand())

    def prefetch_age_s(self) -> float:
        """Return for how long the oldest of them has been off its lane. Any thread may ask."""
        came_s = (message.pulled_s for one in self._inputs() for message in one.at_hand())
        oldest_s = min(came_s, default=0.0)
        return time.monotonic() - oldest_s if oldest_s else 0.0

    def _inputs(self) -> list[LaneInput]:
        lanes = list(self.lanes.by_name.values())
        return [one for lane in lanes for one in lane.inputs if one.messages]

    def side_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield what runs beside the others, each under its name."""
        yield "loop", self._run_loop()
        yield "starts", self.manager.run_starts()
        yield "pool", self._open_pool()
        yield "openers", self.opener.run()
        yield "look-ups", self.lookups.run()
        yield "intake", self.intake.run(self.lanes.by_name.values)
        yield "guards", self._run_guards()
        yield "republish", self.republisher.run()
        yield "settle", self.flusher.run()
        if self._settings.receipts != "off":
            yield "receipts", self.receipts.run()
        yield "key order", self.key_order.run()
        yield "delay limit", self.delay_limit.run()
        yield "dead addresses", self.dead_addresses.run()
        yield "death warnings", self.death_warnings.run()
        yield "target", self.target_memory.run()

    async def _run_loop(self) -> None:
        await self.opener.first_opened(_FIRST_LANES_S)  # else all slots go to those open first
        self._began.set()
        await self.loop.run()

    async def _open_pool(self) -> None:
        """Read the pool's lanes, once all that are needed first are open.

        Those of low tasks are, as the process hears of these. Of others one that drains reads only
        what something is on.
        """
        await self._began.wait()
        backend, read_more = self._shared.backend, self.manager.open_used_pool
        if not self._drains:
            setting, read_more = self._settings.pool_lanes, self.manager.open_old_pool
            read_size = partial(pool_size, backend.documents, setting)
            size = await Backoff(log, "the registry").until_done(read_size)
            self.manager.open_pool(max(setting, size))
        await Backoff(log, "the broker").until_done(partial(read_more, backend.broker))
        await asyncio.get_running_loop().create_future()

    async def _run_guards(self) -> None:
        await asyncio.gather(*(guard.run() for guard in self.options.guards))

    async def settle_all(self) -> None:
        """Let what is in flight land and its outcomes become durable, as far as time allows."""
        timeout_s = self._settings.drain_timeout_s
        until_s = time.monotonic() + timeout_s
        late = await self.slots.landed(timeout_s)
        if late:
            log.warning(
                "%d deliveries did not end in %g s: they will be repeated",
                late,
                timeout_s,
                extra={"action": "drain_late"},
            )
        try:
            async with asyncio.timeout(max(_SETTLE_S, until_s - time.monotonic())):
                await self.flusher.drain()
        except TimeoutError:
            log.warning(
                "%d outcomes are not acked: their pushes will be repeated",
                self.flusher.unsettled,
                extra={"action": "drain_unsettled"},
            )
        await self.receipts.drain()
        await self.dead_addresses.drain(_SETTLE_S)
        self.death_warnings.close()
        await self.target_memory.drain(_SETTLE_S)

    async def close_guards(self) -> None:
        """Say that this process ends well."""
        if self.poison_guard is not None:
            await self.poison_guard.close()
