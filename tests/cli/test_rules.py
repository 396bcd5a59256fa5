"""The commands on rules, as far as they need no Spark."""

from __future__ import annotations

import json
import re

import pytest

from tests.command import Command

RULE = """
audience = "users.parquet"
where = "country = 'IT'"
cron = "0 9 * * MON"
zone = "Europe/Berlin"
budget_day = 1000
catch_up_for = "2h"

[task]
level = "low"
title = "Hi {name}"
"""


@pytest.fixture
def weekly(command: Command) -> Command:
    command.file("users.parquet", "")
    ran = command("rules", "add", command.file("weekly.toml", RULE))
    assert ran.exit_code == 0, ran.stderr
    return command


def refused(command: Command, *words: object) -> str:
    ran = command("rules", *words)
    assert ran.exit_code == 1, ran.stdout
    assert ran.stdout == ""
    return ran.stderr


def test_a_rule_of_a_file_has_its_name_and_all_its_fields(weekly: Command):
    shown = weekly("rules", "show", "weekly", "--json").json

    assert shown["name"] == "weekly"
    assert shown["audience"] == str(weekly.folder / "users.parquet")
    assert (shown["budget_day"], shown["catch_up"], shown["catch_up_s"]) == (1000, "latest", 7200)
    assert shown["task"] == {"level": "low", "title": "Hi {name}"}
    assert shown["next_at_ms"] > shown["since_ms"]


def test_a_rule_holds_the_payload_of_its_task_by_value(command: Command):
    command.file("users.parquet", "")
    command.file("payload.json", '{"*": {"text": "Hi {name}"}}')
    rule = command.file("weekly.toml", RULE + 'payload = "payload.json"\n')

    assert command("rules", "add", rule).exit_code == 0
    shown = command("rules", "show", "weekly", "--json").json
    assert shown["task"]["payload"] == {"*": {"text": "Hi {name}"}}


def test_options_alone_make_a_rule_and_a_later_edit_of_the_spec_changes_it_not(command: Command):
    spec = command.file("task.toml", 'level = "high"\nbody = "One"\n')
    options = ["--audience", "db.users", "--task-spec", spec, "--cron", "30 2 * * *"]
    options += ["--exclude", "gone.csv:device", "--option", "user=me", "--catch-up", "all"]
    command.file("gone.csv", "device\n")
    assert command("rules", "add", "daily", *options).exit_code == 0

    command.file("task.toml", 'level = "low"\nbody = "Two"\n')

    shown = command("rules", "show", "daily", "--json").json
    assert shown["task"] == {"level": "high", "body": "One"}
    assert (shown["audience"], shown["zone"], shown["catch_up"]) == ("db.users", "UTC", "all")
    assert shown["exclude"] == [f"{command.folder / 'gone.csv'}:device"]


def test_a_new_rule_whose_pushes_would_be_empty_is_refused_unless_its_task_is_silent(
    command: Command,
):
    command.file("users.parquet", "")
    empty = RULE.replace('title = "Hi {name}"', "")

    said = refused(command, "add", command.file("weekly.toml", empty))
    assert "no title, body, data or payload; give its spec a title or a body, or `silent" in said

    for option in ("silent = true", "silent = true\nliteral-braces = true"):
        rule = command.file("weekly.toml", f"{empty}\n{option}\n")
        assert command("rules", "add", rule, "--replace").exit_code == 0
    shown = command("rules", "show", "weekly", "--json").json
    assert (shown["silent"], shown["literal_braces"]) == (True, True)
    assert shown["task"] == {"level": "low"}, "older versions would not know the options"


def test_a_rule_says_that_it_refuses_what_is_hardly_meant(weekly: Command):
    shown = weekly("rules", "show", "weekly", "--json").json

    assert (shown["silent"], shown["literal_braces"]) == (False, False)
    assert "no field 'silent'" in refused(weekly, "add", weekly.file("b.toml", "silent = true"))


def test_a_run_is_asked_for_without_spark_and_taken_back(weekly: Command):
    asked = weekly("rules", "run", "weekly", "--no-wait", "--json")
    at = asked.json["at"]
    by_time = weekly("rules", "run", "weekly", "--no-wait", "--at", at, "--json")
    assert "no waiting run of 1970" in refused(
        weekly, "withdraw", "weekly", "--at", "1970-01-01T00:00:01Z"
    )
    taken = weekly("rules", "withdraw", "weekly", "--at", at, "--json")

    assert asked.json["state"] == "due"
    assert "it waits: nobody runs `pushlane rules serve`" in asked.stderr
    assert by_time.json == asked.json
    assert taken.json["open_runs"] == 0
    assert taken.stderr == f"the run of {at} of rule weekly is no longer asked for\n"
    assert "rule 'weekly' has no waiting run" in refused(weekly, "withdraw", "weekly")
    assert "leave out --no-wait" in refused(weekly, "run", "weekly", "--no-wait", "--dry-run")
    assert "is no ISO time" in refused(weekly, "run", "weekly", "--no-wait", "--at", "now")


