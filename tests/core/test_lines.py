"""Several sinks in one process: each has a line of its own, and holds up nobody else's pushes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pushlane.core.names import lane_at, later_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, encode
from pushlane.core.task import DeliveryMode, Level, State
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dead_pushes,
    dispatching,
    drain,
    until,
    until_state,
    until_task,
)

LEVELS = (Level.HIGH, Level.MEDIUM, Level.LOW)


def down(_: object) -> Outcome:
    return Outcome.throttled("no connection")


async def test_pushes_go_to_the_sink_that_their_task_names(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = {"default": MemorySink(), "sms": MemorySink()}
        plain = [await add_task(backend, level, 5) for level in LEVELS]
        named = [await add_task(backend, level, 7, sinks=("sms",)) for level in LEVELS]

        await drain(backend, sinks, settings)

        counts = {name: Counter(task for task, _ in sink.pushes()) for name, sink in sinks.items()}
        assert counts["default"] == {task.id: 5 for task in plain}
        assert counts["sms"] == {task.id: 7 for task in named}


async def test_levels_share_each_sink(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=1, prefetch=100) as (backend, settings):
        sinks = {"a": MemorySink(), "b": MemorySink()}
        for name in sinks:
            for level in LEVELS:
                await add_task(backend, level, 60, sinks=(name,))

        await drain(backend, sinks, settings)

        for sink in sinks.values():
            first = [delivery.level for delivery in sink.received[:100]]
            assert Counter(first) == {Level.HIGH: 60, Level.MEDIUM: 30, Level.LOW: 10}


@pytest.mark.parametrize("level", LEVELS)
async def test_a_sink_that_rests_holds_up_no_other(tmp_path: Path, level: Level) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = {"a": MemorySink(down), "b": MemorySink()}
        waits = await add_task(backend, level, 50, sinks=("a",))
        goes = await add_task(backend, level, 200, sinks=("b",))

        async with dispatching(backend, sinks, settings):
            await until_state(backend, goes, State.DONE)
            [progress] = await backend.registry.progress([waits.id])

        assert progress.finished == 0
        assert len(sinks["b"].received) == 200


async def test_a_sink_that_hangs_takes_the_slots_of_no_other(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=2) as (backend, settings):
        sinks = {"a": MemorySink(), "b": MemorySink()}
        sinks["a"].gate.clear()
        await add_task(backend, Level.HIGH, 50, sinks=("a",))
        goes = await add_task(backend, Level.LOW, 50, sinks=("b",))

        async with dispatching(backend, sinks, settings):
            await sinks["a"].until_received(2)
            await until_state(backend, goes, State.DONE)
            sinks["a"].gate.set()

        assert sinks["a"].most_in_flight == 2


async def test_lanes_of_a_sink_that_is_not_served_are_not_read(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        other = [await add_task(backend, level, 5, sinks=("b",)) for level in LEVELS]
        task = await add_task(backend, Level.HIGH, 5, sinks=("a",))
        sink = MemorySink()

        async with dispatching(backend, {"a": sink}, settings) as dispatcher:
            await until_state(backend, task, State.DONE)
            assert not any(dispatcher.reads(one.lane) for one in other)
            [process] = await backend.presence.list()

        assert process.serves == ("a",)
        assert Counter(task for task, _ in sink.pushes()) == {task.id: 5}


async def test_a_dispatcher_of_one_sink_leaves_tasks_of_others_alone(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        other = await add_task(backend, Level.HIGH, 5, sinks=("b",))
        await add_task(backend, Level.HIGH, 5)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert len(sink.received) == 5
        assert (await backend.registry.get(other.id)).state is State.RUNNING


async def test_settings_of_a_sink_hold_for_it_alone(tmp_path: Path) -> None:
    sinks = {"narrow": {"kind": "null", "slots": 2}, "wide": {"kind": "null"}}
    async with backend_in(tmp_path, sinks=sinks) as (backend, settings):
        receiving = {"narrow": MemorySink(), "wide": MemorySink()}
        for name, sink in receiving.items():
            sink.gate.clear()
            await add_task(backend, Level.HIGH, 30, sinks=(name,))

        async with dispatching(backend, receiving, settings) as dispatcher:
            await until(lambda: receiving["wide"].most_in_flight == 8)
            await until(lambda: receiving["narrow"].most_in_flight == 2)
            for sink in receiving.values():
                sink.gate.set()
            await until(lambda: sum(map(delivered, dispatcher.stats_by_sink().values())) == 60)

        assert receiving["narrow"].most_in_flight == 2


def delivered(stats: object) -> int:
    outcomes = stats.outcomes  # type: ignore[attr-defined]
    return sum(count for (_, kind), count in outcomes.items() if kind == "delivered")


async def test_credentials_that_are_refused_hold_the_sink_and_not_its_tasks(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        refused = [True]

        def answer(_: object) -> Outcome:
            return Outcome.refused("HTTP 401") if refused else DELIVERED

        sinks = {"a": MemorySink(answer), "b": MemorySink()}
        held = await add_task(backend, Level.HIGH, 40, sinks=("a",))
        goes = await add_task(backend, Level.HIGH, 40, sinks=("b",))

        async with dispatching(backend, sinks, settings) as dispatcher:
            await until_state(backend, goes, State.DONE)
            await until(dispatcher.resting)
            [resting] = dispatcher.resting()
            assert resting.reason == "it refuses our credentials: HTTP 401"
            assert len(sinks["a"].received) <= settings.slots
            assert (await backend.registry.get(held.id)).state is State.RUNNING
            refused.clear()
            dispatcher.try_again("a")
            await until_state(backend, held, State.DONE)

        [progress] = await backend.registry.progress([held.id])
        assert progress.delivered == 40
        assert {delivery.push.attempt for delivery in sinks["a"].received} == {1}


def gone_at(*names: str) -> dict[str, MemorySink]:
    """Sinks at which all addresses are dead, and one behind them that delivers."""
    dead = {name: MemorySink(lambda _: Outcome.dead("no such device")) for name in names}
    return {**dead, "sms": MemorySink()}


@pytest.mark.parametrize("level", LEVELS)
async def test_a_dead_push_goes_on_to_the_next_sink_and_counts_once(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = gone_at("fcm", "mail")
        task = await add_task(backend, level, 20, sinks=("fcm", "mail", "sms"))

        await drain(backend, sinks, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.finished) == (20, 20)
        assert [sorted(sink.pushes()) for sink in sinks.values()] == [
            [(task.id, seq) for seq in range(1, 21)]
        ] * 3
        assert {delivery.push.attempt for delivery in sinks["sms"].received} == {1}


async def test_a_push_goes_on_after_its_last_attempt(tmp_path: Path) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        sinks = {"fcm": MemorySink(lambda _: Outcome.retry("HTTP 500")), "sms": MemorySink()}
        task = await add_task(backend, Level.HIGH, 1, sinks=("fcm", "sms"), max_attempts=3)

        await drain(backend, sinks, settings)

        assert [d.push.attempt for d in sinks["fcm"].received] == [1, 2, 3]
        assert sinks["sms"].pushes() == [(task.id, 1)]


async def test_a_dead_push_tells_at_which_sink_it_died(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = {name: MemorySink(lambda _: Outcome.dead("gone")) for name in ("fcm", "sms")}
        await add_task(backend, Level.HIGH, 1, sinks=("fcm", "sms"))

        await drain(backend, sinks, settings)

        assert [dead.sink for dead in await dead_pushes(backend, 1)] == ["sms"]


async def test_a_sink_without_an_address_is_passed_over(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = gone_at("fcm", "mail")

        def addresses(seq: int) -> dict[str, str]:
            return {"fcm": "" if seq == 1 else "f", "mail": "", "sms": "s" if seq < 3 else ""}

        task = await add_task(
            backend, Level.HIGH, 3, sinks=("fcm", "mail", "sms"), addresses=addresses
        )

        await drain(backend, sinks, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (2, 1)
        assert sorted(sinks["fcm"].pushes()) == [(task.id, 2), (task.id, 3)]
        assert sinks["mail"].received == []
        assert sorted(sinks["sms"].pushes()) == [(task.id, 1), (task.id, 2)]
        assert {delivery.address for delivery in sinks["fcm"].received} == {"f"}
        assert {delivery.address for delivery in sinks["sms"].received} == {"s"}


async def test_another_process_takes_up_what_goes_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = gone_at("fcm")
        task = await add_task(backend, Level.HIGH, 20, sinks=("fcm", "sms"))

        async with (
            dispatching(backend, {"sms": sinks["sms"]}, settings),
            dispatching(backend, {"fcm": sinks["fcm"]}, settings),
        ):
            await until_state(backend, task, State.DONE)

        assert len(sinks["sms"].received) == 20


async def test_what_may_have_arrived_does_not_go_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        timed_out = Outcome.dead("timed out", arrival=Arrival.UNKNOWN, scope=None)
        sinks = {"fcm": MemorySink(lambda _: timed_out), "sms": MemorySink()}
        task = await add_task(backend, Level.HIGH, 3, sinks=("fcm", "sms"))

        await drain(backend, sinks, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.dead, sinks["sms"].received) == (3, [])


@pytest.mark.parametrize("delivery", ["once", "at_most_once"])
async def test_a_claimed_push_is_let_go_before_it_goes_on(tmp_path: Path, delivery: str) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = gone_at("fcm")
        task = await add_task(
            backend, Level.HIGH, 20, sinks=("fcm", "sms"), delivery=DeliveryMode(delivery)
        )

        await drain(backend, sinks, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, len(sinks["sms"].received)) == (20, 20)


async def test_pushes_that_went_on_are_paused_and_cancelled_with_their_task(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, retention_s=0.0) as (backend, settings):
        sinks = gone_at("fcm")
        sinks["sms"].gate.clear()
        task = await add_task(backend, Level.HIGH, 100, sinks=("fcm", "sms"))

        async with dispatching(backend, sinks, settings) as dispatcher:
            await sinks["sms"].until_received(1)
            await backend.pause(task.id)
            known = dispatcher._shared.tasks.active
            await until(lambda: known[task.id].state is State.PAUSED)
            sinks["sms"].gate.set()
            await backend.registry.change(task.id, task_changes.cancel)
            lanes = [lane_at(task.id, "sms"), later_lane(lane_at(task.id, "sms")), task.lane]
            await until_task(backend, task, lambda now: now.lane_dropped)

        assert not set(lanes) & set(await backend.broker.lanes())
        assert len(sinks["sms"].received) <= 2 * settings.slots


async def test_a_retry_at_a_later_sink_waits_there(tmp_path: Path) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        sinks = gone_at("fcm")
        failing = MemorySink(
            lambda d: DELIVERED if d.push.attempt == 3 else Outcome.retry("HTTP 500")
        )
        task = await add_task(backend, Level.LOW, 5, sinks=("fcm", "sms"))

        await drain(backend, {**sinks, "sms": failing}, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, len(failing.received)) == (5, 15)


async def test_metrics_of_each_sink_stand_under_its_name(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        registry = CollectorRegistry()
        for name, count in (("a", 3), ("b", 5)):
            await add_task(backend, Level.HIGH, count, sinks=(name,))
        dispatcher = Dispatcher(
            backend, {"a": MemorySink(), "b": MemorySink()}, settings, drain=True, registry=registry
        )

        await dispatcher.run()

        page = generate_latest(registry).decode()
        for name, count in (("a", 3), ("b", 5)):
            labels = {"level": "high", "outcome": "delivered", "sink": name}
            assert registry.get_sample_value("pushlane_outcomes_total", labels) == count
        assert page.count("# HELP pushlane_outcomes_total") == 1


async def test_a_push_that_alone_is_refused_loses_attempts_and_holds_nobody(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):

        def answer(delivery: Delivery) -> Outcome:
            return Outcome.refused("HTTP 403") if delivery.push.seq == 3 else DELIVERED

        sinks = {"a": MemorySink(answer)}
        task = await add_task(backend, Level.HIGH, 20, sinks=("a",))

        async with dispatching(backend, sinks, settings) as dispatcher:
            await until(lambda: sinks["a"].pushes().count((task.id, 3)) >= 3)
            assert dispatcher.resting() == []

        [progress] = await backend.registry.progress([task.id])
        assert progress.delivered == 19


async def test_an_answer_that_a_broken_sink_gives_too_buries_a_push_of_at_most_once(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        not_found = Outcome.dead("HTTP 404", scope=None)
        sinks = {"fcm": MemorySink(lambda _: not_found), "sms": MemorySink()}
        task = await add_task(
            backend,
            Level.HIGH,
            3,
            sinks=("fcm", "sms"),
            delivery=DeliveryMode.AT_MOST_ONCE,
        )

        await drain(backend, sinks, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.dead, sinks["sms"].received) == (3, [])


class Asked(Wrapped):
    """A registry that counts how often it was asked which pushes are finished."""

    times = 0

    async def finished(self, task_id: str, seqs: Sequence[int]) -> Sequence[bool]:
        self.times += 1
        found: Sequence[bool] = await self._real.finished(task_id, seqs)
        return found


async def test_order_is_kept_for_as_long_as_a_later_sink_rests(tmp_path: Path) -> None:
    async with backend_in(tmp_path, order_timeout_s=1.0) as (real, settings):
        backend = replace(real, registry=Asked(real.registry))
        await add_task(backend, Level.HIGH, 30, sinks=("sms",))
        rests = [True]
        fcm = MemorySink(lambda d: Outcome.dead("gone") if d.push.seq == 1 else DELIVERED)
        sms = MemorySink(lambda _: Outcome.refused("HTTP 401") if rests else DELIVERED)
        task = await add_task(
            backend, Level.HIGH, 0, seal=False, sinks=("fcm", "sms"), ordered=True
        )
        pushes = [Push(task.id, 1, "to-1"), Push(task.id, 2, "to-1", after_seq=1)]
        await backend.broker.publish(task.lane, list(map(encode, pushes)))
        await backend.registry.change(task.id, task_changes.seal(2))

        async with dispatching(backend, {"fcm": fcm, "sms": sms}, settings) as dispatcher:
            await until(dispatcher.resting)
            await until_task(backend, task, lambda now: now.reached == ("sms",))
            asked = backend.registry.times
            await until(lambda: backend.registry.times > asked + 60)  # 3 s, and so the timeout
            assert fcm.pushes() == [(task.id, 1)]
            rests.clear()
            dispatcher.try_again("sms")
            await until_state(backend, task, State.DONE)

        assert fcm.pushes() == [(task.id, 1), (task.id, 2)]


async def test_a_drain_ends_though_pushes_wait_at_a_sink_that_nobody_serves(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = gone_at("fcm")
        tasks = [await add_task(backend, level, 20, sinks=("fcm", "sms")) for level in LEVELS]

        await drain(backend, {"fcm": sinks["fcm"]}, settings)

        counts = await backend.registry.progress([task.id for task in tasks])
        assert [one.finished for one in counts] == [0, 0, 0]
        assert len(sinks["fcm"].received) == 60
        await drain(backend, {"sms": sinks["sms"]}, settings)
        assert len(sinks["sms"].received) == 60
