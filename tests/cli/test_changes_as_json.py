"""What commands that change something print with --json: one document, with the notes on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane.operations.task_views import TaskView
from tests.cli.test_unreadable import damaged
from tests.command import Command

LIST = "recipient\nanna@example.org\nbert@example.org\n"


def of_task(command: Command, task: str) -> dict[str, Any]:
    """The fields of a task as `task show` has them, without its counts and how it is shown."""
    shown = command("task", "show", task, "--json").json
    return {name: shown[name] for name in TaskView.__struct_fields__ if name in shown}


@pytest.mark.parametrize(
    ("words", "note", "field", "value"),
    [
        (
            ("pause", "TASK"),
            "task TASK is paused; go on with: pushlane resume TASK",
            "state",
            "paused",
        ),
        (("promote", "TASK"), "task TASK is high", "level", "high"),
        (("promote", "TASK", "--to", "medium"), "task TASK is medium already", "level", "medium"),
        (("demote", "TASK"), "task TASK is low", "level", "low"),
        (("demote", "TASK", "--to", "medium"), "task TASK is medium already", "level", "medium"),
        (("reschedule", "TASK", "--quiet", "none"), "task TASK has that already", "quiet", ""),
        (("quota", "TASK", "7"), "task TASK sends 7 in its turn", "quota", 7),
        (
            ("stop-if-dead", "TASK", "5%"),
            "task TASK stops if: more than 5% are dead",
            "stop_if_dead",
            "5%",
        ),
        (
            ("cancel", "TASK", "--yes"),
            "task TASK is cancelled; about 3 pushes will not go out",
            "state",
            "cancelled",
        ),
    ],
)
def test_a_change_of_a_task_prints_the_task(
    command: Command, words: tuple[str, ...], note: str, field: str, value: object
) -> None:
    task = command.submit("medium", 3, "--key", "sale")

    ran = command(*(word.replace("TASK", task) for word in words), "--json")

    assert ran.exit_code == 0
    changed = ran.json["changed"]
    assert ran.json == {**of_task(command, task), "changed": changed}
    assert (field in changed) == ("already" not in note)
    assert ran.json[field] == value
    assert ran.stderr == f"{note.replace('TASK', task)}\n"


def test_a_task_that_is_cancelled_already_is_printed_too(command: Command) -> None:
    task = command.submit()
    first = command("cancel", task, "--yes", "--json")

    again = command("cancel", task, "--json")

    assert again.json == {**first.json, "changed": []}
    assert again.stderr == f"task {task} is cancelled already\n"


@pytest.mark.parametrize(("level", "verb"), [("high", "promote"), ("low", "demote")])
def test_a_level_that_goes_no_further_is_so_already(
    command: Command, level: str, verb: str
) -> None:
    task = command.submit(level)

    assert command(verb, task).stderr == f"task {task} is {level} already\n"


def test_a_low_task_that_leaves_the_pool_for_its_own_level_is_not_so_already(
    command: Command,
) -> None:
    task = command.submit("low")

    assert command("promote", task, "--to", "low").stderr == f"task {task} is low\n"
    assert command("promote", task, "--to", "low").stderr == f"task {task} is low already\n"


def test_what_is_forgotten_and_what_is_removed_is_listed(command: Command) -> None:
    over, unreadable, other = command.submit(), damaged(command), damaged(command)
    command("cancel", over, "--yes")

    gone = command("forget", over, unreadable, "--force", "--yes", "--json")
    cancelled = command("cancel", other, "--yes", "--json")

    assert gone.json == {"forgotten": [over], "removed": [unreadable]}
    assert cancelled.json == {"id": other, "removed": True}


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "TASK"),
        ("forget", "OVER"),
        ("dead", "purge", "--all"),
        ("suppress", "clear"),
    ],
)
def test_what_cannot_be_undone_needs_yes_without_a_terminal(
    command: Command, words: tuple[str, ...]
) -> None:
    over = command.submit("high", 3, "--max-attempts", "1")
    command("dispatch", "--drain", "--sink", "tests.cli.test_forget:bury")
    command("suppress", "add", command.file("out.csv", LIST))
    task = command.submit()
    named = {"TASK": task, "OVER": over}

    ran = command(*(named.get(word, word) for word in words), "--json")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "there is no terminal to ask on; add --yes" in ran.stderr


def test_a_purge_prints_how_many(command: Command) -> None:
    task = command.submit("high", 3, "--max-attempts", "1")
    command("dispatch", "--drain", "--sink", "tests.cli.test_forget:bury")

    tried = command("dead", "purge", "--task", task, "--dry-run", "--json")
    purged = command("dead", "purge", f"{task}-1", f"{task}-9", "--yes", "--json")
    rest = command("dead", "purge", "--all", "--yes", "--json")
    none = command("dead", "purge", "--all", "--json")
    refused = command("dead", "purge", f"{task}-1", "--yes", "--json")

    assert tried.json == {"would_purge": 3, "is_cut": False}
    assert [ran.json for ran in (purged, rest, none)] == [{"purged": n} for n in (1, 2, 0)]
    assert "1 of the pushes you named are not dead" in purged.stderr
    assert (refused.exit_code, refused.json) == (1, {"purged": 0})


def test_changes_of_suppressions_print_how_many(command: Command) -> None:
    path = command.file("out.csv", LIST)
    counts = {"given": 2, "left_out": 0}

    assert command("suppress", "add", path, "--json").json == {**counts, "changed": 2}
    assert command("suppress", "add", path, "--json").json == {**counts, "changed": 0}
    assert command("suppress", "remove", path, "--json").json == {**counts, "changed": 2}
    assert command("suppress", "clear", "--json").json == {"removed": 0}
    command("suppress", "add", path)
    assert command("suppress", "clear", "--yes", "--json").json == {"removed": 2}
    words = ("tokens", "register", path, "--sink", "fcm", "--column", "recipient", "--json")
    assert command(*words).json == {**counts, "changed": 0}


def test_a_copy_and_what_is_restored_of_it_are_counted(command: Command, tmp_path: Path) -> None:
    command.submit()
    copy = tmp_path / "copy"

    made = command("backup", copy, "--json")
    restored = command("restore", copy, "--data-dir", tmp_path / "new", "--json")

    assert made.json == restored.json == {"file": str(copy), "tasks": 1}


@pytest.mark.parametrize(
    ("spec", "to", "document"),
    [
        ("null", [], {"kind": "null", "outcome": None, "reason": None, "delivered": False}),
        (
            "null",
            ["--to", "anna"],
            {"kind": "null", "outcome": "delivered", "reason": None, "delivered": False},
        ),
        (
            "print",
            ["--to", "anna"],
            {"kind": "print", "outcome": "delivered", "reason": None, "delivered": False},
        ),
    ],
)
def test_a_test_of_a_sink_prints_what_became_of_the_push(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    spec: str,
    to: list[str],
    document: dict[str, Any],
) -> None:
    monkeypatch.setenv("PUSHLANE_SINK", spec)

    ran = command("sinks", "test", "default", *to, "--json")

    assert (ran.exit_code, ran.json) == (0, {"sink": "default", "host": "", **document})


def test_a_test_that_fails_prints_why_and_ends_with_its_exit_code(command: Command) -> None:
    url = "http://127.0.0.1:9/hook"
    command.file("pushlane.toml", f'[sinks.sms]\nkind = "webhook"\nurl = "{url}"\n')

    ran = command("sinks", "test", "sms", "--to", "anna", "--json")

    assert ran.exit_code == 3
    assert (ran.json["kind"], ran.json["host"]) == ("webhook", "127.0.0.1:9")
    assert (ran.json["outcome"], ran.json["delivered"]) == ("retry", False)
    assert ran.json["reason"]
    assert "anna" not in ran.stdout
    accepted = command("sinks", "accept", "sms", "--json").json
    assert (accepted["sink"], accepted["accepted"]) == ("sms", True)
    assert [one["host"] for one in accepted["targets"]] == ["127.0.0.1:9"]
    assert command("sinks", "accept", "sms", "--undo", "--json").json["accepted"] is False


def test_rules_and_alerts_are_printed_as_they_are_then(command: Command) -> None:
    command.file("users.parquet", "")
    spec = command.file("task.toml", 'level = "low"\ntitle = "Hi"\n')
    rule = ("weekly", "--audience", "users.parquet", "--task-spec", spec, "--cron", "0 9 * * MON")
    command("rules", "add", *rule)
    words = ("--metric", "dead", "--when", "> 5", "--to", "https://example.org/secret")

    paused = command("rules", "pause", "weekly", "--json").json
    resumed = command("rules", "resume", "weekly", "--json").json
    alert = command("alerts", "add", "many", *words, "--json").json

    assert (paused["name"], paused["state"]) == ("weekly", "paused")
    assert (resumed["name"], resumed["state"]) == ("weekly", "new")
    assert (alert["name"], alert["to"]) == ("many", "example.org")
    gone = command("rules", "remove", "weekly", "--yes", "--json").json
    assert gone == {"name": "weekly", "removed": True}
    assert command("alerts", "remove", "many", "--json").json == {"name": "many", "removed": True}
