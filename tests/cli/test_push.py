"""`push show` and `results --recipient`: did this person get it?"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pushlane.core.task import now_ms
from pushlane.model.receipt import decode_receipts, encode_receipts
from pushlane.util.files import write_durably
from tests.command import Command
from tests.receipt_bodies import body


@pytest.fixture
def went(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A task of four pushes, of which the second is dead; its lane keeps them."""
    code = "def send(push):\n    return push.seq != 2\n"
    write_durably(tmp_path / "picky.py", code.encode())
    monkeypatch.syspath_prepend(tmp_path)
    task = command.submit("high", 4, "--name", "sale", "--retention", "1h")
    ran = command("dispatch", "--drain", "--sink", "picky:send")
    assert ran.exit_code == 0, ran.stderr
    return task


def test_a_push_that_died_shows_why_and_for_nobody_in_the_clear(
    command: Command, went: str
) -> None:
    ran = command("push", "show", "sale-2")

    assert f"push       {went}-2\n" in ran.stdout
    assert "outcome    dead: processor returned False\n" in ran.stdout
    assert "user-1" not in ran.stdout
    assert ran.stderr == ""


def test_show_may_be_left_out(command: Command, went: str) -> None:
    assert command("push", "sale-2").stdout == command("push", "show", "sale-2").stdout


def test_on_request_it_shows_whom_it_was_for_and_what_it_said(command: Command, went: str) -> None:
    shown = command("push", "show", f"{went}-2", "--reveal", "--json").json

    assert (shown["outcome"], shown["has_ended"]) == ("dead", True)
    assert [one["outcome"] for one in shown["receipts"]] == ["dead"]
    assert shown["message"]["recipient"] == "user-1"


def test_a_push_that_has_not_ended_says_where_to_look(command: Command) -> None:
    task = command.submit("high", 2, "--name", "sale")

    ran = command("push", "show", "sale-1")

    assert f"not ended yet; what its task waits for: pushlane why {task}" in ran.stdout


def test_a_dead_push_of_a_lane_that_keeps_nothing_is_shown_as_it_died(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_durably(tmp_path / "no.py", b"def send(push):\n    return False\n")
    monkeypatch.syspath_prepend(tmp_path)
    command.submit("high", 1, "--name", "sale")
    command("dispatch", "--drain", "--sink", "no:send")

    assert command("push", "show", "sale-1", "--reveal", "--json").json["message"]["title"]


@pytest.mark.parametrize(
    ("push", "told"),
    [
        ("sale-5", "has 4 pushes: there is no push 5"),
        ("sale-0", "has 4 pushes: there is no push 0"),
        ("sale", "'sale' is not a push: give its task and its number, like sale-17"),
        ("nothing-1", "no task 'nothing'"),
    ],
)
def test_what_there_is_not_is_refused(command: Command, went: str, push: str, told: str) -> None:
    ran = command("push", "show", push)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert told in ran.stderr


def test_a_recipient_is_found_without_a_task(command: Command, went: str) -> None:
    ran = command("results", "--recipient", "user-0", "--json")

    assert [(one["push"], one["outcome"]) for one in ran.json] == [(f"{went}-1", "delivered")]
    assert "user-0" not in ran.stdout


def test_a_recipient_can_be_read_from_stdin(command: Command, went: str) -> None:
    ran = command("results", "sale", "--recipient", "-", given="user-1\n")

    assert f"{went}-2" in ran.stdout
    assert "processor returned False" in ran.stdout


def test_pushes_are_found_by_their_trace_id(command: Command) -> None:
    file = command.file("traced.csv", "recipient,trace\na,t1\nb,t2\nc,t2\n")
    ran = command("submit", file, "--level", "high", "--title", "x", "--trace-id", "trace")
    command("dispatch", "--drain", "--sink", "null")

    found = command("results", "--trace", "t2", "--json").json

    assert sorted(one["push"] for one in found) == [f"{ran.stdout.strip()}-{n}" for n in (2, 3)]


def test_who_is_not_there_is_an_error_that_names_nobody(command: Command, went: str) -> None:
    ran = command("results", "sale", "--recipient", "somebody@example.org")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"there is no receipt of task {went} for that recipient" in ran.stderr
    assert "somebody" not in ran.stderr


def test_it_says_where_the_wait_of_a_push_went_over_all_attempts(command: Command) -> None:
    task, at_ms = command.submit("high", 2), now_ms()
    waits = {"share": 480_000, "quiet": 1_920_000}
    command.receive(
        body(task, [1], "retry", at_ms=at_ms, waits=waits),
        body(task, [1], attempt=2, at_ms=at_ms + 100, waits={**waits, "retry": 60_000}),
        body(task, [2], at_ms=at_ms),
    )

    shown, older = command("push", "show", f"{task}-1"), command("push", "show", f"{task}-2")
    said = command("push", "show", f"{task}-1", "--json").json

    assert (
        "waited     41 min: 32 min quiet hours, 8 min others' turns, 1 min backoff" in shown.stdout
    )
    assert "  40 min: 32 min quiet hours, 8 min others' turns\n" in shown.stdout
    assert said["waits"] == {**waits, "retry": 60_000}
    assert [one["waits"] for one in said["receipts"]] == [waits, {**waits, "retry": 60_000}]
    assert "waited     not known: written by an older version\n" in older.stdout


def test_an_event_and_what_was_never_sent_have_no_wait(command: Command) -> None:
    task, at_ms = command.submit("high", 1), now_ms()
    told = decode_receipts(body(task, [1], "expired", at_ms=at_ms, waits={"slot": 0}))
    never = msgspec.structs.replace(told, dispatched_at_ms=[0])
    said = msgspec.structs.replace(never, outcome=["displayed"], submitted_at_ms=[0], waits=None)
    command.receive(encode_receipts(never), encode_receipts(said))

    shown = command("push", "show", f"{task}-1")

    assert "waited     -\n" in shown.stdout
    assert "not known" not in shown.stdout
    assert "waits" not in str(command("push", "show", f"{task}-1", "--json").json)
