"""`results TASK`: how a task went, by its receipts alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pushlane.core.task import now_ms
from pushlane.util.files import write_durably
from tests.command import Command
from tests.receipt_bodies import body


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
    assert ["delivered", "2"] in [line.split() for line in said.stdout.splitlines()]
    assert "there are no receipts of 2 delivered: receipts are off (receipts=off)" in said.stderr
    assert not {"rate", "wait", "delivery"} & {*said.stdout.split()}


def test_without_receipts_it_says_why_pushes_died_all_the_same(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PUSHLANE_RECEIPTS", "off")
    write_durably(tmp_path / "off.py", b"def send(push):\n    return push.seq != 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    command.submit("high", 3, "--name", "sale")
    command("dispatch", "--drain", "--sink", "off:send")

    said = command("results", "sale")

    assert ["dead", "1", "processor", "returned", "False"] in [
        line.split() for line in said.stdout.splitlines()
    ]
    assert "there are no receipts of 2 delivered, 1 dead" in said.stderr


def test_what_a_cancelled_task_never_sent_is_dropped_and_not_lacking(command: Command) -> None:
    task = command.submit("high", 3, "--name", "sale")
    command("cancel", task, "--yes")

    said = command("results", "sale")

    assert ["dropped", "3"] in [line.split() for line in said.stdout.splitlines()]
    assert said.stderr == ""


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


def test_the_submitted_file_names_the_recipients_of_the_rows(command: Command, went: str) -> None:
    users = "".join(f"row {n},user-{n}\n" for n in reversed(range(4)))
    file = command.file("users.csv", f"note,who\n{users}")

    ran = command("results", "sale", "--csv", "--join", file, "--join-by", "who")

    rows = {row["seq"]: row for row in csv.DictReader(ran.stdout.splitlines())}
    assert {seq: row["recipient"] for seq, row in rows.items()} == {
        str(n + 1): f"user-{n}" for n in range(4)
    }
    assert (ran.exit_code, ran.stderr) == (0, "")


def test_a_file_that_lacks_some_leaves_those_masked_and_says_so(
    command: Command, went: str
) -> None:
    file = command.file("users.csv", "recipient\nuser-0\nuser-2\n")

    ran = command("results", "sale", "--csv", "--join", file)

    assert ran.exit_code == 0
    assert f"{file} does not have the recipients of 2 pushes: is it the file that was" in ran.stderr
    assert ("user-0" in ran.stdout, "user-1" in ran.stdout) == (True, False)


def test_another_file_is_an_error(command: Command, went: str) -> None:
    other = command.file("others.csv", "recipient\nsomebody\nelse\n")

    ran = command("results", "sale", "--csv", "--join", other)

    assert ran.exit_code == 1
    assert f"{other} does not have the recipients of 4 pushes" in ran.stderr
    assert len(ran.stdout.splitlines()) == 5


def test_recipients_that_the_lane_still_has_are_revealed(command: Command) -> None:
    command.submit("high", 3, "--name", "kept", "--retention", "1h")
    command.submit("low", 3, "--name", "gone")
    command("dispatch", "--drain", "--sink", "null")

    kept, gone = (command("results", name, "--csv", "--reveal") for name in ("kept", "gone"))

    rows = list(csv.DictReader(kept.stdout.splitlines()))
    assert sorted(row["recipient"] for row in rows) == ["user-0", "user-1", "user-2"]
    assert "3 pushes stay masked: the lane of the task does not have them any more" in gone.stderr
    assert "user-" not in gone.stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("sale", "--join", "x.csv"), "--join names recipients in rows: add --csv"),
        (("sale", "--reveal"), "--reveal names recipients in rows: add --csv"),
        (("sale", "--csv", "--recipient", "x"), "--csv prints a whole task"),
        (("sale", "--csv", "--join", "none.csv"), "none.csv does not exist"),
        ((), "give a TASK, or --recipient or --trace to find pushes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    command: Command, went: str, given: tuple[str, ...], told: str
) -> None:
    ran = command("results", *given)

    assert ran.exit_code == 1
    assert told in ran.stderr


def test_a_file_of_another_dialect_is_joined_as_it_was_submitted(command: Command) -> None:
    path = command.folder / "menschen.csv"
    path.write_bytes("empfänger;ort\nJürgen;Köln\nZoë;Bonn\n".encode("cp1252"))
    as_excel = ("--delimiter", "semicolon", "--encoding", "cp1252")
    template = ("--level", "high", "--name", "sale", "--recipient", "empfänger", "--title", "{ort}")
    assert command("submit", path, *template, *as_excel).exit_code == 0
    command("dispatch", "--drain", "--sink", "null")

    ran = command("results", "sale", "--csv", "--join", path, "--join-by", "empfänger", *as_excel)

    rows = csv.DictReader(ran.stdout.splitlines())
    assert sorted(row["recipient"] for row in rows) == ["Jürgen", "Zoë"]
    assert "--format, --delimiter and --encoding say how the file of --join is written" in (
        command("results", "sale", "--encoding", "cp1252").stderr
    )


def test_it_says_where_the_wait_went_and_of_how_many_that_is_not_known(command: Command) -> None:
    task = command.submit("high", 5, "--name", "sale")
    waits = {"quiet": 300, "slot": 100}
    command.receive(
        body(task, [1, 2, 3], at_ms=now_ms(), waits=waits), body(task, [4], at_ms=now_ms())
    )

    shown = [line.split() for line in command("results", "sale").stdout.splitlines()]
    said = command("results", "sale", "--json").json["waits"]
    rows = list(csv.DictReader(command("results", "sale", "--csv").stdout.splitlines()))

    assert ["WAITED", "FOR", "PUSHES", "TOTAL", "P50", "P95"] in shown
    assert ["all", "together", "3", "1.2", "s", "400", "ms", "400", "ms"] in shown
    assert ["quiet", "hours", "3", "900", "ms", "300", "ms", "300", "ms"] in shown
    assert next(line[:9] for line in shown if line[:1] == ["where"]) == [
        "where",
        "the",
        "wait",
        "of",
        "1",
        "of",
        "4",
        "delivered",
        "pushes",
    ]
    assert [(one["cause"], one["n"], one["total_ms"]) for one in said] == [
        ("waited", 3, 1_200),
        ("quiet", 3, 900),
        ("slot", 3, 300),
    ]
    assert [row["waits"] for row in rows] == ["quiet=300, slot=100"] * 3 + [""]


def test_receipts_of_an_older_version_are_said_to_tell_no_waits(command: Command) -> None:
    task = command.submit("high", 1, "--name", "sale")
    command.receive(body(task, [1], at_ms=now_ms()))

    shown = command("results", "sale").stdout

    assert "where the wait of delivered pushes went is not known" in shown
    assert "WAITED FOR" not in shown
