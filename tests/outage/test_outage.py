"""A sink that fails, and a dispatcher in front of it: no push loses anything by an outage.

The breaker's time is the test's: it jumps as fast as the dispatcher can follow.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import ClaimResult
from pushlane.backends.ports import of_each
from pushlane.core.lane import ROOM, Job, Lane, Why
from pushlane.core.names import is_later
from pushlane.core.ports import Delivery, Source
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Push, encode
from pushlane.core.task import DeliveryMode, Level, Task, now_ms
from pushlane.core.task import State as TaskState
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.breaker import (
    PROBE_EVERY_S,
    QUIET_S,
    Breaker,
    BreakerState,
    View,
    restraint,
)
from pushlane.dispatcher.gates.key_order import StallDetector
from pushlane.dispatcher.outage import LONGEST_IN_MEMORY_S, Outage
from pushlane.dispatcher.stats import Stats
from pushlane.model import task_changes
from pushlane.settings import Settings
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    message_of,
    until,
    until_state,
)
from tests.order.test_ordered_dispatch import add_ordered
from tests.outage.outages import BROKEN, BUSY, NOT_FOUND

SLOTS = 50
STEP_S = 0.05
TRICKLED = 10  # what may go in the 2 s until the sink is taken for down
PROBES_PER_S = 0.3
EARLY_PROBES = 6


class Clock:
    """Seconds since the first delivery, which pass while `run` runs and it is not held."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.is_held = False

    def __call__(self) -> float:
        return self.now_s

    async def run(self, dispatcher: Dispatcher, sink: MemorySink) -> None:
        await sink.until_received(1)
        while True:
            self.now_s += 0.0 if self.is_held else STEP_S
            dispatcher.wake()
            await asyncio.to_thread(int)


class Sink(MemorySink):
    """Answers `failure` while it is down by the clock; remembers what it took and what it did not.

    `spares` answers otherwise for some, None for all others.
    """

    def __init__(
        self,
        clock: Clock,
        until_s: float,
        failure: Outcome = BUSY,
        well_for: int = 0,
        spares: Callable[[Delivery], Outcome | None] = lambda _: None,
    ) -> None:
        super().__init__(self._say)
        self._clock = clock
        self._until_s = until_s
        self._failure = failure
        self._well_for = well_for
        self._spares = spares
        self.took: list[Push] = []
        self.failed: list[Push] = []

    def recover(self) -> None:
        self._until_s = self._clock.now_s

    def _say(self, delivery: Delivery) -> Outcome:
        if (own := self._spares(delivery)) is not None:
            return own
        if len(self.took) < self._well_for or self._clock.now_s >= self._until_s:
            self.took.append(delivery.push)
            return DELIVERED
        self.failed.append(delivery.push)
        return self._failure


class Watched(Wrapped):
    """A broker that remembers which later lanes were made, and what went there with which delay."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.opened: list[str] = []
        self.delays_s: list[float] = []

    async def open_lane(self, lane: str) -> None:
        if is_later(lane) and not lane.startswith("pool-"):
            self.opened.append(lane)
        await self._real.open_lane(lane)

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0,
        source: Source | None = None,
    ) -> None:
        if is_later(lane):
            self.delays_s += of_each(delay_s, len(bodies))
        await self._real.publish(lane, bodies, delay_s=delay_s, source=source)


@asynccontextmanager
async def watched(folder: Path, **given: Any) -> AsyncIterator[tuple[Backend, Settings, Watched]]:
    async with backend_in(folder, **{"slots": SLOTS, **given}) as (backend, settings):
        broker = Watched(backend.broker)
        yield with_other(backend, broker=broker), settings, broker


@asynccontextmanager
async def ticking(
    backend: Backend, sink: MemorySink, settings: Settings, clock: Clock, **options: Any
) -> AsyncIterator[Dispatcher]:
    """A dispatcher whose breaker's time runs meanwhile."""
    async with dispatching(backend, sink, settings, clock_s=clock, **options) as dispatcher:
        running = asyncio.create_task(clock.run(dispatcher, sink))
        try:
            yield dispatcher
        finally:
            running.cancel()


