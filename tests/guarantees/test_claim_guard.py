"""Delivery modes: who may deliver a push, and what becomes of one that may have arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Outcome, Push, encode
from pushlane.core.task import DeliveryMode, OnUnknown, Progress, State, Task
from pushlane.producers.dead import DeadLetters, Selection
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
    until_state,
)

LONG_S = 600
OVER_S = 0.001  # a claim that has run out once it is asked for again
GUARDED = (DeliveryMode.ONCE, DeliveryMode.AT_MOST_ONCE)


class Away(Wrapped):
    """A ledger that does not answer until it is back."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.back = False
        self.asked = 0

    async def claim(self, *given: Any, **options: Any) -> Sequence[ClaimResult]:
        self.asked += 1
        if not self.back:
            raise Unreachable("the ledger does not answer")
        results: Sequence[ClaimResult] = await self._real.claim(*given, **options)
        return results


def mine(task: Task, *seqs: int) -> list[Push]:
    return [Push(task.id, seq, "nobody") for seq in seqs]


async def add(backend: Backend, mode: DeliveryMode, pushes: int = 1, **fields: Any) -> Task:
    return await add_task(backend, pushes=pushes, delivery=mode, **fields)


async def progress_of(backend: Backend, task: Task) -> Progress:
    [progress] = await backend.registry.progress([task.id])
    return progress


async def reasons(backend: Backend) -> list[str]:
    """Why pushes died."""
    found = await DeadLetters(backend).find(Selection())
    return [letter.dead.reason for letter in found.letters]


def failing_first(outcome: Outcome) -> Callable[[Delivery], Outcome]:
    """A sink's answers: this one to the first delivery, then all is well."""
    answers = iter([outcome])
    return lambda _: next(answers, Outcome.delivered())


async def test_at_least_once_never_asks_the_ledger(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        ledger = Away(backend.ledger)
        await add(backend, DeliveryMode.AT_LEAST_ONCE, 10)

        await drain(with_other(backend, ledger=ledger), MemorySink(), settings)

        assert ledger.asked == 0


@pytest.mark.parametrize("mode", GUARDED)
async def test_what_is_delivered_is_confirmed(tmp_path: Path, mode: DeliveryMode) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, mode, 3)

        await drain(backend, MemorySink(), settings)

        results = await backend.ledger.claim(mine(task, 1, 2, 3), "other", LONG_S)
        assert results == [ClaimResult.CONFIRMED] * 3


class Steps(Wrapped):
    """Notes what is asked of an adapter, in order."""

    def __init__(self, real: Any, steps: list[str]) -> None:
        super().__init__(real)
        self._steps = steps

    async def confirm(self, pushes: Sequence[Push]) -> None:
        await self._real.confirm(pushes)
        self._steps.append("confirm")

    async def record(self, finished: Any) -> Any:
        self._steps.append("count")
        return await self._real.record(finished)


async def test_a_delivery_is_confirmed_before_it_is_counted(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        steps: list[str] = []
        await add(backend, DeliveryMode.ONCE)
        watched = with_other(
            backend,
            ledger=Steps(backend.ledger, steps),
            registry=Steps(backend.registry, steps),
        )

        await drain(watched, MemorySink(), settings)

        assert steps == ["confirm", "count"]


@pytest.mark.parametrize("mode", GUARDED)
async def test_what_was_confirmed_is_not_sent_again_and_counts_as_delivered(
    tmp_path: Path, mode: DeliveryMode
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, mode, 3)
        await backend.ledger.confirm(mine(task, 2))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes()) == [(task.id, 1), (task.id, 3)]
        assert (await progress_of(backend, task)).delivered == 3


@pytest.mark.parametrize("batch_size", [1, 8])
async def test_a_push_that_is_on_its_lane_twice_is_sent_once(
    tmp_path: Path, batch_size: int
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, DeliveryMode.ONCE, 1, seal=False)
        await backend.broker.publish(task.lane, [encode(Push(task.id, 1, "to-1"))] * 3)
        sink = MemorySink(batch_size=batch_size)
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(1)
            sink.gate.set()
            await until(lambda: dispatcher.stats.outcomes[task.level, "delivered"])

        assert sink.pushes() == [(task.id, 1)]


STRICT = (DeliveryMode.AT_MOST_ONCE, OnUnknown.RESEND)
BURYING = (DeliveryMode.ONCE, OnUnknown.BURY)
RESENDING = (DeliveryMode.ONCE, OnUnknown.RESEND)


