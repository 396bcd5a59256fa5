"""A dispatcher that keeps to limits: what is limited waits, and holds up nobody else."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.presence import LaneWait
from pushlane.settings.sinks import SinkSettings
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
    until_task,
)
from tests.order.test_ordered_dispatch import add_ordered

SINK = Subject("sink", "default")


def of(task: Task) -> Subject:
    return Subject("task", task.id)


async def limit(backend: Backend, subject: Subject, limit: Limit) -> None:
    await change_limit(backend.documents, subject, lambda _: limit)


async def test_a_limited_task_keeps_its_rate_and_the_other_is_not_held_up(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        slow, fast = [await add_task(backend, pushes=count) for count in (25, 200)]
        sink = MemorySink()
        await limit(backend, of(slow), Limit(rate_per_s=10))
        async with dispatching(backend, sink, settings):
            began_s = time.monotonic()
            await until_state(backend, slow, State.DONE)

        assert time.monotonic() - began_s >= (25 - 1 - 1) / 10
        last_of = {task_id: place for place, (task_id, _) in enumerate(sink.pushes())}
        assert last_of[fast.id] < last_of[slow.id]


async def test_a_sink_that_is_strained_gets_fewer_at_once(tmp_path: Path) -> None:
    own = SinkSettings(kind="null", slots=16, least_slots=2)
    in_flight: list[int] = []

    class Strained(MemorySink):
        """It refuses when more than 4 are in flight."""

        async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
            in_flight.append(1)
            await asyncio.sleep(0)
            is_too_much = len(in_flight) > 4
            await super().deliver(batch)
            in_flight.pop()
            return [Outcome.throttled("busy", 0.0)] if is_too_much else [DELIVERED]

    async with backend_in(tmp_path, sinks={"sms": own}) as (backend, settings):
        task = await add_task(backend, pushes=600, sinks=("sms",))
        sink = Strained()
        async with dispatching(backend, {"sms": sink}, settings) as dispatcher:
            await until_state(backend, task, State.DONE)

        refused = len(sink.received) - 600
        assert dispatcher.stats.outcomes[Level.HIGH, Kind.DELIVERED] == 600
        assert refused < 75


async def test_no_more_are_in_flight_than_the_sink_may_have(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=8) as (backend, settings):
        task = await add_task(backend, pushes=40)
        sink = MemorySink()
        await limit(backend, SINK, Limit(in_flight=3))
        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.DONE)

        assert sink.most_in_flight <= 3


@pytest.mark.parametrize("subject", [SINK, Subject("app", "default")])
@pytest.mark.parametrize("most", [Limit(rate_per_s=50), Limit(in_flight=1)])
async def test_levels_share_what_a_limit_lets_go_by_their_weights(
    tmp_path: Path, subject: Subject, most: Limit
) -> None:
    """There is room for a push at a time, which the level that is picked first must not have."""
    async with backend_in(tmp_path, slots=8) as (backend, settings):
        tasks = [await add_task(backend, level, pushes=400) for level in Level]
        sink = MemorySink()
        await limit(backend, subject, most)
        async with dispatching(backend, sink, settings):
            await until(lambda: all(len(sink.pushes(task)) > 3 for task in tasks))  # all are open
            start = len(sink.received)
            await sink.until_received(start + 60)

        counts = Counter(task_id for task_id, _ in sink.pushes()[start : start + 60])
        assert [counts[task.id] for task in tasks] == pytest.approx([36, 18, 6], abs=2)


async def test_the_settings_of_a_sink_limit_it_and_say_what_a_push_costs(tmp_path: Path) -> None:
    own = SinkSettings(kind="null", in_flight=2, cost=2.5)
    async with backend_in(tmp_path, sinks={"sms": own}) as (backend, settings):
        task = await add_task(backend, pushes=20, sinks=("sms",))
        sink = MemorySink()
        await limit(backend, of(task), Limit(total_cost=10))
        async with dispatching(backend, {"sms": sink}, settings) as dispatcher:
            await sink.until_received(4)
            waits = dispatcher.stats.limited["task"]
            await until(lambda: dispatcher.stats.limited["task"] > waits)

            assert len(sink.received) == 4
            assert sink.most_in_flight <= 2


async def test_a_process_says_that_a_lane_waits_for_its_budget(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=2)
        await limit(backend, of(task), Limit(total=1))
        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            said: list[LaneWait] = []

            await until(lambda: said.extend(dispatcher.as_process().waiting) or said)

            assert (said[0].lane, said[0].why) == (task.lane, "budget")


async def test_a_total_ends_a_task_until_it_is_raised(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=12)
        sink = MemorySink()
        await limit(backend, of(task), Limit(total=5))
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(5)
            await until(lambda: dispatcher.stats.limited["task"] > 1)
            assert len(sink.received) == 5

            await limit(backend, of(task), Limit(total=50))
            await until_state(backend, task, State.DONE)

        [usage] = await backend.limiter.usage([str(of(task))], "")
        assert usage.spent == {"total": 12}


async def test_each_push_is_charged_once_however_often_it_is_tried(tmp_path: Path) -> None:
    tries: Counter[int] = Counter()

    def twice(delivery: Delivery) -> Outcome:
        tries[delivery.push.seq] += 1
        return Outcome.retry("busy", after_s=0.0) if tries[delivery.push.seq] < 3 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=6)
        sink = MemorySink(twice)
        await limit(backend, of(task), Limit(total=6))
        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.DONE)

        [usage] = await backend.limiter.usage([str(of(task))], "")
        assert (len(sink.received), usage.spent) == (18, {"total": 6})


async def test_what_a_sink_could_not_take_is_not_charged(tmp_path: Path) -> None:
    refused: Counter[int] = Counter()

    def at_first(delivery: Delivery) -> Outcome:
        refused[delivery.push.seq] += 1
        first = refused[delivery.push.seq] == 1
        return Outcome.throttled(after_s=0.0, reason="busy") if first else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=4)
        await limit(backend, of(task), Limit(total=4))
        async with dispatching(backend, MemorySink(at_first), settings):
            await until_state(backend, task, State.DONE)

        [usage] = await backend.limiter.usage([str(of(task))], "")
        assert usage.spent == {"total": 4}


async def test_a_limited_task_on_a_shared_lane_moves_to_one_of_its_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (backend, settings):
        tasks = [await add_task(backend, Level.LOW, pushes=300) for _ in range(6)]
        limited, *others = tasks
        sink = MemorySink()
        await limit(backend, of(limited), Limit(total=3))
        async with dispatching(backend, sink, settings):
            for task in others:
                await until_state(backend, task, State.DONE)
            moved = await until_task(backend, limited, lambda task: not task.pooled)
            assert (moved.lane, moved.level) == (own_lane(limited.id), Level.LOW)
            await sink.until(lambda: len(sink.pushes(limited)) == 3)

            await limit(backend, of(limited), Limit())
            await until_state(backend, limited, State.DONE)

        assert Counter(sink.pushes(limited)).total() == len(set(sink.pushes(limited))) == 300


async def test_a_limited_app_holds_up_no_other_app_on_shared_lanes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        apps = ("shop", "news") * 3
        tasks = [await add_task(backend, Level.LOW, pushes=100, app=app) for app in apps]
        sink = MemorySink()
        await limit(backend, Subject("app", "shop"), Limit(a_day=10))
        async with dispatching(backend, sink, settings):
            for task in tasks[1::2]:
                await until_state(backend, task, State.DONE)

            sent = [len(sink.pushes(task)) for task in tasks[::2]]
            assert sum(sent) <= 10


async def test_a_cancelled_task_ends_though_its_pushes_wait(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.LOW, pushes=50)
        sink = MemorySink()
        await limit(backend, of(task), Limit(total=1))
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.limited["task"] > 0)

            await backend.registry.change(task.id, task_changes.cancel)
            await until_state(backend, task, State.CANCELLED)

        assert len(sink.received) <= 1


async def test_waits_are_counted_by_scope(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=3)
        metrics = CollectorRegistry()
        await limit(backend, Subject("app", "default"), Limit(in_flight=1))
        async with dispatching(backend, MemorySink(), settings, registry=metrics):
            await until_state(backend, task, State.DONE)

        def waits(scope: str) -> float | None:
            labels = {"scope": scope, "sink": "default"}
            return metrics.get_sample_value("pushlane_limited_total", labels)

        assert waits("app") > 0
        assert (waits("task"), waits("sink")) == (0, 0)
        assert metrics.get_sample_value("pushlane_limiter_away", {"sink": "default"}) == 0


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_what_waits_for_a_limit_keeps_its_order(tmp_path: Path, level: Level) -> None:
    keys = "abcabcab" * 5
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, keys, level)
        sink = MemorySink()
        await limit(backend, of(task), Limit(rate_per_s=100, in_flight=2))
        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.DONE)

        sent = [seq for _, seq in sink.pushes()]
        for key in set(keys):
            of_key = [seq for seq in sent if keys[seq - 1] == key]
            assert of_key == [seq for seq, one in enumerate(keys, start=1) if one == key]


def _gone(_: Delivery) -> Outcome:
    return Outcome.dead("unregistered")


CHAIN = {"fcm": SinkSettings(kind="null"), "sms": SinkSettings(kind="null", cost=2.0)}


def _of_both(seq: int) -> dict[str, str]:
    return {"fcm": f"f{seq}", "sms": f"s{seq}"}


async def test_what_goes_on_to_a_later_sink_is_charged_to_that_sinks_totals(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, sinks=CHAIN) as (backend, settings):
        task = await add_task(backend, pushes=6, sinks=("fcm", "sms"), addresses=_of_both)
        sinks = {"fcm": MemorySink(_gone), "sms": MemorySink()}
        sms = Subject("sink", "sms")
        await limit(backend, of(task), Limit(total=6, total_cost=6))
        await limit(backend, sms, Limit(total_cost=100))
        async with dispatching(backend, sinks, settings):
            await until_state(backend, task, State.DONE)

        of_task, of_sms = await backend.limiter.usage([str(of(task)), str(sms)], "")
        assert of_task.spent == {"total": 6, "total_cost": 6}
        assert of_sms.spent == {"total_cost": 12}


async def test_a_push_that_only_a_later_sink_can_take_is_charged_there(tmp_path: Path) -> None:
    async with backend_in(tmp_path, sinks=CHAIN) as (backend, settings):
        task = await add_task(
            backend, pushes=6, sinks=("fcm", "sms"), addresses=lambda seq: {"fcm": "", "sms": "s"}
        )
        sinks = {"fcm": MemorySink(), "sms": MemorySink()}
        app = Subject("app", "default")
        await limit(backend, of(task), Limit(total=6))
        await limit(backend, app, Limit(total_cost=100))
        async with dispatching(backend, sinks, settings):
            await until_state(backend, task, State.DONE)

        of_task, of_app = await backend.limiter.usage([str(of(task)), str(app)], "")
        assert (of_task.spent, of_app.spent) == ({"total": 6}, {"total_cost": 12})
