"""Rules expanded by Spark: what is due is on its lane once, whoever dies when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.ports import listed
from pushlane.model import task_changes
from pushlane.pipeline.rules.expand import SparkExpander
from pushlane.pipeline.rules.history import RunState, run_key
from pushlane.pipeline.rules.rule import make_rule
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.pipeline.rules.runner import Expanded, RunOrder
from pushlane.settings import Settings
from tests.command import Command
from tests.integration.pipeline.fanout_support import on_lane, people, seqs
from tests.rules import Clock, Leading, ms

NINE = ms("2026-01-01T09:00")


class Died(BaseException):
    """What a kill -9 does: nothing after it is done."""


def rule(audience: Path, **fields: object):
    given = {"audience": str(audience), "task": {"level": "high", "title": "Hi {name}"}}
    return make_rule("daily", {**given, "cron": "0 9 * * *", **fields}, NINE - 1000)


def test_a_rule_that_is_due_becomes_a_sealed_task(spark, tmp_path):
    settings = Settings(data_dir=tmp_path / "store")

    async def scenario() -> None:
        async with connect(settings) as backend:
            one = Leading(backend, Clock(NINE + 1000), expand=SparkExpander(settings))
            await one.add(rule(people(tmp_path), where="city = 'Rome'", budget_day=20))

            await one.once()

            task = await backend.registry.get(run_key("daily", NINE))
            [run] = (await one.history("daily")).runs
            assert (run.state, run.total, run.task_id) == (RunState.DONE, 20, task.id)
            assert (task.total, task.name) == (20, "daily")
        pushes = await on_lane(settings, task)
        assert seqs(pushes) == [*range(1, 21)]
        assert {push.recipient for push in pushes} == {
            f"user-{number}" for number in range(10, 201, 10)
        }

    asyncio.run(scenario())


def test_a_run_whose_leader_died_before_its_end_was_written_down_is_not_sent_again(spark, tmp_path):
    """Although its audience holds others by then."""
    settings = Settings(data_dir=tmp_path / "store")
    audience = people(tmp_path, 30)

    async def expand_and_die(order: RunOrder) -> Expanded:
        await SparkExpander(settings)(order)
        raise Died

    async def scenario() -> None:
        async with connect(settings) as backend:
            one = Leading(backend, Clock(NINE + 1000), expand=expand_and_die)
            await one.add(rule(audience))
            with pytest.raises(Died):
                await one.once()
            assert await one.states("daily") == ["running"]
            people(tmp_path, 50)

            two = Leading(backend, Clock(NINE + 60_000), "b", expand=SparkExpander(settings))
            await two.once()

            [run] = (await RuleStore(backend.documents).history("daily")).runs
            assert (run.state, run.total, run.begun) == (RunState.DONE, 30, 2)
            [task] = await listed(backend.registry)
        assert seqs(await on_lane(settings, task)) == [*range(1, 31)]

    asyncio.run(scenario())


def test_a_rule_that_an_older_version_has_saved_goes_on_with_a_warning(spark, tmp_path, caplog):
    settings, audience = Settings(data_dir=tmp_path / "store"), people(tmp_path, 10)
    expand = SparkExpander(settings)
    empty, braced = ({"level": "high", **texts} for texts in ({}, {"title": "Hi {{name}}"}))

    made = [
        asyncio.run(expand(RunOrder(rule(audience, task=task), key, None)))
        for key, task in (("a", empty), ("b", empty), ("c", braced))
    ]

    assert [one.total for one in made] == [10, 10, 10]
    told = [one.getMessage() for one in caplog.records if one.name == "pushlane.rules"]
    assert len(told) == 2
    assert "would have no title, body, data or payload" in told[0]
    assert "`{{name}}` would be sent as the text {name}" in told[1]


def test_a_run_whose_task_was_cancelled_once_it_was_complete_is_done(spark, tmp_path):
    settings, audience = Settings(data_dir=tmp_path / "store"), people(tmp_path, 10)
    expand, order = SparkExpander(settings), RunOrder(rule(audience), "a", None)
    made = asyncio.run(expand(order))

    async def cancel() -> None:
        async with connect(settings) as backend:
            await backend.registry.change(made.task_id, task_changes.cancel)

    asyncio.run(cancel())

    assert asyncio.run(expand(order)) == made


@pytest.fixture
def daily(spark, tmp_path, monkeypatch) -> Command:
    monkeypatch.setenv("PUSHLANE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    command = Command(tmp_path)
    people(tmp_path, 40)
    command.file("task.toml", 'level = "low"\ntitle = "Hi {name}"\n')
    return command


def add(command: Command, *more: str) -> None:
    words = ["--audience", "people", "--task-spec", "task.toml", "--cron", "0 9 * * *"]
    ran = command("rules", "add", "daily", *words, *more)
    assert ran.exit_code == 0, ran.stderr


def test_a_run_by_hand_prints_its_task_and_each_is_a_task_of_its_own(daily: Command):
    add(daily, "--where", "age < 10", "--check")

    ids = [daily("rules", "run", "daily").stdout.strip() for _ in range(2)]

    tasks = {task["id"]: task["total"] for task in daily("tasks", "--json").json}
    assert tasks == {ids[0]: 9, ids[1]: 9}
    assert [run["task_id"] for run in daily("rules", "history", "--json").json] == ids[::-1]


def test_what_a_run_would_send_is_counted_without_sending_it(daily: Command):
    add(daily, "--where", "age < 10")

    counts = daily("rules", "run", "daily", "--dry-run", "--json").json

    assert counts["total"] == 9
    assert daily("tasks", "--json").json == []


def test_a_run_over_its_budget_is_refused_and_sends_nothing(daily: Command):
    add(daily, "--budget-run", "39")

    ran = daily("rules", "run", "daily")

    assert ran.exit_code == 1
    assert "40 pushes are more than the 39" in ran.stderr
    assert daily("tasks", "--json").json == []
    assert daily("rules", "history", "--json").json[0]["state"] == "refused"


def test_a_run_for_nobody_is_done(daily: Command):
    add(daily, "--where", "age > 1000")

    ran = daily("rules", "run", "daily", "--json")

    assert ran.exit_code == 0, ran.stderr
    assert (ran.json["state"], ran.json["total"]) == ("done", 0)
    assert "task_id" not in ran.json


def test_a_rule_with_wrong_sql_is_refused_when_it_is_checked(daily: Command):
    words = ["--audience", "people", "--task-spec", "task.toml", "--cron", "0 9 * * *"]

    ran = daily("rules", "add", "daily", *words, "--where", "agee > 5", "--check")

    assert ran.exit_code == 1
    assert "did you mean 'age'" in ran.stderr
    assert "there is no pushlane store" in daily("rules", "list").stderr  # nothing was kept
