"""`dead list`, `dead show`, `dead retry` and `dead purge`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.names import dead_lane
from pushlane.core.push import DeadPush, encode_dead
from pushlane.settings import Settings
from tests.command import Command

SECRETS = ("user-0", "user-1", "user-2")


@pytest.fixture
def died(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A task whose three pushes are dead."""
    (tmp_path / "refusing.py").write_text("def send(push):\n    return False\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = command.submit("high", 3, "--name", "sale")
    ran = command("dispatch", "--drain", "--sink", "refusing:send")
    assert ran.exit_code == 0, ran.stderr
    return task


def listed(command: Command, *more: str) -> list[str]:
    return [one["push"] for one in command("dead", "list", "--json", *more).json]


def test_the_list_names_push_and_reason_and_nobody_else(command: Command, died: str) -> None:
    table = command("dead", "list").stdout
    shown = command("dead", "list", "--json")

    assert [one["push"] for one in shown.json] == [f"{died}-{seq}" for seq in (1, 2, 3)]
    assert {one["sink"] for one in shown.json} == {"default"}
    assert "processor returned False" in table
    assert not any(secret in table + shown.stdout for secret in SECRETS)


def test_the_list_can_be_narrowed(command: Command, died: str) -> None:
    assert len(listed(command, "--task", "sale")) == 3
    assert listed(command, "--reason", "HTTP 410") == []
    assert listed(command, "--older-than", "1h") == []
    assert len(listed(command, "--newer-than", "1h", "--limit", "2")) == 2


def test_a_cut_list_says_that_there_is_more(command: Command, died: str) -> None:
    assert "more than 2" in command("dead", "list", "--limit", "2").stderr


def test_nothing_dead_is_no_error(command: Command) -> None:
    ran = command("dead", "list")

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "none is dead" in ran.stderr


def test_one_is_shown_without_what_it_holds_unless_asked(command: Command, died: str) -> None:
    hidden = command("dead", "show", f"{died}-2")
    revealed = command("dead", "show", f"{died}-2", "--reveal", "--json")

    assert "processor returned False" in hidden.stdout
    assert "user-1" not in hidden.stdout
    assert revealed.json["message"]["recipient"] == "user-1"


def test_where_it_was_to_go_is_shown_with_what_it_holds(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_RETRY_FIRST_S", "0.01")
    rows = command.file("rows.jsonl", '{"recipient": "ann", "phone": "+39061"}\n')
    task = command(
        "submit", rows, "--level", "high", "--body", "Hi", "--address", "phone"
    ).stdout.strip()
    command("dispatch", "--drain", "--sink", "json:dumps")  # raises, as a push is no JSON

    hidden = command("dead", "list", "--json").stdout + command("dead", "list").stdout
    revealed = command("dead", "show", f"{task}-1", "--reveal")

    assert "+39061" not in hidden
    assert "+39061" in revealed.stdout


def test_a_retry_prints_the_new_task_which_then_sends_them(command: Command, died: str) -> None:
    ran = command("dead", "retry", "--task", died)
    new = ran.stdout.strip()
    command("dispatch", "--drain", "--sink", "null")

    shown = command("task", "show", new, "--json").json
    assert (shown["name"], shown["state"], shown["delivered"]) == ("sale (retried)", "done", 3)
    assert listed(command) == []


def test_single_pushes_can_be_retried(command: Command, died: str) -> None:
    [retried] = command("dead", "retry", f"{died}-1", f"{died}-3", "--json").json

    assert (retried["task"], retried["pushes"]) == (died, 2)
    assert listed(command) == [f"{died}-2"]


def test_what_was_purged_cannot_be_retried(command: Command, died: str) -> None:
    command("dead", "purge", f"{died}-1", "--yes")

    ran = command("dead", "retry", f"{died}-1")

    assert ran.exit_code == 1
    assert f"there is no dead push {died}-1" in ran.stderr
    assert "pushlane dead list" in ran.stderr


def test_a_push_that_is_not_dead_is_told_while_others_are_retried(
    command: Command, died: str
) -> None:
    ran = command("dead", "retry", f"{died}-1", f"{died}-9")

    assert ran.exit_code == 0
    assert "1 of the pushes you named" in ran.stderr


def test_those_that_cannot_be_read_are_told_while_others_are_retried(
    command: Command, died: str
) -> None:
    async def damage() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            dead = DeadPush(died, 4, 1, "gone", 1, b"no push")
            await backend.broker.publish(dead_lane(died), [encode_dead(dead)])

    asyncio.run(damage())
    ran = command("dead", "retry", "--task", died)
    again = command("dead", "retry", "--task", died)

    assert (ran.exit_code, len(ran.stdout.split())) == (0, 1)
    assert f"1 dead push of task {died} cannot be retried: " in ran.stderr
    assert listed(command) == [f"{died}-4"]
    assert again.exit_code == 1
    assert "nothing is retried" in again.stderr


def test_a_dry_run_purges_nothing(command: Command, died: str) -> None:
    ran = command("dead", "purge", "--task", died, "--dry-run")

    assert "3 dead pushes would be purged" in ran.stderr
    assert len(listed(command)) == 3


def test_a_purge_asks_first(command: Command, died: str) -> None:
    ran = command("dead", "purge", "--task", died)

    assert ran.exit_code == 1
    assert "--yes" in ran.stderr
    assert len(listed(command)) == 3


def test_a_purge_deletes_what_is_meant(command: Command, died: str) -> None:
    assert (
        "2 dead pushes purged" in command("dead", "purge", "--all", "--limit", "2", "--yes").stderr
    )
    assert listed(command) == [f"{died}-3"]


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_purge_by_age_that_finds_nothing_is_no_error(
    command: Command, died: str, yes: list[str]
) -> None:
    ran = command("dead", "purge", "--older-than", "30d", *yes)

    assert ran.exit_code == 0
    assert "nothing is purged" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["retry"], "say which dead pushes to retry"),
        (["purge", "--yes"], "say which dead pushes to purge"),
        (["purge", "--all", "--task", "sale"], "exclude each other"),
        (["show", "nonsense"], "give TASK-SEQ"),
        (["retry", "t-x"], "give TASK-SEQ"),
        (["show", "nobody-1"], "there is no dead push nobody-1"),
        (["list", "--older-than", "soon"], "age 'soon'"),
        (["list", "--task", "nobody"], "nobody"),
        (["list", "--older-than", "2h", "--newer-than", "1h"], "longer than 2h and for less than"),
        (["retry", "--reason", "HTTP 410"], "nothing is retried: no dead push fits"),
        (["purge", "nobody-1", "--yes"], "there is no dead push nobody-1"),
    ],
)
def test_what_cannot_be_meant_is_told(
    command: Command, died: str, arguments: list[str], told: str
) -> None:
    ran = command("dead", *arguments)

    assert ran.exit_code == 1
    assert told in ran.stderr