@pytest.mark.parametrize(
    ("promise", "arrival"),
    [
        (STRICT, Arrival.REFUSED),
        (BURYING, Arrival.REFUSED),
        (BURYING, Arrival.FAILED),
        (RESENDING, Arrival.UNKNOWN),
    ],
)
async def test_a_failure_is_tried_again_as_far_as_the_promise_allows(
    tmp_path: Path, promise: tuple[DeliveryMode, OnUnknown], arrival: Arrival
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, promise[0], on_unknown=promise[1])
        sink = MemorySink(failing_first(Outcome.retry("no", after_s=0, arrival=arrival)))

        await drain(backend, sink, settings)

        assert [delivery.push.attempt for delivery in sink.received] == [1, 2]
        assert (await progress_of(backend, task)).delivered == 1


@pytest.mark.parametrize(
    ("promise", "arrival", "why"),
    [
        (STRICT, Arrival.FAILED, "the task is at_most_once"),
        (STRICT, Arrival.UNKNOWN, "the task is at_most_once"),
        (BURYING, Arrival.UNKNOWN, "it may have arrived"),
    ],
)
async def test_what_may_have_arrived_is_dead_where_it_must_not_be_repeated(
    tmp_path: Path, promise: tuple[DeliveryMode, OnUnknown], arrival: Arrival, why: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, promise[0], on_unknown=promise[1])
        sink = MemorySink(failing_first(Outcome.retry("no", after_s=0, arrival=arrival)))

        await drain(backend, sink, settings)

        assert len(sink.received) == 1
        assert await reasons(backend) == [f"no; not tried again, since {why}"]


async def test_a_sink_that_raises_may_have_sent_the_push(tmp_path: Path) -> None:
    def answer(_: Delivery) -> Outcome:
        raise ValueError

    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, DeliveryMode.ONCE, on_unknown=OnUnknown.BURY)

        await drain(backend, MemorySink(answer), settings)

        assert await reasons(backend) == [
            "sink raised ValueError; not tried again, since it may have arrived"
        ]


@pytest.mark.parametrize("mode", GUARDED)
async def test_a_push_that_a_sink_refuses_to_send_goes_back_when_it_asks_for_a_pause(
    tmp_path: Path, mode: DeliveryMode
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, mode)
        sink = MemorySink(failing_first(Outcome.pause("bad credentials")))
        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.PAUSED)

        results = await backend.ledger.claim(mine(task, 1), "other", LONG_S)

        assert results == [ClaimResult.WON]
        assert await reasons(backend) == []


async def test_a_task_is_paused_though_the_push_that_showed_why_is_dead(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, DeliveryMode.AT_MOST_ONCE, 2, seal=False)
        sink = MemorySink(failing_first(Outcome.pause("mend it", arrival=Arrival.UNKNOWN)))
        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.PAUSED)

        assert await reasons(backend) == [
            "mend it; not tried again, since the task is at_most_once"
        ]


@pytest.mark.parametrize("mode", GUARDED)
async def test_a_dead_push_keeps_its_claim(tmp_path: Path, mode: DeliveryMode) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, mode)

        await drain(backend, MemorySink(lambda _: Outcome.dead("gone")), settings)

        assert await backend.ledger.claim(mine(task, 1), "other", LONG_S) == [ClaimResult.HELD]


async def lost_in_delivery(backend: Backend, mode: DeliveryMode, unknown: OnUnknown) -> Task:
    """A task whose only push was claimed by a process that is no more."""
    task = await add(backend, mode, on_unknown=unknown)
    await backend.ledger.claim(mine(task, 1), "gone", OVER_S)
    while await backend.ledger.claim(mine(task, 1), "probe", OVER_S) == [ClaimResult.HELD]:
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    ("mode", "unknown", "sent"),
    [
        (DeliveryMode.ONCE, OnUnknown.RESEND, 1),
        (DeliveryMode.ONCE, OnUnknown.BURY, 0),
        (DeliveryMode.AT_MOST_ONCE, OnUnknown.RESEND, 0),
    ],
)
async def test_what_may_have_arrived_is_sent_again_or_buried_as_the_task_says(
    tmp_path: Path, mode: DeliveryMode, unknown: OnUnknown, sent: int
) -> None:
    async with backend_in(tmp_path, sink_timeout_s=0.05, claim_timeout_s=0.05) as (
        backend,
        settings,
    ):
        task = await lost_in_delivery(backend, mode, unknown)
        sink = MemorySink()

        await drain(backend, sink, settings)

        progress = await progress_of(backend, task)
        assert (len(sink.received), progress.delivered, progress.dead) == (sent, sent, 1 - sent)
        lost = "its dispatcher was lost during delivery; it may have arrived"
        assert await reasons(backend) == [lost] * (1 - sent)


