"""Whose turn it is, by places in a webhook's log: never by the clock.

The webhook takes 10 ms for each of 20 slots, so at most 2,000 arrive in a second, which is how long
a change may take to reach a dispatcher.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes import Pushlane, Received, Running

pytestmark = pytest.mark.answers_after(10)

SLOTS = 20
A_SECOND = 2_000
TURNS = 10


def start(pushlane: Pushlane, receiver: Received) -> Running:
    return pushlane.dispatch("--slots", str(SLOTS), "--sink", receiver.sink)


def test_a_late_high_task_goes_out_before_the_backlogs_ahead_of_it(pushlane, receiver) -> None:
    early = pushlane.submit("high", 20_000)
    pushlane.submit("low", 5_000)
    running = start(pushlane, receiver)
    receiver.until(1_000, running)

    late = pushlane.submit("high", 500)
    submitted_at = receiver.count()

    receiver.until_of(late, 500, running)
    places = [n for n, arrival in enumerate(receiver.arrivals) if arrival.task == late]
    assert places[0] <= submitted_at + SLOTS + TURNS
    # It takes turns with the early one, and high has at least 6 of 10 picks.
    assert places[-1] - places[0] <= 2 * 500 / 0.6 + SLOTS + TURNS
    assert receiver.of(early) < 20_000


def test_levels_share_the_sink_by_weight_while_all_are_backlogged(pushlane, receiver) -> None:
    totals = {"high": 6_000, "medium": 4_000, "low": 3_000}
    for level, count in totals.items():
        pushlane.submit(level, count)
    running = start(pushlane, receiver)

    receiver.until(4_500, running)

    backlogged = [arrival.level for arrival in receiver.arrivals][500:4_500]
    counts = Counter(backlogged)
    shares = {level: 100 * counts[level] / len(backlogged) for level in totals}
    assert shares == pytest.approx({"high": 60, "medium": 30, "low": 10}, abs=2)


def test_a_new_quota_reorders_what_was_written_before(pushlane, receiver) -> None:
    favoured, other = pushlane.submit("medium", 8_000), pushlane.submit("medium", 8_000)
    running = start(pushlane, receiver)
    for task in (favoured, other):
        receiver.until_of(task, 1, running)
    shared = receiver.count() + 200
    receiver.until(shared + 800, running)
    before = Counter(arrival.task for arrival in receiver.arrivals[shared:][:800])

    pushlane("quota", favoured, "3")
    changed_at = receiver.count()

    receiver.until(changed_at + A_SECOND + 1_000, running)
    recent = receiver.arrivals[changed_at + A_SECOND :][:1_000]
    after = Counter(arrival.task for arrival in recent)
    assert before[favoured] == pytest.approx(before[other], abs=SLOTS)
    assert after[favoured] == pytest.approx(750, abs=SLOTS)
    assert after[other] == pytest.approx(250, abs=SLOTS)


def test_new_level_weights_reorder_what_was_written_before(pushlane, receiver) -> None:
    pushlane.submit("high", 8_000)
    low = pushlane.submit("low", 8_000)
    running = start(pushlane, receiver)
    receiver.until(500, running)

    pushlane("levels", "1:0:3")
    changed_at = receiver.count()

    receiver.until(changed_at + A_SECOND + 1_000, running)
    recent = receiver.arrivals[changed_at + A_SECOND :][:1_000]
    assert sum(arrival.task == low for arrival in recent) == pytest.approx(750, abs=SLOTS)
