"""What a processor raises is logged at once, and then a line a minute for each error and place."""

from __future__ import annotations

import pytest

from pushlane.dispatcher.sinks.processor import RaisedLog
from pushlane.util.texts import Raised

HERE = Raised("KeyError", ("shop.py:12 in send", "shop.py:30 in push"))
THERE = Raised("KeyError", ("shop.py:13 in send",))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heard(clock: Clock) -> RaisedLog:
    return RaisedLog("shop:send", clock)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_the_first_of_a_place_is_logged_at_once(
    heard: RaisedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (HERE, HERE, THERE, HERE):
        heard.hear(error)

    assert said(caplog) == [
        "processor shop:send raised KeyError at shop.py:12 in send, called from shop.py:30 in push",
        "processor shop:send raised KeyError at shop.py:13 in send",
    ]


def test_a_minute_later_one_line_has_the_count(
    heard: RaisedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    heard.hear(THERE)
    for second in range(1, 61):
        clock.now_s = float(second)
        heard.hear(THERE)

    lines = said(caplog)
    assert len(lines) == 2
    assert lines[1].endswith("in send; 60 more times in the last 60 s")


def test_the_rest_is_told_at_the_end_once(
    heard: RaisedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    heard.hear(THERE)
    heard.hear(THERE)
    clock.now_s = 5.0

    heard.tell_rest()
    heard.tell_rest()

    assert [line.rpartition("; ")[2] for line in said(caplog)[1:]] == ["once more in the last 5 s"]


def test_the_number_of_places_is_bounded(
    heard: RaisedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for line in range(1_000):
        heard.hear(Raised("KeyError", (f"shop.py:{line} in send",)))

    lines = said(caplog)
    assert len(lines) == 51
    assert lines[-1] == "processor shop:send raised other errors"
    heard.tell_rest()
    assert said(caplog) == [
        "processor shop:send raised other errors; 949 more times in the last 1 s"
    ]
