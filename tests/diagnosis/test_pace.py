"""How fast many tasks go and when they end: what `why` says of one, asked once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import pushlane.diagnosis.look
from pushlane.backends.backend import Backend
from pushlane.core.task import Level, Task
from pushlane.diagnosis.fluid import forecast, forecasts
from pushlane.diagnosis.look import why
from pushlane.diagnosis.pace import Pace, paces_of
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.load import Standing
from pushlane.model.presence import MOST_TASKS, Process, ServedSink
from tests.core.support import Wrapped, add_task, backend_in
from tests.diagnosis.support import busy_sink, load_of, process_of, task_of


async def paces(backend: Backend, tasks: Sequence[Task], *processes: Process) -> dict[str, Pace]:
    progress = await backend.registry.progress([task.id for task in tasks])
    return await paces_of(backend, list(zip(tasks, progress, strict=True)), processes)


def says(rates: dict[str, float] | None, **fields: object) -> Process:
    return process_of(busy_sink(100.0, tasks_per_s=rates), **fields)


async def test_ends_and_what_is_due_are_those_that_why_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [
            await add_task(backend, level, pushes, app=app)
            for level, pushes, app in (
                (Level.HIGH, 300, "shop"),
                (Level.HIGH, 900, "news"),
                (Level.MEDIUM, 500, "shop"),
                (Level.LOW, 200, "news"),
            )
        ]
        await change_limit(
            backend.documents, Subject("app", "news"), lambda _: Limit(rate_per_s=20.0)
        )
        process = says({})
        await backend.presence.announce(process, 60.0)

        found = await paces(backend, tasks, process)

        for task in tasks:
            told = await why(backend, task.id, settings)
            assert told.eta_s is not None
            assert found[task.id].ends_in_s == pytest.approx(told.eta_s), task.level
            assert told.entitled_share is not None
            assert found[task.id].entitled_per_s == pytest.approx(100.0 * told.entitled_share)


async def test_the_broker_is_not_asked(tmp_path: Path) -> None:
    class Silent(Wrapped):
        async def backlog(self, lane: str) -> int:
            raise AssertionError(f"asked about {lane}")

        delayed = backlog

    async with backend_in(tmp_path) as (backend, _):
        tasks = [await add_task(backend, Level.MEDIUM, 1) for _ in range(120)]
        silent = replace(backend, broker=cast(Any, Silent(backend.broker)))

        found = await paces(silent, tasks, says({tasks[0].id: 2.5}))

    assert len(found) == 120
    assert found[tasks[0].id].per_s == 2.5
    assert all(pace.ends_in_s is not None for pace in found.values())


async def test_rates_are_added_up_over_processes_and_one_that_none_names_is_still(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        a, b = [await add_task(backend, Level.HIGH, 9) for _ in range(2)]

        found = await paces(backend, [a, b], says({a.id: 2.0}), says({a.id: 3.0}, id="e"))

    assert (found[a.id].per_s, found[b.id].per_s) == (5.0, 0.0)


@pytest.mark.parametrize(
    "others", [None, {f"t{number}": 9.0 for number in range(MOST_TASKS)}], ids=["old", "many"]
)
async def test_a_rate_that_a_process_may_have_left_out_is_not_known(
    tmp_path: Path, others: dict[str, float] | None
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 9)

        found = await paces(backend, [task], says({}), says(others, id="e"))

    assert found[task.id].per_s is None


async def test_nothing_is_known_of_tasks_at_a_sink_that_nobody_serves_or_that_is_new(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 9)

        assert await paces(backend, [task]) == {task.id: Pace()}
        assert await paces(backend, [task], process_of(ServedSink(name="default", slots=5))) == {
            task.id: Pace()
        }


async def test_no_end_is_told_where_pushes_went_on_or_a_total_is_spent_or_nobody_knows_how_many(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        plain, spent = [await add_task(backend, Level.HIGH, 9, app=app) for app in ("a", "b")]
        open_ = await add_task(backend, Level.HIGH, 9, seal=False)
        chained = await add_task(backend, Level.HIGH, 9, sinks=("default", "sms"))
        await backend.reach(chained.id, "sms")
        chained = await backend.registry.get(chained.id)
        await change_limit(backend.documents, Subject("app", "b"), lambda _: Limit(total_cost=0.5))

        found = await paces(backend, [plain, spent, open_, chained], says({}))

    assert found[plain.id].ends_in_s is not None
    assert [found[one.id].ends_in_s for one in (spent, open_, chained)] == [None] * 3


def test_the_ends_of_a_few_tasks_are_those_of_each_by_itself() -> None:
    load = load_of(
        *(
            Standing(task_of(f"t{n}", list(Level)[n % 3], app=f"a{n % 4}"), 50 * n)
            for n in range(90)
        )
    )
    ids = [one.task.id for one in load.standings]

    found = forecasts(load, ids, 100.0)

    for task_id in ids[1:]:
        assert found[task_id] == pytest.approx(forecast(load, task_id, 100.0))
