"""`limit` and `limits`: what a task, an app or a sink may take."""

from __future__ import annotations

import pytest

from tests.command import Command


def test_a_limit_is_set_and_shown(command: Command) -> None:
    command.submit("high", 1, "--app", "shop")
    ran = command("limit", "app/shop", "--rate", "30/min", "--in-flight", "20", "--total", "1,000")

    assert ran.exit_code == 0
    assert ran.stderr == "app/shop from now on: rate 30/min, in flight 20, total 1,000\n"
    heading, line = command("limits").stdout.splitlines()
    assert heading.split()[:4] == ["SUBJECT", "RATE", "IN", "FLIGHT"]
    assert " ".join(line.split()) == "app/shop 30/min 0 of 20 0 of 1,000 - - - -"


def test_what_is_not_given_stays_and_none_takes_one_away(command: Command) -> None:
    command("limit", "sink/fcm", "--rate", "100/s", "--a-day", "9")

    ran = command("limit", "sink/fcm", "--rate", "none", "--total-cost", "2.5", "--json")

    assert ran.json["limit"] == {"total_cost": 2.5, "a_day": 9}
    assert ran.json["remark"] in ran.stderr


def test_all_limits_of_a_subject_are_taken_away(command: Command) -> None:
    command("limit", "app/shop", "--rate", "100/s", "--recipient-a-day", "low=2,all=5")

    assert "app/shop from now on: no limits" in command("limit", "app/shop", "--none").stderr

    assert command("limits", "--json").json == []
    assert "; set one" in command("limits").stderr


def test_a_task_is_found_by_its_name_and_kept_by_its_id(command: Command) -> None:
    task_id = command.submit("high", 3, "--name", "sale")

    command("limit", "task/sale", "--total", "2")

    assert [one["subject"] for one in command("limits", "--json").json] == [f"task/{task_id}"]


@pytest.mark.parametrize("by", ["id", "key", "name"])
def test_a_task_needs_no_task_before_it(command: Command, by: str) -> None:
    task_id = command.submit("high", 3, "--name", "sale", "--key", "s1")
    word = {"id": task_id, "key": "s1", "name": "sale"}[by]

    ran = command("limit", word, "--total", "2", "--json")

    assert ran.json == {
        "subject": f"task/{task_id}",
        "limit": {"total": 2},
        "used": {"in_flight": 0},
    }


def test_a_limit_is_shown_when_none_is_given(command: Command) -> None:
    task_id = command.submit("high", 3, "--name", "sale", "--app", "shop")
    command("limit", "sale", "--total", "2", "--rate", "30/min")

    assert command("limit", "sale").stdout == f"task/{task_id}: rate 30/min, total 2\n"
    assert command("limit", "app/shop").stdout == "app/shop: no limits\n"
    assert command("limit", f"task/{task_id}", "--json").json == {
        "subject": f"task/{task_id}",
        "limit": {"rate_per_s": 0.5, "total": 2},
        "used": {"in_flight": 0},
    }


def test_the_name_of_an_app_or_a_sink_alone_is_answered_with_its_subject(command: Command) -> None:
    command.file("pushlane.toml", '[sinks.sms]\nkind = "null"\n')
    command.submit("high", 1, "--app", "shop", "--sink", "sms", "--name", "sale")

    assert "; did you mean 'app/shop'?" in command("limit", "shopp").stderr
    assert "; did you mean 'sink/sms'?" in command("limit", "sms").stderr
    assert "there is no task 'sal'; did you mean 'sale'?" in command("limit", "sal").stderr


def test_what_is_no_sink_cannot_be_limited_but_freed_of_a_limit(command: Command) -> None:
    ran = command("limit", "sink/*", "--rate", "5/s")

    assert ran.exit_code == 1
    assert "'*' is not a sink's name: limit each sink by its own, like sink/default" in ran.stderr
    assert command("limit", "sink/*", "--none").exit_code == 0


def test_a_forgotten_task_takes_its_limits_with_it(command: Command) -> None:
    task_id = command.submit()
    command("limit", f"task/{task_id}", "--total", "2")
    command("cancel", task_id, "--yes")

    assert command("forget", task_id, "--yes").exit_code == 0

    assert command("limits", "--json").json == []


def test_a_limit_of_every_app_is_shown_as_one_of_each(command: Command) -> None:
    command("limit", "app/*", "--a-day", "100", "--recipient-a-day", "all=3")

    line = command("limits").stdout.splitlines()[1]

    assert "100 each" in line
    assert line.endswith("all=3")


