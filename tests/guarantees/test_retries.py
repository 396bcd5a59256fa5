"""How long a push waits for its next attempt, and how many may wait."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.task import Level, State
from pushlane.util.retrying import backoff
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
)


@pytest.mark.parametrize(("attempt", "most_s"), [(1, 2), (2, 4), (3, 8), (4, 10), (99, 10)])
def test_the_wait_doubles_up_to_the_longest_and_is_at_least_half_of_it(
    attempt: int, most_s: float
) -> None:
    waits = [backoff(2.0, 10.0)(attempt) for _ in range(200)]

    assert most_s / 2 <= min(waits) < max(waits) <= most_s


def test_retries_of_the_same_attempt_do_not_come_in_a_wave() -> None:
    waits = {round(backoff(8.0, 10.0)(1), 1) for _ in range(200)}

    assert len(waits) > 20


async def test_a_lane_rests_while_too_many_of_its_pushes_wait(tmp_path: Path) -> None:
    async with backend_in(tmp_path, later_max=5, slots=2) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 60)

        def answer(delivery: Delivery) -> Outcome:
            if delivery.push.task_id != task.id:
                return DELIVERED
            if len(sink.received) == 10:
                sink.gate.clear()
            return Outcome.retry("busy", after_s=3_600.0)

        sink = MemorySink(answer)
        metrics = CollectorRegistry()
        async with dispatching(backend, sink, settings, registry=metrics):
            await until(
                lambda: metrics.get_sample_value("pushlane_lanes_full", {"sink": "default"}) == 1
            )
            sink.gate.set()

            other = await add_task(backend, Level.HIGH, 50)
            await until_state(backend, other, State.DONE)
            assert 10 <= len(sink.pushes(task)) <= 10 + settings.slots


async def test_a_lane_that_rested_goes_on_when_less_of_it_waits(tmp_path: Path) -> None:
    async with backend_in(tmp_path, later_max=5, slots=2) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 15)
        sink = MemorySink(
            lambda delivery: (
                DELIVERED if delivery.push.attempt > 1 else Outcome.retry("busy", after_s=0.2)
            )
        )

        async with dispatching(backend, sink, settings):
            await until_state(backend, task, State.DONE)

        assert Counter(sink.pushes(task)) == {(task.id, seq): 2 for seq in range(1, 16)}