async def drained(
    backend: Backend, sink: MemorySink, settings: Settings, clock: Clock
) -> Dispatcher:
    """Dispatch until every task is over, while the breaker's time runs."""
    dispatcher = Dispatcher(backend, sink, settings, drain=True, clock_s=clock)
    running = asyncio.create_task(clock.run(dispatcher, sink))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await dispatcher.run()
    finally:
        running.cancel()
    return dispatcher


def rests(dispatcher: Dispatcher) -> bool:
    return any(
        one.state in (BreakerState.OPEN, BreakerState.PROBING) for one in dispatcher.resting()
    )


async def test_an_outage_costs_no_push_an_attempt_and_makes_no_lane(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, broker):
        tasks = [await add_task(backend, level, 1_000) for level in (Level.HIGH, Level.MEDIUM)]
        clock = Clock()
        sink = Sink(clock, until_s=60.0)

        dispatcher = await drained(backend, sink, settings, clock)

        most = EARLY_PROBES + 60 * PROBES_PER_S
        assert len(sink.failed) <= 2 * SLOTS + TRICKLED + most
        assert 10 <= dispatcher.stats.probes <= most
        assert Counter(push.push_id for push in sink.took) == {
            f"{task.id}-{seq}": 1 for task in tasks for seq in range(1, 1_001)
        }
        assert {push.attempt for push in sink.took} == {1}
        assert broker.opened == []
        assert dispatcher.stats.spared == len(sink.failed)
        for progress in await backend.registry.progress([task.id for task in tasks]):
            assert (progress.delivered, progress.dead) == (1_000, 0)


async def test_after_an_outage_of_three_seconds_a_sink_is_in_use_a_second_later(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        await add_task(backend, Level.HIGH, 5_000)
        clock = Clock()
        sink = Sink(clock, 3.0)

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: len(sink.took) > 2 * SLOTS)
            assert clock.now_s <= 3.0 + 1.0 + SLOTS.bit_length() * 2 * STEP_S
            assert dispatcher.stats.probes <= 3


async def test_a_sink_that_answers_500_costs_few_pushes_one_attempt(tmp_path: Path) -> None:
    async with watched(tmp_path, retry_first_s=0.01) as (backend, settings, _):
        task = await add_task(backend, Level.HIGH, 1_000)
        clock = Clock()
        sink = Sink(clock, 60.0, BROKEN, well_for=200)

        await drained(backend, sink, settings, clock)

        assert Counter(push.push_id for push in sink.took).most_common(1)[0][1] == 1
        assert sum(push.attempt > 1 for push in sink.took) <= SLOTS
        assert max(push.attempt for push in sink.took) == 2
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (1_000, 0)


async def test_a_push_that_fails_alone_still_dies_with_its_reason(tmp_path: Path) -> None:
    def poisons(delivery: Delivery) -> Outcome | None:
        return Outcome.retry("HTTP 500", after_s=0.0) if delivery.push.seq == 7 else None

    async with watched(tmp_path) as (backend, settings, _):
        task = await add_task(backend, Level.HIGH, 200)
        clock = Clock()
        sink = Sink(clock, 0.0, spares=poisons)

        dispatcher = await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (199, 1)
        assert sink.pushes(task).count((task.id, 7)) == task.max_attempts
        assert dispatcher.stats.probes == dispatcher.stats.spared == 0


async def test_bad_pushes_at_the_head_of_a_lane_hold_up_nothing_behind_them(tmp_path: Path) -> None:
    """The sink looks down, as all that it is shown fails; probes look behind them."""

    def poisons(delivery: Delivery) -> Outcome | None:
        return BROKEN if delivery.push.seq <= 60 else None

    async with watched(tmp_path, retry_first_s=0.01) as (backend, settings, _):
        task = await add_task(backend, Level.HIGH, 300)
        clock = Clock()
        sink = Sink(clock, 0.0, spares=poisons)

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: len(sink.took) == 240)
            assert dispatcher.stats.probes <= 2 * 60
        await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (240, 60)


