"""`results TASK`: how a task went, by its receipts alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pushlane.util.files import write_durably
from tests.command import Command


@pytest.fixture
def went(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A task of four pushes, of which the second is dead."""
    code = "def send(push):\n    return push.seq != 2\n"
    write_durably(tmp_path / "picky.py", code.encode())
    monkeypatch.syspath_prepend(tmp_path)
    task = command.submit("high", 4, "--name", "sale")
    ran = command("dispatch", "--drain", "--sink", "picky:send")
    assert ran.exit_code == 0, ran.stderr
    return task


def test_it_says_what_became_of_the_pushes_and_why(command: Command, went: str) -> None:
    ran = command("results", "sale")

    assert ran.exit_code == 0
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert ["task", went, "sale"] in lines
    assert ["delivered", "3"] in lines
    assert ["dead", "1"] in lines
    assert ["dead", "1", "processor", "returned", "False"] in lines
    assert ran.stderr == ""


def test_before_anything_has_ended_it_says_where_to_look(command: Command) -> None:
    task = command.submit("high", 2, "--name", "sale")

    said = command("results", "sale")

    assert ["pushes", "2"] in [line.split() for line in said.stdout.splitlines()]
    assert f"nothing of it has ended yet; what it waits for: pushlane why {task}" in said.stderr


def test_as_json_it_has_counts_reasons_and_times(command: Command, went: str) -> None:
    said = command("results", went, "--json").json

    assert (said["task_id"], said["counts"]["delivered"], said["counts"]["dead"]) == (went, 3, 1)
    assert said["reasons"] == [
        {"outcome": "dead", "reason": "processor returned False", "pushes": 1}
    ]
    assert said["delivery"]["n"] == 3
    assert not any(said["lacking"].values())


def test_as_csv_it_has_a_row_for_each_push_and_nobody_in_the_clear(
    command: Command, went: str
) -> None:
    ran = command("results", "sale", "--csv")

    rows = list(csv.DictReader(ran.stdout.splitlines()))
    assert [(row["seq"], row["outcome"]) for row in sorted(rows, key=lambda row: row["seq"])] == [
        ("1", "delivered"),
        ("2", "dead"),
        ("3", "delivered"),
        ("4", "delivered"),
    ]
    assert all(row["responded_at"].endswith("+00:00") for row in rows)
    assert "user-1" not in ran.stdout


def test_nothing_is_taken_from_the_pipeline(command: Command, went: str) -> None:
    before = command("results", went, "--json").json

    assert command("results", went, "--json").json == before


def test_without_receipts_it_says_what_it_lacks(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_RECEIPTS", "off")
    command.submit("high", 2, "--name", "sale")
    ran = command("dispatch", "--drain", "--sink", "null")
    assert ran.exit_code == 0, ran.stderr

    said = command("results", "sale")

    assert said.exit_code == 0
    assert "counts 2 delivered more than there are receipts of: receipts are off" in said.stderr
    assert "rate" not in said.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("results", "nobody"), "there is no task 'nobody'"),
        (("results", "sale", "--csv", "--json"), "give one of them"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    command: Command, went: str, words: tuple[str, ...], why: str
) -> None:
    ran = command(*words)

    assert ran.exit_code == 1
    assert why in ran.stderr
