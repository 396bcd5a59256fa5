"""The dispatcher on the embedded backend: who is served, and what becomes of each push."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pushlane.backends.ports import listed
from pushlane.core import loop
from pushlane.core.errors import Unreachable
from pushlane.core.names import own_lane
from pushlane.core.ports import Delivery, LaneReader, OnReady, Taken
from pushlane.core.push import DELIVERED, MAX_PUSH_BYTES, Outcome, Push, encode
from pushlane.core.task import Finished, Level, Progress, State, Weights
from pushlane.dispatcher.slow import Shares
from pushlane.model import task_changes
from pushlane.model.limits import set_app_share
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    add_task,
    backend_in,
    dead_pushes,
    dispatching,
    drain,
    until,
    until_state,
    until_task,
)


@pytest.fixture
def all_take_equally_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine leaves pushes where they are, no lane counts as slow, or waits
    to be asked about once more.
    """
    monkeypatch.setattr(Shares, "look", lambda *_: None)
    monkeypatch.setattr(loop, "STALE_S", math.inf)


async def test_every_push_is_delivered_once_and_the_task_is_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [await add_task(backend, level, 300) for level in Level]
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert Counter(sink.pushes()) == Counter(
            (task.id, seq) for task in tasks for seq in range(1, 301)
        )
        for task in tasks:
            assert (await backend.registry.get(task.id)).state is State.DONE
            assert await backend.broker.backlog(task.lane) == 0


class HangingForLow(MemorySink):
    """Answers high at once, and low when its gate opens."""

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if batch[0].level is Level.LOW:
            return await super().deliver(batch)
        self.received += batch
        return [DELIVERED] * len(batch)


async def test_deliveries_that_hang_leave_other_levels_their_slots(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=10) as (backend, settings):
        high, low = await add_task(backend, Level.HIGH, 500), await add_task(backend, Level.LOW)
        sink = HangingForLow()
        sink.gate.clear()

        async with dispatching(backend, sink, settings):
            await until_state(backend, high, State.DONE)
            sink.gate.set()
            await until_state(backend, low, State.DONE)

        until_high_was_through = sink.pushes()[: sink.pushes().index((high.id, 500))]
        assert 1 <= sum(task_id == low.id for task_id, _ in until_high_was_through) <= 6