async def test_what_fails_when_the_sink_has_gone_on_loses_an_attempt(tmp_path: Path) -> None:
    """Else pushes that fail by themselves would go for ever, and none behind them."""

    def fails_twice(delivery: Delivery) -> Outcome | None:
        is_bad = delivery.push.seq % 2 == 0 and delivery.push.attempt <= 2
        return BROKEN if is_bad else None

    async with watched(tmp_path, retry_first_s=0.01) as (backend, settings, _):
        task = await add_task(backend, Level.HIGH, 300)
        clock = Clock()
        sink = Sink(clock, 10.0, BROKEN, spares=fails_twice)

        await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (300, 0)
        assert len(sink.pushes(task)) <= 2 * 300 + 2 * SLOTS + TRICKLED


async def test_a_storm_of_404_buries_few(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, broker):
        task = await add_task(backend, Level.HIGH, 2_000)
        clock = Clock()
        sink = Sink(clock, 60.0, NOT_FOUND, well_for=500)

        await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([task.id])
        assert progress.dead <= 50
        assert progress.delivered == 2_000 - progress.dead
        assert broker.opened == []


BUSY_AND_MAYBE_THERE = Outcome.throttled("HTTP 503", arrival=Arrival.FAILED)


async def test_at_most_once_loses_what_was_in_flight_and_one_a_probe(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        task = await add_task(backend, pushes=500, delivery=DeliveryMode.AT_MOST_ONCE)
        clock = Clock()
        sink = Sink(clock, 60.0, BUSY_AND_MAYBE_THERE)

        await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([task.id])
        most = EARLY_PROBES + 60 * PROBES_PER_S
        assert progress.dead == len(sink.failed) <= SLOTS + TRICKLED + most
        assert progress.delivered == 500 - progress.dead
        assert Counter(map(str, sink.pushes())).most_common(1)[0][1] == 1


async def test_probes_are_pushes_that_may_be_repeated_where_there_are(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        strict = await add_task(backend, pushes=200, delivery=DeliveryMode.AT_MOST_ONCE)
        await add_task(backend, Level.LOW, pushes=200)
        clock = Clock()
        before_probes = SLOTS + TRICKLED
        sink = Sink(
            clock,
            math.inf,
            BUSY_AND_MAYBE_THERE,
            spares=lambda _: DELIVERED if len(sink.failed) >= before_probes + 10 else None,
        )

        dispatcher = await drained(backend, sink, settings, clock)

        [progress] = await backend.registry.progress([strict.id])
        assert progress.dead <= SLOTS
        assert dispatcher.stats.probes >= 10


async def test_claims_and_turns_are_given_back_in_an_outage(tmp_path: Path) -> None:
    """Else a push that is claimed would be held by itself when it is taken again."""
    async with watched(tmp_path) as (backend, settings, broker):
        task = await add_task(backend, pushes=200, delivery=DeliveryMode.ONCE, dedupe=True)
        clock = Clock()
        sink = Sink(clock, 30.0)

        dispatcher = await drained(backend, sink, settings, clock)

        assert dispatcher.stats.claims[ClaimResult.HELD] == 0
        assert broker.opened == []
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dropped) == (200, 0)


class SlowLedger(Wrapped):
    """Claims are answered only once it is told to."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.released = 0

    async def claim(self, *given: Any, **options: Any) -> Sequence[ClaimResult]:
        self.asked.set()
        await self.answer.wait()
        results: Sequence[ClaimResult] = await self._real.claim(*given, **options)
        return results

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        self.released += len(pushes)
        await self._real.release(pushes, owner)


async def test_what_was_claimed_while_the_sink_went_down_is_not_sent(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, broker):
        ledger = SlowLedger(backend.ledger)
        backend = with_other(backend, ledger=ledger)
        strict = await add_task(backend, pushes=3, delivery=DeliveryMode.ONCE)
        clock = Clock()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await ledger.asked.wait()
            await add_task(backend, Level.MEDIUM, 100)
            await until(lambda: rests(dispatcher))
            ledger.answer.set()
            await until(lambda: ledger.released == 3)
            assert sink.pushes(strict) == []
        assert broker.opened == []


async def test_an_ordered_task_keeps_its_order_through_an_outage(tmp_path: Path) -> None:
    """Though the outage lasts much longer than a push waits for another one of its key."""
    async with watched(tmp_path, order_timeout_s=0.1) as (backend, settings, broker):
        await add_ordered(backend, "abcde" * 40)
        clock = Clock()
        sink = Sink(clock, 120.0)

        dispatcher = await drained(backend, sink, settings, clock)

        by_key = {key: [push.seq for push in sink.took if push.recipient == key] for key in "abcde"}
        assert all(seqs == sorted(seqs) and len(seqs) == 40 for seqs in by_key.values())
        assert dispatcher.stats.out_of_order == 0
        assert broker.opened == []


class Skewed:
    """The time of a module, which can be set forward; `asked` counts who looked at it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return time.monotonic() + self.ahead_s


async def test_an_outage_of_hours_lets_no_push_of_an_ordered_task_overtake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order_time = Skewed()
    monkeypatch.setattr("pushlane.dispatcher.gates.key_order.time", order_time)
    async with watched(tmp_path) as (backend, settings, broker):
        task = await add_ordered(backend, "abcde" * 40)
        clock = Clock()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: rests(dispatcher))
            clock.is_held = True  # no probe meanwhile
            order_time.ahead_s = 7_200.0
            asked = order_time.asked
            await until(lambda: order_time.asked > asked + 20)
            clock.is_held = False
            sink.recover()
            await until_state(backend, task, TaskState.DONE)

        by_key = {key: [push.seq for push in sink.took if push.recipient == key] for key in "abcde"}
        assert all(seqs == sorted(seqs) for seqs in by_key.values())
        assert dispatcher.stats.out_of_order == 0
        assert broker.opened == []