def test_a_cap_by_recipient_of_0_lets_nothing_of_its_level_go(command: Command) -> None:
    ran = command("limit", "app/shop", "--recipient-a-day", "low=0,all=5")
    low, high = (command.submit(level, 2, "--app", "shop") for level in ("low", "high"))

    assert "app/shop from now on: a recipient a day low=0,all=5\n" in ran.stderr
    assert command("dispatch", "--drain", "--sink", "log:out.jsonl").exit_code == 0
    sent = (command.folder / "out.jsonl").read_text()
    assert (sent.count(low), sent.count(high)) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["app/shop", "--total", "0"],
            "--total 0 would send nothing of app/shop; to stop a task: pushlane",
        ),
        (["app/shop", "--total", "-3"], "error: --total -3 is below 0"),
        (["app/shop", "--rate", "-3/s"], "--rate -3 is below 0"),
        (["app/shop", "--rate", "nan/s"], "--rate nan is not a number"),
        (["app/shop", "--rate", "100"], "--rate '100' is not a rate; use one like 100/s"),
        (["app/shop", "--rate", "5/year"], "--rate '5/year' is not a rate"),
        (["app/shop", "--total", "many"], "--total 'many' is not a whole number"),
        (["app/shop", "--in-flight", "2.5"], "--in-flight '2.5' is not a whole number"),
        (["app/shop", "--total-cost", "x"], "--total-cost 'x' is not a number"),
        (["ap/shop", "--total", "5"], "did you mean 'app'?"),
        (["shop", "--total", "5"], "there is no task 'shop'"),
        (["shop", "--total", "5"], "; for an app or a sink give app/NAME or sink/NAME"),
        (["task/nobody", "--total", "5"], "there is no task 'nobody'"),
        (["host/a:1", "--total", "5"], "use task/ID, app/NAME or sink/NAME"),
        (["shop"], "there is no task 'shop'"),
        (["ap/shop"], "did you mean 'app'?"),
        (["app/shop", "--none", "--total", "5"], "or --none alone"),
        (["sink/fcm", "--recipient-a-day", "all=3"], "limits an app, and sink/fcm is not one"),
        (["app/shop", "--recipient-a-day", "hgh=3"], "unknown level 'hgh'; use high, medium, low"),
        (["app/shop", "--recipient-a-day", "low=-1"], "--recipient-a-day low -1 is below 0"),
        (["app/shop", "--recipient-a-day", "low=2,low=3"], "it has a level twice"),
        (["app/shop", "--recipient-a-day", "3"], "is not of the form NAME=VALUE"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_with_what_can(
    command: Command, arguments: list[str], answer: str
) -> None:
    ran = command("limit", *arguments)

    assert ran.exit_code == 1
    assert answer in ran.stderr
    assert command("limits", "--json").json == []


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("1/h", "1/h"),
        ("500/h", "500/h"),
        ("100/day", "100/day"),
        ("60/min", "1/s"),
        ("30/min", "30/min"),
        ("12.5/s", "12.5/s"),
        ("0.5/day", "0.5/day"),
    ],
)
def test_a_rate_is_shown_in_the_unit_that_reads_best(
    command: Command, given: str, shown: str
) -> None:
    assert f": rate {shown}\n" in command("limit", "app/shop", "--rate", given).stderr


def test_who_nobody_knows_yet_is_remarked_on(command: Command) -> None:
    command.file("pushlane.toml", '[sinks.sms]\nkind = "null"\n')

    assert "no task has the app 'shop' yet" in command("limit", "app/shop", "--total", "5").stderr
    told = command("limit", "sink/smss", "--total", "5").stderr
    assert "no sink is named 'smss' yet" in told
    assert "; did you mean 'sms'?" in told
    for known in ("sink/sms", "app/*"):
        assert "yet" not in command("limit", known, "--total", "5").stderr


def test_limits_are_taken_away_without_the_quota(command: Command) -> None:
    command("quota", "--app", "shop", "5")

    ran = command("limit", "app/shop", "--none")

    assert "to end them: pushlane quota --app shop --none" in ran.stderr


def test_a_task_limited_to_nothing_is_to_be_paused(command: Command) -> None:
    task_id = command.submit()

    ran = command("limit", f"task/{task_id}", "--in-flight", "0")

    assert f"to stop a task: pushlane pause {task_id}" in ran.stderr
