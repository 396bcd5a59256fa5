"""Log lines as text and as JSON."""

from __future__ import annotations

import json
import logging

import pytest

from pushlane.cli.logs import set_up_logs


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
