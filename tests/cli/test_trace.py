"""`trace`: the story of a push in the terminal."""

from __future__ import annotations

import pytest

from tests.command import Command


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.fixture
def went(command: Command) -> str:
    task = command.submit("high", 2, "--name", "sale")
    assert command("dispatch", "--drain", "--sink", "null").exit_code == 0
    return task


def test_it_tells_each_step_and_where_it_was_read(command: Command, went: str) -> None:
    ran = command("trace", "sale-1")

    assert ["outcome", "delivered"] in lines(ran.stdout)
    assert ["AT", "(UTC)", "TOOK", "WHAT"] in lines(ran.stdout)
    assert [line[-1] for line in lines(ran.stdout)[-1:]] == ["delivered"]
    assert "attempt 1 at default: delivered" in ran.stdout
    assert "read from the log of receipts" in ran.stderr
    assert "user-" not in ran.stdout


def test_of_a_recipient_it_says_what_is_not_among_them(command: Command, went: str) -> None:
    ran = command("trace", "-", given="user-1\n")

    assert f"push       {went}-2" in ran.stdout
    assert "pushes that wait for their first attempt have no receipt yet" in ran.stderr


def test_as_json_it_has_the_steps(command: Command, went: str) -> None:
    shown = command("trace", "sale-1", "--json").json

    steps = [one["what"] for one in shown["pushes"][0]["steps"]]
    assert (shown["of"], steps[0], steps[-1]) == ("push", "submitted", "attempt")


def test_a_push_that_waits_says_where_to_look(command: Command) -> None:
    task = command.submit("high", 2, "--name", "sale")

    ran = command("trace", "sale-1")

    assert f"not ended yet; what its task waits for: pushlane why {task}" in ran.stdout
    assert "TOOK" not in ran.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sale-5",), "has 2 pushes: there is no push 5"),
        (("nobody",), "no task has that push (TASK-SEQ)"),
        (("sale",), "'sale' is a task; trace one of its pushes, such as "),
        (("",), "give a text that is not empty"),
    ],
)
def test_what_there_is_not_is_refused(
    command: Command, went: str, words: tuple[str, ...], told: str
) -> None:
    ran = command("trace", *words)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert told in ran.stderr


def test_without_receipts_it_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_RECEIPTS", "off")
    command.submit("high", 1, "--name", "sale")
    command("dispatch", "--drain", "--sink", "null")

    ran = command("trace", "sale-1")

    assert "it is unknown how, as there is no receipt of it" in ran.stdout
    assert "receipts are off (receipts=off)" in ran.stderr
