"""What is predicted of a task, held against what the scheduler then does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pushlane.core.names import pool_lanes
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler
from pushlane.diagnosis.look import _predicted, predict
from pushlane.diagnosis.slowing import forecast
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import Standing
from tests.core.support import add_task, backend_in
from tests.diagnosis.support import (
    NOW_MS,
    busy_sink,
    load_of,
    process_of,
    situation_of,
    task_of,
)

PER_S = 100.0
CAME = Standing(task_of("s", app="shop", created_at_ms=NOW_MS - 1_000), 60_000)


def ends_by_turns(tasks: Mapping[Task, int]) -> dict[str, float]:
    """When each task is through in a dispatcher that sends a push every hundredth of a second."""
    scheduler: Scheduler[str] = Scheduler()
    left = {task.id: pushes for task, pushes in tasks.items()}
    for task in tasks:
        scheduler.add(task.id, task.level, task.quota, task.app)
        scheduler.ready(task.id)
    ends_s: dict[str, float] = {}
    picks = 0
    while (picked := scheduler.pick()) is not None:
        scheduler.charge()
        picks += 1
        left[picked] -= 1
        if not left[picked]:
            scheduler.rest(picked)
            ends_s[picked] = picks / PER_S
    return ends_s


HIGH, MEDIUM, LOW = Level.HIGH, Level.MEDIUM, Level.LOW


@pytest.mark.parametrize(
    "tasks",
    [
        {"a": (HIGH, 1, 3_000, "x"), "b": (HIGH, 3, 3_000, "x")},
        {"a": (HIGH, 1, 3_000, "x"), "b": (MEDIUM, 1, 3_000, "x")},
        {"a": (HIGH, 1, 5_000, "x"), "b": (MEDIUM, 2, 900, "x"), "c": (LOW, 1, 2_000, "x")},
        {"a": (HIGH, 2, 100, "x"), "b": (HIGH, 5, 7_000, "x"), "c": (MEDIUM, 1, 4_000, "y")},
        {"a": (HIGH, 1, 2_000, "x"), "b": (HIGH, 3, 2_000, "x"), "c": (HIGH, 1, 4_000, "y")},
    ],
)
def test_ends_are_those_of_the_scheduler(tasks: dict[str, tuple[Level, int, int, str]]) -> None:
    made = {
        task_of(name, level, quota=quota, app=app): left
        for name, (level, quota, left, app) in tasks.items()
    }
    load = load_of(*(Standing(task, left) for task, left in made.items()), per_s=PER_S)

    real = ends_by_turns(made)

    predicted = {task.id: forecast(load, task.id, PER_S) for task in made}
    ends_s = {name: one.ends_in_s for name, one in predicted.items() if one}
    assert ends_s == pytest.approx(real, rel=0.03, abs=0.1)


async def test_a_task_that_is_not_there_yet_shares_with_those_that_are(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, Level.HIGH, 500)
        await add_task(backend, Level.HIGH, 500, sinks=("other",))
        await backend.presence.announce(process_of(busy_sink(PER_S)), 60.0)

        [found] = await predict(backend, settings, task_of(), {"default": 500})

    assert (found.sink, found.pushes, found.sink_per_s) == ("default", 500, PER_S)
    assert found.entitled_share == 0.5
    assert found.expected == pytest.approx((0, 10))
    assert [cause.name for cause in found.causes] == ["slots_full", "sharing"]


@pytest.mark.parametrize(("beside", "share"), [([], 0.85), ([CAME], 0.425)])
def test_what_others_get_by_their_limit_is_not_all_that_a_sink_takes(
    beside: list[Standing], share: float
) -> None:
    """Four slots of 20 ms take 200 a second: a limit of 30 leaves 170 for tasks without one."""
    others = [Standing(task_of("h", app="news"), 60_000), *beside]
    sink = busy_sink(29.0, slots=4, delivery_s=0.02, in_flight=2)
    limits = {Subject("app", "news"): Limit(rate_per_s=30)}

    found = _predicted(
        situation_of(task_of(total=340), 0, *others, processes=[process_of(sink)], limits=limits)
    )

    assert (found.sink_per_s, found.entitled_share) == pytest.approx((200, share))
    assert found.expected == pytest.approx((0, 340 / (200 * share)))


async def test_a_low_task_is_taken_to_get_the_emptiest_pool_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        low = await add_task(backend, Level.LOW, 500)
        await backend.presence.announce(process_of(busy_sink(PER_S)), 60.0)
        new = task_of(level=Level.LOW, lane=low.lane)

        [found] = await predict(backend, settings, new, {"default": 100})

    assert low.lane in pool_lanes(2)
    assert found.entitled_share == 0.5
    assert found.expected == pytest.approx((0, 2))


async def test_each_sink_of_a_chain_is_told_by_itself(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await backend.presence.announce(process_of(busy_sink(PER_S, name="fcm")), 60.0)
        chained = task_of(sinks=("fcm", "sms"))

        fcm, sms = await predict(backend, settings, chained, {"fcm": 200, "sms": 100})

    assert fcm.expected == pytest.approx((0, 2))
    assert (sms.sink, sms.pushes, sms.expected) == ("sms", 100, None)
    assert [cause.name for cause in sms.causes] == ["sink_unserved"]