@pytest.mark.usefixtures("all_take_equally_long")
async def test_levels_share_the_sink_in_the_order_of_the_weights(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [await add_task(backend, level, 400) for level in Level]
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(settings.slots)
            await until(lambda: all(dispatcher.is_fed(task.lane) for task in tasks))
            sink.gate.set()
            await sink.until_received(110)

        levels = Counter(delivery.level for delivery in sink.received[10:110])
        assert levels == {Level.HIGH: 60, Level.MEDIUM: 30, Level.LOW: 10}


async def test_a_late_high_task_is_the_next_of_its_level(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        early = await add_task(backend, Level.HIGH, 2_000)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(settings.slots)
            late = await add_task(backend, Level.HIGH, 10)
            await until(lambda: dispatcher.is_fed(late.lane))
            sink.gate.set()
            await sink.until(lambda: len(sink.pushes(late)) == 10)

        first = sink.pushes().index((late.id, 1))
        assert first <= settings.slots + 1
        assert sink.pushes(early)


@pytest.mark.usefixtures("all_take_equally_long")
async def test_a_quota_and_a_weight_changed_on_the_way_re_order_the_backlog(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=4) as (backend, settings):
        one = await add_task(backend, Level.HIGH, 3_000)
        two = await add_task(backend, Level.HIGH, 3_000)
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(200)
            sink.gate.clear()
            await backend.registry.change(two.id, task_changes.set_quota(3))
            await until(lambda: dispatcher.quota(two.lane) == 3)
            start = len(sink.received) + settings.slots
            sink.gate.set()
            await sink.until_received(start + 400)

        counts = Counter(task for task, _ in sink.pushes()[start : start + 400])
        assert counts == {one.id: 100, two.id: 300}


@pytest.mark.usefixtures("all_take_equally_long")
async def test_an_app_of_many_tasks_takes_turns_with_one_of_one_by_their_quotas(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, slots=4) as (backend, settings):
        many = [await add_task(backend, Level.HIGH, 20, app="many") for _ in range(20)]
        one = await add_task(backend, Level.HIGH, 500, app="one")
        await set_app_share(backend.documents, "one", quota=3)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.app_quota("one") == 3)
            await until(lambda: all(dispatcher.is_fed(task.lane) for task in [*many, one]))
            start = settings.slots + len(sink.received)
            sink.gate.set()
            await sink.until_received(start + 400)

        apps = ["one" if task == one.id else "many" for task, _ in sink.pushes()]
        assert Counter(apps[start : start + 400]) == {"many": 100, "one": 300}


async def test_a_paused_task_waits_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        paused = await add_task(backend, Level.HIGH, 500)
        other = await add_task(backend, Level.MEDIUM, 500)
        await backend.pause(paused.id, "typo")
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(backend, other, State.DONE)
            assert not sink.pushes(paused)
            await backend.registry.change(paused.id, task_changes.resume)
            await until_state(backend, paused, State.DONE)

        assert sorted(sink.pushes(paused)) == [(paused.id, seq) for seq in range(1, 501)]


@pytest.mark.parametrize("change", ["pause", "promote", "quota"])
async def test_a_pooled_task_moves_to_a_lane_of_its_own_and_disturbs_nobody(
    tmp_path: Path, change: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        moved = await add_task(backend, Level.LOW, 300)
        others = [await add_task(backend, Level.LOW, 300) for _ in range(3)]
        if change == "pause":
            await backend.pause(moved.id)
        elif change == "promote":
            await backend.promote(moved.id, Level.HIGH)
        else:
            await backend.set_quota(moved.id, 3)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            for other in others:
                await until_state(backend, other, State.DONE)
            if change == "pause":
                assert not sink.pushes(moved)
                await backend.registry.change(moved.id, task_changes.resume)
            await until_state(backend, moved, State.DONE)

        assert sorted(sink.pushes(moved)) == [(moved.id, seq) for seq in range(1, 301)]


async def test_a_cancelled_task_stops_at_once_and_its_lane_goes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 5_000)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(settings.slots)
            await backend.registry.change(task.id, task_changes.cancel)
            await until(lambda: not dispatcher.reads(task.lane))
            sink.gate.set()
            await until_task(backend, task, lambda now: now.lane_dropped)

        assert len(sink.received) == settings.slots
        assert own_lane(task.id) not in await backend.broker.lanes()


async def test_a_cancelled_pooled_task_is_counted_as_dropped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.LOW, 50)
        other = await add_task(backend, Level.LOW, 50)
        await backend.registry.change(task.id, task_changes.cancel)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(backend, other, State.DONE)
            while await backend.broker.backlog(task.lane):
                await asyncio.sleep(0)

        (progress,) = await backend.registry.progress([task.id])
        assert progress.dropped == 50
        assert not sink.pushes(task)


async def test_expired_pushes_are_counted_and_not_sent(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 20, push_expires_at_ms=1)
        sink = MemorySink()

        await drain(backend, sink, settings)

        (progress,) = await backend.registry.progress([task.id])
        assert (progress.expired, progress.delivered, sink.received) == (20, 0, [])


async def test_a_task_past_its_expiry_ends_as_expired(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 20, seal=False, expires_at_ms=1)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.EXPIRED)

        assert not sink.received


async def test_a_retry_comes_again_with_its_attempt_counted(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 5)
        sink = MemorySink(
            lambda d: Outcome.retry("busy", after_s=0) if d.push.attempt == 1 else DELIVERED
        )

        await drain(backend, sink, settings)

        attempts = Counter(delivery.push.attempt for delivery in sink.received)
        (progress,) = await backend.registry.progress([task.id])
        assert (attempts, progress.delivered) == ({1: 5, 2: 5}, 5)


