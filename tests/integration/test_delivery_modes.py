"""What each delivery mode promises when a dispatcher is killed, by the receiving end's own log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes import Pushlane, Received, each_once

SLOTS = 20
TOTAL = 4_000
DELAY_MS = 20  # long enough for every slot to be taken at the moment of a kill


@pytest.fixture
def hasty(pushlane: Pushlane) -> Iterator[Pushlane]:
    """Takes a process for lost 4 s after it began a delivery."""
    soon = {"sink_timeout_s": "3", "claim_timeout_s": "1"}
    commands = Pushlane(pushlane.folder, {**pushlane.settings, **soon})
    yield commands
    commands.end_all()


def with_one_of_two_killed(pushlane: Pushlane, receiver: Received, *mode: str) -> dict[str, Any]:
    """The task in the end, after one of its two dispatchers was killed in mid-run."""
    task = pushlane.submit("high", TOTAL, *mode)
    sending = ("--slots", str(SLOTS), "--sink", receiver.sink)
    victim = pushlane.dispatch(*sending)
    receiver.until(1, victim)  # it delivers, whenever the other one comes to it
    survivor = pushlane.dispatch(*sending, "--drain")
    survivor.until("started")
    receiver.until(TOTAL // 4, survivor, victim)
    victim.kill()
    assert survivor.wait() == 0, survivor.text
    return pushlane.task(task)


def lost(receiver: Received, task: dict[str, Any]) -> int:
    """How many pushes of the task never arrived."""
    return len(set(each_once({task["id"]: TOTAL})) - set(receiver.pushes))


def test_at_most_once_repeats_nothing_and_buries_what_was_in_flight(hasty, webhook) -> None:
    receiver = webhook(DELAY_MS)

    task = with_one_of_two_killed(hasty, receiver, "--delivery", "at_most_once")

    assert receiver.duplicates == 0
    assert 0 < task["dead"] <= SLOTS
    assert lost(receiver, task) <= task["dead"]
    assert task["delivered"] == TOTAL - task["dead"]


def test_once_resends_what_was_in_flight_and_a_sink_that_honours_keys_gets_each_once(
    hasty, webhook
) -> None:
    receiver = webhook(DELAY_MS, honour=True)

    task = with_one_of_two_killed(hasty, receiver, "--delivery", "once")

    assert receiver.pushes == each_once({task["id"]: TOTAL})
    assert (task["delivered"], task["state"]) == (TOTAL, "done")


def test_once_repeats_no_more_than_what_was_in_flight_for_a_sink_that_forgets_keys(
    hasty, webhook
) -> None:
    receiver = webhook(DELAY_MS)

    task = with_one_of_two_killed(hasty, receiver, "--delivery", "once")

    assert lost(receiver, task) == 0
    assert 0 < receiver.duplicates <= SLOTS


def test_once_that_buries_repeats_nothing_and_buries_what_was_in_flight(hasty, webhook) -> None:
    receiver = webhook(DELAY_MS)

    task = with_one_of_two_killed(hasty, receiver, "--delivery", "once", "--on-unknown", "bury")

    assert receiver.duplicates == 0
    assert 0 < task["dead"] <= SLOTS
    assert lost(receiver, task) <= task["dead"]


@pytest.mark.parametrize("mode", ["at_most_once", "once"])
def test_a_dispatcher_that_is_stopped_loses_and_repeats_nothing(hasty, webhook, mode) -> None:
    receiver = webhook(DELAY_MS)
    task = hasty.submit("high", TOTAL // 2, "--delivery", mode)
    first = hasty.dispatch("--slots", str(SLOTS), "--sink", receiver.sink)
    receiver.until(TOTAL // 8, first)
    assert first.stop() == 0, first.text

    hasty.drain(receiver.sink)

    assert receiver.pushes == each_once({task: TOTAL // 2})
