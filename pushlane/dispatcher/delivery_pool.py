"""Hands jobs to the sink, so many at once, and hears what became of them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

from pushlane.dispatcher.adaptive_cap import AdaptiveCap
from pushlane.dispatcher.budgets.budget_gate import BudgetGate
from pushlane.dispatcher.failures import Sign, sign_of
from pushlane.dispatcher.guards.guard import Guard, Guards, admitted, concluded
from pushlane.dispatcher.job import Job
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.outage import Outage, again
from pushlane.dispatcher.reasons import without_values
from pushlane.dispatcher.settlement.dead_address_recorder import DeadAddressRecorder
from pushlane.dispatcher.settlement.outcomes import Outcomes
from pushlane.dispatcher.shares import HeldSlots, Shares
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.naming import DEFAULT_SINK
from pushlane.lanes.ports import Delivery, Sink
from pushlane.lanes.push import DELIVERED, Arrival, Kind, Outcome, Scope
from pushlane.lanes.task_transitions import now_ms

log = logging.getLogger("pushlane.delivery_pool")

_GIVE_UP_S = 1.0
_AT_ONCE = 64
_STRAINED = frozenset({Sign.REFUSED, Sign.FAILED, Sign.SILENT})


class DeliveryPool:
    """Holds the slots. `wake` is called when some are free again.

    `sink_name` is how tasks name the sink. With a `cap` only as many are used as it allows.
    """

    def __init__(
        self,
        sink: Sink,
        slots: int,
        guards: Guards,
        outcomes: Outcomes,
        dead_addresses: DeadAddressRecorder,
        outage: Outage,
        gate: BudgetGate,
        shares: Shares[OpenLane],
        stats: Stats,
        wake: Callable[[], None],
        sink_name: str = DEFAULT_SINK,
        cap: AdaptiveCap | None = None,
    ) -> None:
        self._cap = cap
        self._sink = sink
        self._sink_name = sink_name
        self._slots = slots
        self._free = slots
        self._guards = guards
        self._outcomes = outcomes
        self._dead_addresses = dead_addresses
        self._outage = outage
        self._gate = gate
        self._shares = shares
        self._stats = stats
        self._wake = wake
        self._running: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return self._slots - self._free

    @property
    def room(self) -> int:
        """Return how many pushes may go now: one round of the loop for each would be slow."""
        free = max(0, self.usable - self.in_flight)
        return min(max(self._sink.batch_size, _AT_ONCE), free)

    @property
    def usable(self) -> int:
        """Return how many pushes may be in flight now."""
        return self._slots if self._cap is None else min(self._slots, self._cap.cap)

    def raise_failure(self) -> None:
        """Raise what a delivery died of: a fault of ours, since a sink's is an outcome."""
        if self._failure is not None:
            raise self._failure

    def launch(self, jobs: list[Job]) -> None:
        self._free -= len(jobs)
        now_s = time.monotonic()
        for guards, batch in self._batches(jobs):
            hold = self._shares.took(now_s, [job.lane for job in batch])
            task = asyncio.create_task(self._run(guards, batch, hold))
            self._running.add(task)
            task.add_done_callback(self._on_landed)

    async def landed(self, timeout_s: float) -> int:
        """Wait for what is in flight; returns how many did not come back in time."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        return self.in_flight

    async def give_up(self) -> None:
        """Cancel what is in flight: its pushes come again. A sink may be slow to hear of it."""
        for task in self._running:
            task.cancel()
        await self.landed(_GIVE_UP_S)

    def _on_landed(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self._wake()

    def _batches(self, jobs: list[Job]) -> Iterable[tuple[tuple[Guard, ...], list[Job]]]:
        """Group jobs that may share a call: a push that no guard applies to waits for none."""
        size = self._sink.batch_size
        if size == 1:
            yield from ((self._guards.of(job), [job]) for job in jobs)
            return
        groups: dict[tuple[tuple[Guard, ...], str, int], list[Job]] = {}
        mixes_tasks, guards_of = self._sink.mixes_tasks, self._guards.of
        for job in jobs:
            alone = id(job) if job.push.strikes else 0  # it may end the process
            key = (guards_of(job), "" if mixes_tasks else job.task.id, alone)
            if (group := groups.get(key)) is None:
                groups[key] = [job]
            else:
                group.append(job)
        for (guards, _, _), group in groups.items():
            for start in range(0, len(group), size):
                yield guards, group[start : start + size]

    async def _run(
        self, guards: tuple[Guard, ...], jobs: list[Job], hold: HeldSlots[OpenLane]
    ) -> None:
        slots = left = len(jobs)
        leave = jobs[0].leave
        charged = [job for job in jobs if job.charge is not None]
        try:
            if guards:
                jobs = await admitted(guards, jobs)
            if jobs and not self._outage.holds(leave):
                await concluded(guards, jobs, [None] * len(jobs))
                self._outage.put_back(jobs)
            elif jobs:
                outcomes = await self._deliver(jobs)
                waits_s = self._outage.landed(jobs, outcomes)
                left -= len(jobs)
                await self._conclude(guards, jobs, outcomes, waits_s)
        finally:
            self._gate.over(charged)
            self._outage.give_back(leave, left)
            self._free += slots
            now_s = time.monotonic()
            self._stats.held_s += (now_s - hold.since_s) * slots
            self._stats.released += slots
            self._shares.gave(now_s, hold)
            self._wake()

    async def _conclude(
        self,
        guards: tuple[Guard, ...],
        jobs: list[Job],
        outcomes: Sequence[Outcome],
        waits_s: Sequence[float | None],
    ) -> None:
        """Settle what landed. Guards see a wait as a retry; one that they forbid is settled."""
        final: Sequence[Outcome | None] = outcomes
        if waits_s:
            self._dead_addresses.hear(jobs, outcomes)
            passed_on = self._outcomes.passed_on
            final = [
                passed_on(job, outcome) if wait_s is None else again(outcome)
                for job, outcome, wait_s in zip(jobs, outcomes, waits_s, strict=True)
            ]
        if guards:
            final = await concluded(guards, jobs, final)
        at_ms = now_ms()
        if not waits_s and all(outcome is DELIVERED for outcome in final):
            self._outcomes.delivered(jobs, at_ms)
            return
        for job, outcome, wait_s in zip(jobs, final, waits_s or [None] * len(jobs), strict=True):
            if outcome is None:
                continue
            if job.charge is not None and _costs_no_attempt(outcome, wait_s):
                job.charge.uncount()
            if wait_s is not None and outcome.kind is Kind.RETRY:
                self._outage.keep(job, wait_s, outcome)
            else:
                self._outcomes.settle(job, outcome, at_ms)

    async def _deliver(self, jobs: list[Job]) -> Sequence[Outcome]:
        started = time.monotonic()
        at_ms, pick = now_ms(), self._stats.pick
        for job in jobs:
            job.dispatched_at_ms = at_ms
            pick(job.lane.level, job.task.app)
        outcomes = await self._ask_sink([self._delivery(job) for job in jobs])
        took_s = time.monotonic() - started
        self._stats.delivery.add(took_s)
        if self._cap is not None:
            for outcome in outcomes:
                is_error = sign_of(outcome) in _STRAINED
                self._cap.landed(took_s, self.in_flight, is_error=is_error)
        return outcomes

    def _delivery(self, job: Job) -> Delivery:
        push, level = job.push, job.task.level
        if push.addresses is None and push.payloads is None:
            return Delivery(push, level, push.recipient)
        return Delivery(push, level, push.address(self._sink_name), push.payload(self._sink_name))

    async def _ask_sink(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return the sink's outcomes; a sink that fails as a whole means a retry of each."""
        try:
            outcomes = await self._sink.deliver(batch)
            fault = _fault(outcomes, len(batch))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # somebody else's code
            if _is_given_up():
                raise
            log.warning(
                "sink %s raised %s",
                self._sink.name,
                type(error).__name__,
                extra={"action": "sink_raised"},
            )
            return [_unheard(f"sink raised {type(error).__name__}")] * len(batch)
        if fault:
            log.error(fault, extra={"action": "sink_misanswered"})
            return [_unheard(fault)] * len(batch)
        return without_values(outcomes, batch)


