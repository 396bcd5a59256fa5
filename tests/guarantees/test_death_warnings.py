"""Warnings of pushes that die, by a clock of the test's own."""

from __future__ import annotations

import logging

import pytest

from pushlane.dispatcher.deaths import DeathWarnings
from pushlane.model.reasons import MOST_REASONS


class Warned:
    """What is said by warnings of the sink `fcm`; `at_s` is the time."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        self._caplog = caplog
        self.at_s = 1_000.0
        self.of = DeathWarnings("fcm", lambda: self.at_s)

    def die(self, count: int, reason: str, task: str = "t1") -> None:
        for _ in range(count):
            self.of.add(reason, task)

    def said(self) -> list[str]:
        said = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return said


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Warned:
    return Warned(caplog)


def test_the_first_death_is_told_at_once(warned: Warned) -> None:
    warned.die(1, "HTTP 404")

    assert warned.said() == ["fcm: 1 push died: HTTP 404 (task t1)"]
    assert warned.of.say_due() is None


def test_the_others_are_told_together_a_minute_later(warned: Warned) -> None:
    warned.die(1_001, "HTTP 404")
    warned.said()
    warned.at_s += 59

    assert warned.of.say_due() == pytest.approx(1)
    assert warned.said() == []

    warned.at_s += 1
    warned.of.say_due()
    assert warned.said() == ["fcm: 1,000 pushes died in the last 60 s: HTTP 404 (task t1)"]


def test_each_reason_has_a_minute_of_its_own(warned: Warned) -> None:
    warned.die(2, "HTTP 404")
    warned.at_s += 50
    warned.die(2, "timed out")
    warned.said()
    warned.at_s += 10

    assert warned.of.say_due() == pytest.approx(50)
    assert warned.said() == ["fcm: 1 push died in the last 60 s: HTTP 404 (task t1)"]


def test_after_a_quiet_minute_a_death_is_told_at_once_again(warned: Warned) -> None:
    warned.die(1, "HTTP 404")
    warned.said()
    warned.at_s += 300

    warned.die(1, "HTTP 404", "t2")

    assert warned.said() == ["fcm: 1 push died in the last 300 s: HTTP 404 (task t2)"]


def test_the_rest_is_told_at_the_stop(warned: Warned) -> None:
    warned.die(3, "HTTP 404")
    warned.said()
    warned.at_s += 5

    warned.of.close()
    warned.of.close()

    assert warned.said() == ["fcm: 2 pushes died in the last 5 s: HTTP 404 (task t1)"]


def test_of_many_tasks_some_are_named(warned: Warned) -> None:
    warned.die(1, "HTTP 404")
    warned.said()
    for number in range(10):
        warned.die(1, "HTTP 404", f"t{number}")

    warned.of.close()

    [said] = warned.said()
    assert said.endswith("HTTP 404 (tasks t0, t1, t2 and others)")


def test_very_many_reasons_are_told_as_one(warned: Warned) -> None:
    for number in range(MOST_REASONS + 30):
        warned.die(1, f"HTTP {number}")

    assert len(warned.said()) == MOST_REASONS + 1
    warned.of.close()
    assert warned.said() == ["fcm: 29 pushes died in the last 1 s: other (task t1)"]