async def test_a_push_that_fails_too_often_is_dead_with_the_reason(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 2, max_attempts=3)
        sink = MemorySink(lambda _: Outcome.retry("HTTP 503", after_s=0))

        await drain(backend, sink, settings)

        (progress,) = await backend.registry.progress([task.id])
        dead = await dead_pushes(backend, 2)
        assert progress.dead == 2
        assert {push.reason for push in dead} == {"gave up after 3 attempts: HTTP 503"}
        assert len(sink.received) == 6


async def test_a_message_that_is_no_push_is_buried_and_blocks_nobody(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 1, seal=False)
        await backend.broker.publish(task.lane, [b"\xffnonsense"])
        await backend.registry.change(task.id, task_changes.seal(1))
        sink = MemorySink()

        await drain(backend, sink, settings)

        (dead,) = await dead_pushes(backend, 1)
        assert dead.reason.startswith("malformed")
        assert sink.pushes() == [(task.id, 1)]


async def test_of_an_oversized_message_the_start_is_buried(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 1, seal=False)
        oversized = encode(Push(task.id, 2, "to-2", body="x" * 5_000_000))
        await backend.broker.publish(task.lane, [oversized])
        await backend.registry.change(task.id, task_changes.seal(1))
        sink = MemorySink()

        await drain(backend, sink, settings)

        (dead,) = await dead_pushes(backend, 1)
        assert (
            dead.reason == f"malformed: {len(oversized)} bytes on a lane, over the limit of 65536"
        )
        assert dead.body == oversized[:MAX_PUSH_BYTES]
        assert sink.pushes() == [(task.id, 1)]


async def test_a_sink_that_refuses_us_pauses_the_task_and_loses_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 40)
        refused = [True]
        sink = MemorySink(lambda _: Outcome.pause("HTTP 401") if refused else DELIVERED)

        async with dispatching(backend, sink, settings):
            paused = await until_state(backend, task, State.PAUSED)
            refused.clear()
            await backend.registry.change(task.id, task_changes.resume)
            await until_state(backend, task, State.DONE)

        (progress,) = await backend.registry.progress([task.id])
        assert (paused.reason, progress.delivered) == ("HTTP 401", 40)
        assert {delivery.push.attempt for delivery in sink.received} == {1}


async def test_a_sink_that_raises_means_a_retry_and_its_message_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, Level.HIGH, 1, max_attempts=1)

        def answer(_: object) -> Outcome:
            raise ValueError("to-1 is no device")

        await drain(backend, MemorySink(answer), settings)

        (dead,) = await dead_pushes(backend, 1)
        assert dead.reason == "gave up after 1 attempt: sink raised ValueError"

    assert "to-1" not in caplog.text


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome.dead(ValueError("to-1 is no device")), "reason that is not a valid text"),
        (Outcome.dead("half a character: \udc80"), "reason that is not a valid text"),
        (Outcome.pause(ValueError("to-1 is no device")), "reason that is not a valid text"),
        (Outcome.retry("busy", "5"), "wait that is not a number"),
        (Outcome.retry("busy", float("nan")), "wait that is not a number"),
        (Outcome.gone("no phone", "2026-11-01"), "time of death that is not a whole number"),
        (Outcome.gone("no phone", 1_795_262_400_000.5), "time of death that is not a whole number"),
        (Outcome.gone("no phone", None), "time of death that is not a whole number"),
    ],
    ids=["no-text", "half-text", "pause", "wait", "nan", "date", "fraction", "none"],
)
async def test_an_outcome_that_cannot_be_used_means_a_retry(
    outcome: Outcome, wrong: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        await add_task(backend, Level.HIGH, 1, max_attempts=2)
        sink = MemorySink(lambda one: outcome if one.push.attempt == 1 else DELIVERED)

        await drain(backend, sink, settings)

        assert [delivery.push.attempt for delivery in sink.received] == [1, 2]

    assert wrong in caplog.text
    assert "to-1" not in caplog.text


async def test_never_more_in_flight_than_slots(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=7) as (backend, settings):
        await add_task(backend, Level.HIGH, 200)
        sink = MemorySink(batch_size=3)

        await drain(backend, sink, settings)

        assert sink.most_in_flight <= settings.slots
        assert {len(batch) for batch in sink.batches} <= {1, 2, 3}


async def test_a_batch_mixes_tasks_only_where_the_sink_allows_it(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        for level in (Level.HIGH, Level.HIGH, Level.MEDIUM):
            await add_task(backend, level, 100)
        sink = MemorySink(batch_size=8, mixes_tasks=False)

        await drain(backend, sink, settings)

        assert all(len({d.push.task_id for d in batch}) == 1 for batch in sink.batches)
        assert len(sink.received) == 300


async def test_a_stop_after_the_last_push_leaves_the_task_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 3)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await sink.until_received(3)

        assert (await backend.registry.get(task.id)).state is State.DONE


async def test_a_gentle_stop_repeats_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 1_000)
        first = MemorySink()
        async with dispatching(backend, first, settings):
            await first.until_received(150)

        second = MemorySink()
        await drain(backend, second, settings)

        assert Counter(first.pushes() + second.pushes()) == Counter(
            (task.id, seq) for seq in range(1, 1_001)
        )