def _costs_no_attempt(outcome: Outcome, wait_s: float | None) -> bool:
    return outcome.kind is Kind.RETRY and (wait_s is not None or outcome.pause_task)


def _is_given_up() -> bool:
    """Tell whether this delivery was cancelled: a sink may raise a cancellation of its own, too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _unheard(reason: str) -> Outcome:
    return Outcome.retry(reason, arrival=Arrival.UNKNOWN)


def _fault(outcomes: Sequence[Outcome], count: int) -> str:
    """Return what is wrong with a sink's answer, or an empty text."""
    if len(outcomes) != count:
        return f"sink answered {len(outcomes)} outcomes for {count} pushes"
    for outcome in outcomes:
        if outcome is DELIVERED:
            continue
        if not (isinstance(outcome, Outcome) and isinstance(outcome.kind, Kind)):
            return f"sink answered a {type(outcome).__name__} that is no outcome"
        if not _is_text(outcome.reason):
            return f"sink answered a reason that is no valid text ({type(outcome.reason).__name__})"
        if not isinstance(outcome.after_s, int | float | None) or math.isnan(outcome.after_s or 0):
            return f"sink answered a wait that is no number ({type(outcome.after_s).__name__})"
        if not isinstance(outcome.scope, Scope | None):
            return f"sink answered a scope that is none ({type(outcome.scope).__name__})"
        if not isinstance(outcome.gone_at_ms, int):
            told = type(outcome.gone_at_ms).__name__
            return f"sink answered a time of death that is no whole number ({told})"
    return ""


def _is_text(reason: object) -> bool:
    """Tell whether it can be written down: a text may hold halves of characters."""
    if not isinstance(reason, str):
        return False
    try:
        return reason.isascii() or bool(reason.encode())
    except UnicodeEncodeError:
        return False