def test_a_lane_is_not_stuck_while_its_pushes_wait_for_the_sink() -> None:
    lane = Lane("task-t", Level.HIGH)
    lane.main.add([message_of(lane.name)])
    for seq in range(2, ROOM + 2):
        lane.park(job_of(lane, seq), Why.REFUSED)
    lane.give_back(job_of(lane, ROOM + 2))
    detector = StallDetector()

    for now_s in (0.0, 3_600.0):
        assert detector.stuck([lane], now_s) == {}
    assert lane.room == ROOM


async def test_a_probe_that_a_guard_keeps_back_is_no_probe(tmp_path: Path) -> None:
    """Else none would follow."""
    async with watched(tmp_path) as (backend, settings, _):
        first = await add_task(backend, pushes=100)
        clock = Clock()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: rests(dispatcher))
            task = await add_task(backend, Level.MEDIUM, 0, seal=False, delivery=DeliveryMode.ONCE)
            pushes = [Push(task.id, seq, "nobody") for seq in range(1, 21)]
            await backend.ledger.claim(pushes, "another", 600)
            await backend.ledger.confirm(pushes)
            await backend.registry.change(first.id, task_changes.cancel)
            await backend.broker.publish(task.lane, list(map(encode, pushes)))
            await backend.registry.change(task.id, task_changes.seal(20))
            await until_state(backend, task, TaskState.DONE)
            assert rests(dispatcher)
        assert sink.pushes(task) == []


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_a_task_cancelled_in_an_outage_is_not_sent_after_it(
    tmp_path: Path, level: Level
) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        task, other = await add_task(backend, level, 100), await add_task(backend, level, 100)
        clock = Clock()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock, drain=True) as dispatcher:
            await until(lambda: rests(dispatcher))
            await backend.registry.change(task.id, task_changes.cancel)
            await until(lambda: task.id not in dispatcher._shared.tasks.active)
            sink.recover()
            await until_state(backend, other, TaskState.DONE)

        assert {push.task_id for push in sink.took} == {other.id}