async def test_two_dispatchers_share_a_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 2_000)
        one, two = MemorySink(), MemorySink()

        async with dispatching(backend, one, settings), dispatching(backend, two, settings):
            await until_state(backend, task, State.DONE)

        assert Counter(one.pushes() + two.pushes()) == Counter(
            (task.id, seq) for seq in range(1, 2_001)
        )


class FailingRegistry:
    """The real registry, out of reach for the first few records."""

    def __init__(self, registry: Any, failures: int) -> None:
        self._registry = registry
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    async def record(self, finished: Sequence[Finished]) -> Sequence[Progress]:
        if self._failures:
            self._failures -= 1
            raise Unreachable("the registry is away")
        result: Sequence[Progress] = await self._registry.record(finished)
        return result


async def test_a_registry_lost_on_the_way_is_waited_for_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 50)
        flaky = with_other(backend, registry=FailingRegistry(backend.registry, 3))
        sink = MemorySink()

        await drain(flaky, sink, settings)

        (progress,) = await backend.registry.progress([task.id])
        assert (progress.delivered, len(sink.received)) == (50, 50)

    assert caplog.text.count("waiting for the registry") == 1


async def test_a_task_sealed_after_its_last_push_went_out_is_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 10, seal=False)
        sink = MemorySink()
        async with dispatching(backend, sink, settings):
            await sink.until_received(10)
            while (await backend.registry.progress([task.id]))[0].delivered < 10:
                await asyncio.sleep(0)

            await backend.registry.change(task.id, task_changes.seal(10))

            await until_state(backend, task, State.DONE)


async def test_what_is_left_on_a_lane_of_a_larger_pool_is_taken_off(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await backend.broker.open_lane("pool-12")
        await backend.broker.publish("pool-12", [encode(Push("over", 1, "somebody"))])
        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: dispatcher.reads("pool-12"))
            while await backend.broker.backlog("pool-12"):
                await asyncio.sleep(0)


async def test_metrics_are_shown_in_the_registry_given_and_name_no_recipient(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, Level.HIGH, 10)
        registry = CollectorRegistry()
        async with dispatching(backend, MemorySink(), settings, drain=True, registry=registry):
            await until_state(backend, (await listed(backend.registry))[0], State.DONE)
            page = generate_latest(registry).decode()

        wanted = 'pushlane_outcomes_total{level="high",outcome="delivered",sink="default"} 10.0'
        assert wanted in page
        assert "to-1" not in page


