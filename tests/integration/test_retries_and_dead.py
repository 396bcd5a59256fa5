"""Pushes that a receiver refuses: tried again, and in the end dead, listed, retried and purged."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes import Pushlane, each_once

TOTALS = {"high": 400, "medium": 300, "low": 300}
HALF = 2  # every second push is refused


@pytest.fixture
def totals(pushlane: Pushlane) -> dict[str, int]:
    """A task of each level, whose retries come soon."""
    (pushlane.folder / "pushlane.toml").write_text("retry_first_s = 0.3\n")
    return {
        pushlane.submit(level, count, "--max-attempts", "3"): count
        for level, count in TOTALS.items()
    }


def refused(totals: dict[str, int]) -> Counter[tuple[str, int]]:
    return Counter({push: 1 for push in each_once(totals) if push[1] % HALF == 0})


def counts(pushlane: Pushlane) -> dict[str, tuple[str, int, int]]:
    """State, delivered and dead pushes of every task."""
    tasks = pushlane.json("tasks", "--all")
    return {task["id"]: (task["state"], task["delivered"], task["dead"]) for task in tasks}


def test_what_is_refused_once_arrives_once_more(pushlane, webhook, totals) -> None:
    receiver = webhook(1, refuse=1)

    pushlane.drain(receiver.sink)

    assert receiver.pushes == each_once(totals) + refused(totals)
    assert counts(pushlane) == {task: ("done", total, 0) for task, total in totals.items()}


def test_kills_amid_retries_lose_nothing(pushlane, webhook, totals) -> None:
    receiver = webhook(1, refuse=2)
    for arrived in (300, 900, 1_500):
        running = pushlane.dispatch("--slots", "20", "--sink", receiver.sink)
        receiver.until(arrived, running)
        running.kill()

    pushlane.drain(receiver.sink)

    assert counts(pushlane) == {task: ("done", total, 0) for task, total in totals.items()}
    assert min(receiver.pushes[push] for push in refused(totals)) >= 3


def test_what_is_refused_too_often_is_dead_and_can_be_retried_or_purged(
    pushlane, webhook, totals
) -> None:
    pushlane.drain(webhook(1, refuse=99).sink)
    high, medium, low = totals
    assert counts(pushlane) == {
        task: ("done", total // HALF, total // HALF) for task, total in totals.items()
    }
    dead = Counter(one["task"] for one in pushlane.json("dead", "list", "--limit", "0"))
    assert dead == {task: total // HALF for task, total in totals.items()}

    pushlane("dead", "purge", "--task", medium, "--yes")
    [of_high] = pushlane.json("dead", "retry", "--task", high, "--reason", "HTTP 500")
    [of_low] = pushlane.json("dead", "retry", "--task", low)
    receiver = webhook(1)
    pushlane.drain(receiver.sink)

    expected = {
        of_high["retried_as"]: totals[high] // HALF,
        of_low["retried_as"]: totals[low] // HALF,
    }
    assert receiver.pushes == each_once(expected)
    assert pushlane.json("dead", "list") == []