async def test_a_task_paused_in_an_outage_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        task, other = await add_task(backend, pushes=100), await add_task(backend, pushes=100)
        clock = Clock()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: rests(dispatcher))
            await backend.registry.change(task.id, task_changes.pause())
            await until(lambda: dispatcher._shared.tasks.active[task.id].state is TaskState.PAUSED)
            sink.recover()
            await until_state(backend, other, TaskState.DONE)
            assert {push.task_id for push in sink.took} == {other.id}
            await backend.registry.change(task.id, task_changes.resume)
            await until_state(backend, task, TaskState.DONE)


async def test_pushes_that_expire_in_an_outage_are_not_sent_after_it(tmp_path: Path) -> None:
    started_ms = now_ms()
    async with watched(tmp_path) as (backend, settings, _):
        expires_at_ms = started_ms + 30_000
        task = await add_task(backend, pushes=300, push_expires_at_ms=expires_at_ms)
        clock = Clock()
        sink = Sink(clock, 60.0)
        options = {"clock_ms": lambda: started_ms + round(clock.now_s * 1000)}

        async with ticking(backend, sink, settings, clock, drain=True, **options):
            await until_state(backend, task, TaskState.DONE)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.expired, progress.dead, sink.took) == (300, 0, [])


async def test_a_stop_in_an_outage_is_soon_and_leaves_every_push_to_the_next(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, drain_timeout_s=5.0) as (backend, settings, _):
        task = await add_task(backend, pushes=500)
        clock = Clock()
        async with ticking(backend, Sink(clock, float("inf")), settings, clock) as dispatcher:
            await until(lambda: rests(dispatcher))
            dispatcher.stop()

        sink = MemorySink()
        await drain(backend, sink, settings)

        assert Counter(sink.pushes()) == {(task.id, seq): 1 for seq in range(1, 501)}
        assert {delivery.push.attempt for delivery in sink.received} == {1}


def refuses_once(seq: int, outcome: Outcome) -> Callable[[Delivery], Outcome | None]:
    left = [outcome]

    def spares(delivery: Delivery) -> Outcome | None:
        return left.pop() if left and delivery.push.seq == seq else None

    return spares


async def test_a_push_refused_alone_waits_in_memory(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, broker):
        await add_task(backend, pushes=100)
        clock = Clock()
        sink = Sink(clock, 0.0, spares=refuses_once(3, Outcome.throttled("HTTP 429", 10.0)))

        await drained(backend, sink, settings, clock)

        assert clock.now_s >= 10.0
        assert [push.seq for push in sink.took][-1] == 3
        assert {push.attempt for push in sink.took} == {1}
        assert broker.delays_s == []


@pytest.mark.parametrize(("asked_s", "waits_s"), [(600.0, 600.0), (float("inf"), 86_400.0)])
async def test_a_push_asked_to_wait_for_long_waits_on_the_later_lane(
    tmp_path: Path, asked_s: float, waits_s: float
) -> None:
    async with watched(tmp_path) as (backend, settings, broker):
        await add_task(backend, pushes=100)
        clock = Clock()
        sink = Sink(clock, 0.0, spares=refuses_once(3, Outcome.throttled("HTTP 429", asked_s)))

        async with ticking(backend, sink, settings, clock) as dispatcher:
            await until(lambda: broker.delays_s == [waits_s] and len(sink.took) == 99)
            assert sum(dispatcher.stats.outcomes[level, Kind.RETRY] for level in Level) == 0