async def test_what_another_is_delivering_is_looked_at_again_once_it_may_be_lost(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, sink_timeout_s=0.2, claim_timeout_s=0.2) as (backend, settings):
        task = await add(backend, DeliveryMode.ONCE)
        [won] = await backend.ledger.claim(mine(task, 1), "another", 0.3)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert (won, sink.pushes()) == (ClaimResult.WON, [(task.id, 1)])


async def test_a_push_confirmed_meanwhile_is_not_sent_when_it_comes_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path, sink_timeout_s=0.05, claim_timeout_s=0.05) as (
        backend,
        settings,
    ):
        task = await add(backend, DeliveryMode.AT_MOST_ONCE)
        await backend.ledger.claim(mine(task, 1), "another", LONG_S)
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.claims[ClaimResult.HELD])
            await backend.ledger.confirm(mine(task, 1))
            await until_state(backend, task, State.DONE)

        assert sink.received == []


class Counted(Wrapped):
    """Notes how many pushes each claim names; the first answer is held back."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.sizes: list[int] = []
        self.answer = asyncio.Event()

    async def claim(self, pushes: Sequence[Push], *given: Any, **options: Any) -> Any:
        self.sizes.append(len(pushes))
        await self.answer.wait()
        return await self._real.claim(pushes, *given, **options)


async def test_claims_of_many_flights_go_in_one_call(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        ledger = Counted(backend.ledger)
        await add(backend, DeliveryMode.ONCE, 8)
        registry = CollectorRegistry()
        async with dispatching(
            with_other(backend, ledger=ledger), MemorySink(), settings, registry=registry
        ):
            await until(
                lambda: registry.get_sample_value("pushlane_in_flight", {"sink": "default"}) == 8
            )
            ledger.answer.set()

        assert sum(ledger.sizes) == 8
        assert len(ledger.sizes) <= 2  # the first may have come alone


async def test_without_a_ledger_pushes_wait_for_it_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pushlane.ledger")
    async with backend_in(tmp_path) as (backend, settings):
        ledger = Away(backend.ledger)
        task = await add(backend, DeliveryMode.ONCE, 3)
        sink = MemorySink()
        async with dispatching(with_other(backend, ledger=ledger), sink, settings):
            await until(lambda: ledger.asked >= 3)
            assert sink.received == []
            ledger.back = True
            await until_state(backend, task, State.DONE)

        assert len(sink.received) == 3

    assert [record.action for record in caplog.records] == ["service_lost", "service_back"]


async def test_at_least_once_does_not_wait_for_a_ledger_that_others_need(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        waiting = await add(backend, DeliveryMode.ONCE, 3)
        other = await add(backend, DeliveryMode.AT_LEAST_ONCE, 3)
        ledger = Away(backend.ledger)
        sink = MemorySink(batch_size=8)
        async with dispatching(with_other(backend, ledger=ledger), sink, settings):
            await until_state(backend, other, State.DONE)
            assert sink.pushes(waiting) == []
            ledger.back = True


@pytest.mark.parametrize("mode", GUARDED)
async def test_degraded_it_delivers_without_the_ledger_and_counts_that(
    tmp_path: Path, mode: DeliveryMode
) -> None:
    async with backend_in(tmp_path, ledger_away="degrade") as (backend, settings):
        registry = CollectorRegistry()
        task = await add(backend, mode, 3)
        sink = MemorySink()
        away = with_other(backend, ledger=Away(backend.ledger))
        async with dispatching(away, sink, settings, registry=registry):
            await until_state(backend, task, State.DONE)

        assert len(sink.received) == 3
        assert registry.get_sample_value("pushlane_ledger_degraded_total", {"sink": "default"}) == 3


async def test_claims_are_counted_by_what_came_of_them(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        registry = CollectorRegistry()
        task = await add(backend, DeliveryMode.ONCE, 3)
        await backend.ledger.confirm(mine(task, 1))
        async with dispatching(backend, MemorySink(), settings, registry=registry):
            await until_state(backend, task, State.DONE)

        page = generate_latest(registry).decode()
        assert 'pushlane_claims_total{result="won",sink="default"} 2.0' in page
        assert 'pushlane_claims_total{result="confirmed",sink="default"} 1.0' in page