@pytest.mark.usefixtures("all_take_equally_long")
async def test_level_weights_changed_on_the_way_hold_at_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [await add_task(backend, level, 2_000) for level in Level]
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(200)
            sink.gate.clear()
            await until(lambda: all(dispatcher.is_fed(task.lane) for task in tasks))
            await backend.registry.set_weights(Weights(1, 1, 8))
            await until(lambda: dispatcher.weights()[Level.LOW] == 8)
            start = len(sink.received) + settings.slots
            sink.gate.set()
            await sink.until_received(start + 500)

        levels = Counter(delivery.level for delivery in sink.received[start : start + 500])
        assert levels == {Level.HIGH: 50, Level.MEDIUM: 50, Level.LOW: 400}


class RefillingReader:
    """Has `first` at hand, then nothing until `refill`, as a store that is slower than we are."""

    def __init__(self, lane: str, first: Sequence[bytes], on_ready: OnReady) -> None:
        self.lane = lane
        self._at_hand = deque(first)
        self._on_ready = on_ready

    def take(self) -> Taken | None:
        return Taken(self._at_hand.popleft(), self.lane, None) if self._at_hand else None

    def refill_wait_s(self) -> float:
        return DEADLINE_S

    def refill(self, bodies: Sequence[bytes]) -> None:
        self._at_hand.extend(bodies)
        self._on_ready(self)

    async def close(self) -> None:
        return None


class RefillingBroker:
    """The real broker, but one lane is read through a `RefillingReader`."""

    def __init__(self, broker: Any, lane: str, first: Sequence[bytes]) -> None:
        self._broker = broker
        self._lane = lane
        self._first = first
        self.reader: RefillingReader | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        if lane != self._lane:
            reader: LaneReader = await self._broker.read(lane, on_ready, depth)
            return reader
        self.reader = RefillingReader(lane, self._first, on_ready)
        asyncio.get_running_loop().call_soon(on_ready, self.reader)
        return self.reader

    async def ack(self, taken: Sequence[Taken]) -> None:
        await self._broker.ack([one for one in taken if one.lane != self._lane])


@pytest.mark.usefixtures("all_take_equally_long")
async def test_a_level_whose_store_is_about_to_refill_it_keeps_its_turn(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        high = await add_task(backend, Level.HIGH, 60)
        medium = await add_task(backend, Level.MEDIUM, 200)
        bodies = [encode(Push(high.id, seq, f"to-{seq}")) for seq in range(1, 61)]
        broker = RefillingBroker(backend.broker, high.lane, bodies[:6])
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(with_other(backend, broker=broker), sink, settings) as dispatcher:
            await until(lambda: broker.reader is not None and dispatcher.is_fed(medium.lane))
            sink.gate.set()
            await until(lambda: not dispatcher.is_fed(high.lane) and len(sink.pushes(high)) == 6)
            waiting = len(sink.received)
            assert broker.reader is not None
            broker.reader.refill(bodies[6:])
            await sink.until(lambda: len(sink.pushes(high)) == 60)

        levels = Counter(delivery.level for delivery in sink.received[waiting : waiting + 60])
        assert levels == {Level.HIGH: 40, Level.MEDIUM: 20}


async def test_a_level_that_was_waited_for_in_vain_holds_up_no_other_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def hardly(reader: RefillingReader) -> float:
        asked.append(reader.lane)
        return 0.001

    monkeypatch.setattr(RefillingReader, "refill_wait_s", hardly)
    async with backend_in(tmp_path) as (backend, settings):
        high = await add_task(backend, Level.HIGH, 5, seal=False)
        await add_task(backend, Level.MEDIUM, 200)
        bodies = [encode(Push(high.id, seq, f"to-{seq}")) for seq in range(1, 6)]
        broker = RefillingBroker(backend.broker, high.lane, bodies[:1])
        sink = MemorySink()

        async with dispatching(with_other(backend, broker=broker), sink, settings):
            await sink.until(lambda: len(sink.received) == 201)
            assert broker.reader is not None
            for seq in range(2, 6):
                broker.reader.refill(bodies[seq - 1 : seq])
                await sink.until(lambda seq=seq: len(sink.pushes(high)) == seq)

    assert len(asked) == 1