async def test_people_are_told_when_a_sink_rests_and_when_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        await add_task(backend, pushes=100)
        clock = Clock()

        with caplog.at_level(logging.INFO, "pushlane.outage"):
            await drained(backend, Sink(clock, 200.0), settings, clock)

        said = [(record.__dict__["action"], record.getMessage()) for record in caplog.records]
        actions = [action for action, _ in said]
        assert actions == ["sink_rests"] * 4 + ["sink_goes_on"], "once, and once a minute"
        assert re.search(r"it is tried again in (0\.\d|1\.0) s", said[0][1])
        assert "it takes no pushes now: HTTP 503" in said[0][1]
        assert said[0][1].endswith(
            "; --drain waits until it works again; Ctrl-C stops it, and nothing is lost"
        )


async def test_metrics_show_how_the_sink_stands(tmp_path: Path) -> None:
    async with watched(tmp_path) as (backend, settings, _):
        await add_task(backend, pushes=100)
        clock, registry = Clock(), CollectorRegistry()
        sink = Sink(clock, float("inf"))

        async with ticking(backend, sink, settings, clock, registry=registry) as dispatcher:
            before = generate_latest(registry).decode()
            await until(lambda: dispatcher.stats.probes and rests(dispatcher))
            shown = generate_latest(registry).decode()

        assert 'pushlane_sink_state{sink="default",state="closed"} 1.0' in before
        assert 'pushlane_sink_state_since_seconds{sink="default"} 0.0' in before
        assert 'pushlane_sink_state{sink="default",state="closed"} 0.0' in shown
        assert 'pushlane_sink_probes_total{sink="default"} 1.0' in shown
        assert 'pushlane_spared_total{sink="default"}' in shown


def test_what_rests_is_shown_in_unix_time() -> None:
    view = View(BreakerState.OPEN, since_s=100.0, reason="it is away", next_try_s=112.5)
    one = restraint(view, now_s=110.0, now_ms=1_000_000)
    assert one is not None
    assert (one.since_ms, one.next_try_ms) == (990_000, 1_002_500)
    assert restraint(View(BreakerState.CLOSED, 0.0), 110.0, 1_000_000) is None


class Later:
    """Counts what is put on a later lane."""

    sink = "memory"

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def later(self, job: Job, wait_s: float) -> None:
        self.waits_s.append(wait_s)


def outage_with(later: Later, clock: Clock) -> Outage:
    breaker = Breaker(SLOTS, 86_400.0)
    settler: Any = later
    return Outage(breaker, settler, Stats(), clock_s=clock)


def test_whoever_announces_the_process_hears_at_once_that_its_sink_fails_and_goes_on() -> None:
    clock, lane = Clock(), Lane("task-t", Level.HIGH)
    outage = outage_with(Later(), clock)
    heard_at_s: list[float] = []
    outage.on_change = lambda: heard_at_s.append(clock.now_s)

    def answer(seq: int, outcome: Outcome) -> None:
        job = job_of(lane, seq)
        outage.permit([job])
        outage.landed([job], [outcome])

    answer(1, DELIVERED)
    assert heard_at_s == []
    for seq in range(2, 40):
        answer(seq, BUSY)
    assert heard_at_s == [0.0], "it gets fewer pushes"

    for clock.now_s in (2.5, 2.6):
        outage.room(SLOTS)
    assert heard_at_s == [0.0, 2.5], "it rests"

    clock.now_s = 2.7
    answer(41, DELIVERED)
    assert heard_at_s == [0.0, 2.5], "once a second is enough"
    clock.now_s = 4.0
    outage.room(SLOTS)
    assert heard_at_s == [0.0, 2.5, 4.0], "it gets more and more"


def job_of(lane: Lane, seq: int) -> Job:
    task = Task(id="t", level=lane.level, lane=lane.name)
    lane.in_hand += 1
    job = message_of(lane.name, seq).take(lane)
    job.task = task
    return job


def given_back(lane: Lane) -> list[int]:
    """The seqs that are to be taken again, in their order."""
    return [job.seq for job in lane._returned or ()]


