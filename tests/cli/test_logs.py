"""Log lines as text and as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import logging

import pytest

from pushlane.cli.logs import keep_values_out, set_up_logs
from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.util.log_ids import AtHand


@pytest.fixture(autouse=True)
def _loggers_as_they_were():
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, root.level = before
    logging.getLogger("pushlane").setLevel(logging.NOTSET)


def logged(form, capsys: pytest.CaptureFixture[str]) -> str:
    set_up_logs(form)
    logging.getLogger("pushlane.some").info("%d lanes", 3, extra={"action": "opened"})
    logging.getLogger("other").info("chatter")
    return capsys.readouterr().err


def test_json_lines_carry_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(logged("json", capsys))

    assert (line["action"], line["message"], line["level"]) == ("opened", "3 lanes", "info")
    assert line["logger"] == "pushlane.some"


def test_text_lines_carry_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    line = logged("text", capsys)

    assert line.endswith("opened: 3 lanes\n")
    assert " INFO " in line


IDS = {"push_id": "t-1", "trace_id": "a" * 32}


def test_a_line_about_a_push_has_its_ids(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("text", "json"):
        set_up_logs(form)
        logging.getLogger("pushlane.some").warning("push t-1 is late", extra=IDS)
    text, line = capsys.readouterr().err.splitlines()

    assert text.endswith(f"-: push t-1 is late [trace_id={'a' * 32}]")
    assert json.loads(line).items() >= {"message": "push t-1 is late", **IDS}.items()


def test_a_line_of_other_code_has_those_of_the_push_at_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [one, two] = [Delivery(Push("t", seq, "somebody@x"), Level.HIGH) for seq in (1, 2)]
    set_up_logs("text")
    for batch in ([one], [one, two]):
        with AtHand(batch):
            logging.getLogger("shop").warning("slow")
    logging.getLogger("shop").warning("done")

    ends = [line.partition("-: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert ends == ["slow [push_id=t-1]", "slow", "done"]


HELD = "+49 151 23456789"


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_is_logged_with_its_place_and_without_its_text(
    form, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs(form)
    try:
        raise ValueError(HELD)
    except ValueError:
        logging.getLogger("theirs").exception("it broke")

    said = capsys.readouterr().err
    assert "it broke" in said
    assert "ValueError" in said
    assert "test_logs.py" in said
    assert HELD not in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_asyncio_says_of_a_task_that_failed_has_no_value(
    form, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its message has the repr of a task, and so of its error; of a callback it has arguments."""

    def call_back(value: str) -> None:
        raise ValueError(value)

    async def fail(value: str) -> None:
        raise ValueError(value)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(call_back, HELD)
        lost = asyncio.create_task(fail(HELD))
        await asyncio.wait([lost])
        del lost
        gc.collect()

    set_up_logs(form)
    asyncio.run(main())

    said = capsys.readouterr().err
    assert "Task exception was never retrieved" in said
    assert "Exception in callback" in said
    assert said.count("ValueError (its text is left out") == 2
    assert HELD not in said


def test_a_command_without_logs_of_its_own_says_no_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    last_resort = logging.lastResort
    before = last_resort.formatter
    try:
        keep_values_out()
        logging.getLogger("theirs").warning("a warning", exc_info=ValueError(HELD))
    finally:
        last_resort.setFormatter(before)

    said = capsys.readouterr().err
    assert said.startswith("a warning\n")
    assert "ValueError" in said
    assert HELD not in said