def test_a_run_through_a_server_is_only_asked_for(weekly: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PUSHLANE_URL", "http://127.0.0.1:9")
    ran = weekly("rules", "run", "weekly")

    assert ran.exit_code == 2
    assert "ask for it with --no-wait" in ran.stderr


def test_options_replace_the_fields_of_a_file(command: Command):
    path = command.file("weekly.toml", RULE)

    command("rules", "add", path, "--zone", "Asia/Tokyo", "--budget-run", "7")

    shown = command("rules", "show", "weekly", "--json").json
    assert (shown["zone"], shown["budget_run"], shown["cron"]) == ("Asia/Tokyo", 7, "0 9 * * MON")


def test_a_rule_is_shown_without_its_passwords(command: Command):
    options = ["--option", "password=hidden", "--option", "url=jdbc:x://u:hidden@h/d?pw=hidden"]
    command("rules", "add", command.file("weekly.toml", RULE), *options)

    for words in (["show", "weekly"], ["show", "weekly", "--json"], ["list", "--json"]):
        ran = command("rules", *words)
        assert "hidden" not in ran.stdout
        assert "***" in ran.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('cron = "0 25 * * *"', "hour.*0 9 \\* \\* MON"),
        ('zone = "Europe/Berln"', "Europe/Berlin"),
        ("budget_day = 0", "budget_day.*greater than or equal to 1"),
        ('catch_up = "newest"', "catch_up.*'latest', 'all' or 'skip'"),
        ('catch_up_for = "soon"', "90s, 2h or 1d12h"),
        ('wher = "x"', "wher.*did you mean 'where'"),
        ("since_ms = 1", "no field 'since_ms'"),
        ('audience = ""', "audience.*at least 1 character"),
    ],
)
def test_a_wrong_field_is_refused_with_what_it_may_be(command: Command, line: str, said: str):
    name = line.split()[0]
    kept = [row for row in RULE.splitlines() if not row.startswith(f"{name} ")]
    path = command.file("weekly.toml", "\n".join([line, *kept]))

    assert re.search(said, refused(command, "add", path))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ('level = "urgent"', "level"),
        ('level = "low"\nboddy = "x"', "did you mean 'body'"),
        ('level = "low"\nkey = "x"', "each run has one of its own"),
        ('level = "low"\nexpires = "soon"', "soon"),
        ("", "level"),
    ],
)
def test_a_wrong_task_is_refused_at_once(command: Command, task: str, said: str):
    head = RULE.partition("[task]")[0]

    told = refused(command, "add", command.file("weekly.toml", f"{head}[task]\n{task}\n"))

    assert said in told
    assert command("rules", "list", "--json").json == []


def test_a_rule_without_a_needed_field_names_it(command: Command):
    assert "no 'audience'" in refused(command, "add", "weekly", "--cron", "0 9 * * *")
    assert "rule name" in refused(command, "add", "two words", "--cron", "0 9 * * *")


def test_a_file_that_is_no_toml_is_refused_with_its_path(command: Command):
    assert "weekly.toml is not TOML" in refused(
        command, "add", command.file("weekly.toml", "cron 5")
    )
    assert "none.toml cannot be read" in refused(command, "add", command.folder / "none.toml")


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(weekly: Command):
    path = weekly.folder / "weekly.toml"

    assert "--replace" in refused(weekly, "add", path)
    assert weekly("rules", "add", path, "--replace", "--budget-day", "5").exit_code == 0

    shown = weekly("rules", "show", "weekly", "--json").json
    assert (shown["budget_day"], shown["revision"]) == (5, 2)


def test_replacing_a_schedule_starts_its_times_anew_and_a_budget_does_not(weekly: Command):
    path = weekly.folder / "weekly.toml"
    since = weekly("rules", "show", "weekly", "--json").json["since_ms"]

    weekly("rules", "add", path, "--replace", "--budget-day", "5")
    assert weekly("rules", "show", "weekly", "--json").json["since_ms"] == since
    weekly("rules", "add", path, "--replace", "--cron", "0 10 * * *")
    assert weekly("rules", "show", "weekly", "--json").json["since_ms"] > since


def test_a_paused_rule_is_not_due_until_it_is_resumed(weekly: Command):
    assert weekly("rules", "pause", "weekly").exit_code == 0
    paused = weekly("rules", "list", "--json").json[0]
    assert paused["state"] == "paused"
    assert "next_at_ms" not in paused

    weekly("rules", "resume", "weekly")

    resumed = weekly("rules", "list", "--json").json[0]
    assert resumed["state"] == "new"
    assert resumed["since_ms"] > paused["since_ms"]


def test_a_rule_is_removed_only_when_that_is_confirmed(weekly: Command):
    assert "--yes" in refused(weekly, "remove", "weekly")
    assert weekly("rules", "remove", "weekly", "--yes").exit_code == 0
    assert weekly("rules", "list", "--json").json == []


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "remove", "history", "run"])
def test_an_unknown_rule_is_refused_with_the_nearest(weekly: Command, verb: str):
    assert "did you mean 'weekly'" in refused(weekly, verb, "wekly")


def test_a_time_that_cannot_be_run_is_refused(weekly: Command):
    assert "ISO time" in refused(weekly, "run", "weekly", "--at", "monday")
    assert "is not due at" in refused(weekly, "run", "weekly", "--at", "2020-01-01T00:00Z")
    assert weekly("rules", "history", "--json").json == []


def test_tables_name_the_rule_and_stdout_holds_nothing_else(weekly: Command):
    table = weekly("rules", "list")
    assert table.stdout.split()[0] == "NAME"
    assert "weekly" in table.stdout
    assert json.loads(weekly("rules", "list", "--json").stdout)[0]["name"] == "weekly"
    assert "no runs yet" in weekly("rules", "history").stderr