def test_a_lane_of_which_too_many_wait_rests() -> None:
    clock = Clock()
    outage = outage_with(Later(), clock)
    lane = Lane("task-t", Level.HIGH)
    lane.main.add([message_of(lane.name, ROOM + 1)])
    for seq in range(1, ROOM + 1):
        assert lane.fed
        outage.keep(job_of(lane, seq), 2.0, BUSY)
    assert not lane.fed

    clock.now_s = 2.0
    outage.room(SLOTS)

    assert (lane.fed, lane.parked, outage.waiting) == (True, {}, 0)
    assert len(given_back(lane)) == ROOM


def test_a_failed_probe_stands_aside_until_nothing_else_is_there_or_the_sink_goes_on() -> None:
    clock = Clock()
    outage = outage_with(Later(), clock)
    lane = Lane("task-t", Level.HIGH)
    jobs = [job_of(lane, seq) for seq in range(1, 11)]
    outage.permit(jobs)
    outage.landed(jobs, [BUSY] * 10)
    clock.now_s = QUIET_S
    outage.room(SLOTS)
    assert outage.rests

    for seq in range(11, 15):
        clock.now_s += PROBE_EVERY_S[1]
        assert outage.room(SLOTS) == 1
        probe = job_of(lane, seq)
        outage.permit([probe])
        [wait_s] = outage.landed([probe], [BUSY])
        assert wait_s is not None
        outage.keep(probe, wait_s, BUSY)
    assert (outage.waiting, len(lane.parked), given_back(lane)) == (4, 4, [])

    assert outage.recall()
    assert given_back(lane) == [11]
    clock.now_s += PROBE_EVERY_S[1]
    outage.room(SLOTS)
    outage.permit(jobs[:1])
    outage.landed(jobs[:1], [DELIVERED])
    assert given_back(lane) == [11, 12]
    clock.now_s += 1.0
    outage.room(SLOTS)
    assert (outage.waiting, len(lane.parked), len(given_back(lane))) == (1, 1, 3)


@pytest.mark.parametrize("ends", [True, False])
def test_what_stands_aside_keeps_no_lane_open_whose_task_is_over(ends: bool) -> None:
    clock = Clock()
    outage = outage_with(Later(), clock)
    lane = Lane("task-t", Level.HIGH)
    jobs = [job_of(lane, seq) for seq in range(1, 11)]
    outage.permit(jobs)
    outage.landed(jobs, [BUSY] * 10)
    clock.now_s = QUIET_S + PROBE_EVERY_S[1]
    outage.room(SLOTS)
    clock.now_s += PROBE_EVERY_S[1]
    outage.room(SLOTS)
    outage.permit(jobs[:1])
    outage.landed(jobs[:1], [BUSY])
    outage.keep(jobs[0], 0.0, BUSY)

    if ends:
        lane.retire()
    clock.now_s += 1.0
    outage.room(SLOTS)

    assert outage.waiting == len(lane.parked) == (0 if ends else 1)


def test_what_waits_in_all_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane.dispatcher.outage.MOST_WAITING", 3)
    later = Later()
    outage = outage_with(later, Clock())
    lane = Lane("task-t", Level.HIGH)

    for seq in range(1, 6):
        outage.keep(job_of(lane, seq), 2.0, BUSY)

    assert (outage.waiting, later.waits_s) == (3, [2.0, 2.0])


def test_what_waits_keeps_no_lane_open_whose_task_is_over() -> None:
    clock = Clock()
    marked: list[Lane] = []
    outage = outage_with(Later(), clock)
    lane = Lane("task-t", Level.HIGH, mark=marked.append)
    outage.keep(job_of(lane, 1), LONGEST_IN_MEMORY_S, BUSY)

    lane.retire()
    marked.clear()
    clock.now_s = 1.0
    outage.room(SLOTS)

    assert (set(marked), lane.pending) == ({lane}, 0)
