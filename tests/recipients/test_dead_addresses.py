"""Dead addresses in a dispatcher: recorded once, and sent to by no task any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, Scope, encode
from pushlane.core.task import DeliveryMode, Task
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.guards.recipient_guard import DeadAddressRecorder
from pushlane.dispatcher.metrics import LINE_METRICS
from pushlane.dispatcher.stats import SUPPRESSED, ByReason
from pushlane.model import task_changes
from pushlane.model.address_seal import AddressSeal
from pushlane.model.recipients import AddressDeath, DeadAddress, DeadAddressQuery, kept_hasher
from pushlane.util.metrics import MetricCollector
from pushlane.util.texts import Secret
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
)

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
DEAD = "token-of-a-phone-that-was-sold"
GONE = Outcome.gone("UNREGISTERED")


def gone(outcome: Outcome = GONE, address: str = DEAD) -> Callable[[Delivery], Outcome]:
    return lambda delivery: outcome if delivery.address == address else DELIVERED


async def add(backend: Backend, *recipients: str, **fields: Any) -> Task:
    """A sealed task with a push to each."""
    task = await add_task(backend, pushes=0, seal=False, **fields)
    pushes = [Push(task.id, seq, to) for seq, to in enumerate(recipients, start=1)]
    await backend.broker.publish(task.lane, [encode(push) for push in pushes])
    return await backend.registry.change(task.id, task_changes.seal(len(pushes)))


async def register(backend: Backend, address: str, at_ms: int, sink: str = "default") -> int:
    hasher = await kept_hasher(backend.documents)
    return await backend.dead_addresses.register(sink, hasher.hashes([address]), at_ms)


async def recorded(backend: Backend) -> list[DeadAddress]:
    return (await backend.dead_addresses.page(DeadAddressQuery())).addresses


async def ends(backend: Backend, task: Task) -> tuple[int, int, int]:
    [progress] = await backend.registry.progress([task.id])
    return progress.delivered, progress.dead, progress.dropped


async def test_a_dead_address_is_recorded_once_and_no_task_sends_to_it(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink(gone())
        async with dispatching(backend, sink, settings) as dispatcher:
            first = await add(backend, DEAD, app="shop")
            counts = dispatcher.stats.dead_addresses
            await until(lambda: counts)
            others = [await add(backend, DEAD, "alive", DEAD) for _ in range(3)]
            await until(lambda: dispatcher.stats.dropped[SUPPRESSED] == 6)
            await sink.until_received(4)

        [one] = await recorded(backend)
        assert (one.sink, one.reason, one.app) == ("default", "UNREGISTERED", "shop")
        assert counts == {"UNREGISTERED": 1}
        assert sorted(delivery.address for delivery in sink.received) == ["alive"] * 3 + [DEAD]
        assert await ends(backend, first) == (0, 1, 0)
        assert [await ends(backend, task) for task in others] == [(1, 0, 2)] * 3


async def test_another_process_that_runs_sends_to_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.dispatcher.guards.recipient_guard._LOOK_S", 0.01)
    looked = asyncio.Event()

    class Watched(Wrapped):
        async def counts(self) -> Any:
            found = await self._real.counts()
            if found:
                looked.set()
            return found

    async with backend_in(tmp_path) as (real, settings):
        watched = replace(real, suppressions=Watched(real.suppressions))
        sink = MemorySink()
        async with dispatching(watched, sink, settings) as dispatcher:
            await add(real, "alive")
            await sink.until_received(1)
            [one] = (await kept_hasher(real.documents)).hashes([DEAD])
            now = task_changes.now_ms()
            await real.dead_addresses.record("default", [AddressDeath(one, now, "gone")], now)
            await looked.wait()
            await add(real, DEAD, "alive", DEAD)
            await until(lambda: dispatcher.stats.dropped[SUPPRESSED] == 2)

        assert [delivery.address for delivery in sink.received] == ["alive", "alive"]


async def test_a_thousand_in_flight_to_one_dead_address_record_it_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=1_000) as (backend, settings):
        sink = MemorySink(gone())
        sink.gate.clear()
        task = await add(backend, *[DEAD] * 1_000)
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(1_000)
            sink.gate.set()

        assert len(await recorded(backend)) == 1
        assert dispatcher.stats.dead_addresses == {"UNREGISTERED": 1}
        assert await ends(backend, task) == (0, 1_000, 0)


async def test_the_next_sink_of_a_chain_takes_over_and_the_address_is_recorded(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sinks = {"fcm": MemorySink(gone()), "sms": MemorySink()}
        chain = {"pushes": 1, "sinks": ("fcm", "sms"), "addresses": lambda _: {"fcm": DEAD}}
        first = await add_task(backend, **chain)
        await drain(backend, sinks, settings)
        later = await add_task(backend, **chain)
        await drain(backend, sinks, settings)

        assert [one.sink for one in await recorded(backend)] == ["fcm"]
        assert sinks["fcm"].pushes(later) == []
        assert sinks["sms"].pushes() == [(first.id, 1), (later.id, 1)]


@pytest.mark.parametrize(
    ("gone_s", "registered_s", "is_dead"),
    [(-2, -1, False), (-1, -2, True), (None, 60, False), (None, -1, True), (120, 60, False)],
    ids=["died before", "died after", "in flight", "registered long ago", "a clock ahead"],
)
async def test_who_was_registered_since_it_died_lives(
    tmp_path: Path, gone_s: int | None, registered_s: int, is_dead: bool
) -> None:
    now = task_changes.now_ms()
    gone_at_ms = 0 if gone_s is None else now + gone_s * 1000
    async with backend_in(tmp_path) as (backend, settings):
        await register(backend, DEAD, now + registered_s * 1000)
        task = await add(backend, DEAD)

        await drain(backend, MemorySink(gone(Outcome.gone("gone", gone_at_ms))), settings)

        assert await ends(backend, task) == (0, 1, 0)
        assert bool(await recorded(backend)) is is_dead
        assert bool(await backend.suppressions.counts()) is is_dead


@pytest.mark.parametrize("gone_at_ms", [-1, -(10**30), 10**30])
async def test_a_time_of_death_that_cannot_be_is_when_it_was_found_out(
    tmp_path: Path, gone_at_ms: int
) -> None:
    before_ms = task_changes.now_ms()
    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, DEAD)

        await drain(backend, MemorySink(gone(Outcome.gone("gone", gone_at_ms))), settings)

        [one] = await recorded(backend)
        assert before_ms <= one.died_at_ms <= task_changes.now_ms()


async def test_what_is_registered_while_a_push_is_in_flight_does_not_die_of_its_answer(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink(gone())
        sink.gate.clear()
        async with dispatching(backend, sink, settings):
            await add(backend, DEAD)
            await sink.until_received(1)
            registered_at_ms = task_changes.now_ms()
            await register(backend, DEAD, registered_at_ms)
            await until(lambda: task_changes.now_ms() > registered_at_ms)
            sink.gate.set()

        assert await recorded(backend) == []
        assert await backend.suppressions.counts() == {}


async def test_what_is_heard_last_is_recorded_before_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = asyncio.Event()
    drain_really = DeadAddressRecorder.drain

    async def drain_told(recorder: DeadAddressRecorder, timeout_s: float) -> None:
        stopping.set()
        await drain_really(recorder, timeout_s)

    class Slow(Wrapped):
        async def record(self, *given: Any) -> Any:
            await stopping.wait()
            return await self._real.record(*given)

    monkeypatch.setattr(DeadAddressRecorder, "drain", drain_told)
    async with backend_in(tmp_path) as (real, settings):
        backend = replace(real, dead_addresses=Slow(real.dead_addresses))
        await add(backend, DEAD)

        await drain(backend, MemorySink(gone()), settings)

        assert len(await recorded(real)) == 1


async def test_what_is_registered_is_sent_to_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, DEAD)
        await drain(backend, MemorySink(gone()), settings)
        assert await register(backend, DEAD, task_changes.now_ms()) == 1
        task = await add(backend, DEAD)

        await drain(backend, MemorySink(), settings)

        assert await ends(backend, task) == (1, 0, 0)
        assert await recorded(backend) == []


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (Outcome.dead("bad payload"), {}),
        (Outcome.dead("404", scope=None), {}),
        (
            Outcome.throttled("too many to one token", scope=Scope.RECIPIENT),
            {"delivery": DeliveryMode.AT_MOST_ONCE, "max_attempts": 1},
        ),
    ],
    ids=["the push", "a deployment", "throttled"],
)
async def test_no_other_end_of_a_push_is_the_death_of_its_address(
    tmp_path: Path, outcome: Outcome, fields: dict[str, Any]
) -> None:
    answers = iter([outcome])

    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, DEAD, **fields)

        await drain(backend, MemorySink(lambda _: next(answers, DELIVERED)), settings)

        assert await recorded(backend) == []


async def test_no_delivery_waits_for_a_store_that_is_away(tmp_path: Path) -> None:
    class Away(Wrapped):
        is_away = True

        async def record(self, *given: Any) -> Any:
            if self.is_away:
                raise Unreachable("away")
            return await self._real.record(*given)

    async with backend_in(tmp_path) as (real, settings):
        away = Away(real.dead_addresses)
        backend = replace(real, dead_addresses=away)
        sink = MemorySink(gone())
        async with dispatching(backend, sink, settings) as dispatcher:
            task = await add(backend, DEAD, *map(str, range(50)), DEAD)
            await sink.until_received(52)
            await until(lambda: dispatcher.stats.released == 52)
            assert await recorded(real) == []
            away.is_away = False

        assert len(await recorded(real)) == 1
        assert await ends(backend, task) == (50, 2, 0)


async def test_more_than_may_wait_are_left_to_be_found_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pushlane.dispatcher.guards.recipient_guard._MOST_WAITING", 3)
    async with backend_in(tmp_path, slots=20) as (backend, settings):
        sink = MemorySink(lambda _: GONE, batch_size=20)
        await add(backend, *map(str, range(20)))

        with caplog.at_level(logging.WARNING, "pushlane.dead_addresses"):
            await drain(backend, sink, settings)

        assert len(await recorded(backend)) == 3
        assert len([r for r in caplog.records if "more are left" in r.message]) == 1


async def test_with_a_key_the_address_is_kept_encrypted(tmp_path: Path) -> None:
    async with backend_in(tmp_path, address_key=KEY) as (backend, settings):
        await add(backend, DEAD)

        await drain(backend, MemorySink(gone()), settings)

        [one] = await recorded(backend)
        assert DEAD not in repr(one)
        assert AddressSeal(Secret(KEY)).opened(one.sealed) == DEAD


async def test_without_a_key_only_the_hash_is_kept(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, DEAD)
        await drain(backend, MemorySink(gone()), settings)

        [one] = await recorded(backend)
        assert one.sealed == ""


async def test_what_is_too_long_for_a_token_is_not_kept(tmp_path: Path) -> None:
    async with backend_in(tmp_path, address_key=KEY) as (backend, settings):
        await add(backend, "x" * 5_000)
        await drain(backend, MemorySink(lambda _: GONE), settings)

        [one] = await recorded(backend)
        assert one.sealed == ""


@pytest.mark.parametrize("key", ["", "short", f"{KEY},", "päss"])
async def test_a_key_that_is_none_is_refused_at_the_start(tmp_path: Path, key: str) -> None:
    async with backend_in(tmp_path, address_key=key) as (backend, settings):
        with pytest.raises(BadInput, match=r"address_key .*openssl rand -base64 32") as refused:
            Dispatcher(backend, MemorySink(), settings)

        assert not key or key not in str(refused.value)


async def test_reasons_are_a_bounded_metric_and_never_somebodys_own_words(tmp_path: Path) -> None:
    registry = CollectorRegistry()

    def shown(reason: str) -> float | None:
        labels = {"sink": "default", "reason": reason}
        return registry.get_sample_value("pushlane_dead_addresses_total", labels)

    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, *map(str, range(30)))
        sink = MemorySink(lambda delivery: Outcome.gone("x" * (int(delivery.address) + 1)))
        await Dispatcher(backend, sink, settings, drain=True, registry=registry).run()
        assert shown("other") == 10

        await add(backend, "a", "b")
        sink = MemorySink(lambda delivery: Outcome.gone(delivery.address), hosts_code=True)
        registry = CollectorRegistry()
        await Dispatcher(backend, sink, settings, drain=True, registry=registry).run()
        assert shown("processor") == 2
        assert shown("a") is None


def test_metrics_are_read_by_a_thread_while_reasons_come(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, add_really = ByReason(), CounterMetricFamily.add_metric
    counted.add("UNREGISTERED")

    def add_metric(family: CounterMetricFamily, *given: Any) -> None:
        counted.add(f"{len(counted)}")  # the dispatcher's thread
        add_really(family, *given)

    monkeypatch.setattr(CounterMetricFamily, "add_metric", add_metric)
    [metric] = [one for one in LINE_METRICS if one.metric.name == "pushlane_dead_addresses_total"]
    line: Any = SimpleNamespace(stats=SimpleNamespace(dead_addresses=counted))
    [read] = MetricCollector([metric], lambda: [(line, ("fcm",))]).collect()

    assert "UNREGISTERED" in {one.labels["reason"] for one in read.samples}
