"""Dispatchers as real processes that are killed, stopped and restarted in mid-run."""

from __future__ import annotations

import pytest

from tests.processes import NOT_COUNTED_S, Pushlane, Received, Running, each_once

SLOTS = 20
TOTALS = {"high": 5_000, "medium": 4_000, "low": 3_000}


@pytest.fixture
def totals(pushlane: Pushlane) -> dict[str, int]:
    """A task of each level, on the lanes already: how many pushes each has."""
    return {pushlane.submit(level, count): count for level, count in TOTALS.items()}


def repeats_allowed(receiver: Received) -> int:
    """What a kill may repeat: the slots, and outcomes that were not counted yet."""
    return SLOTS + receiver.busiest(NOT_COUNTED_S)


def start(pushlane: Pushlane, receiver: Received, *more: str) -> Running:
    return pushlane.dispatch("--slots", str(SLOTS), "--sink", receiver.sink, *more)


def states(pushlane: Pushlane) -> dict[str, tuple[str, int]]:
    """State and delivered pushes of every task, by the registry."""
    tasks = pushlane.json("tasks", "--all")
    return {task["id"]: (task["state"], task["delivered"]) for task in tasks}


def test_after_a_kill_nothing_is_lost_and_little_repeated(pushlane, receiver, totals) -> None:
    first = start(pushlane, receiver)
    receiver.until(6_000, first)
    first.kill()

    pushlane.drain(receiver.sink)

    assert set(receiver.pushes) == set(each_once(totals))
    assert receiver.duplicates <= repeats_allowed(receiver)


def test_after_a_kill_each_push_counts_once(pushlane, receiver, totals) -> None:
    first = start(pushlane, receiver)
    receiver.until(2_000, first)
    first.kill()

    pushlane.drain(receiver.sink)

    assert states(pushlane) == {task: ("done", total) for task, total in totals.items()}


def test_when_one_of_two_is_killed_the_other_sends_the_rest(pushlane, receiver, totals) -> None:
    survivor, victim = start(pushlane, receiver, "--drain"), start(pushlane, receiver)
    survivor.until("started")
    victim.until("started")
    receiver.until(6_000, survivor)
    victim.kill()

    assert survivor.wait() == 0

    assert set(receiver.pushes) == set(each_once(totals))
    assert receiver.duplicates <= repeats_allowed(receiver)


def test_a_rolling_restart_repeats_and_loses_nothing(pushlane, receiver, totals) -> None:
    crew = [start(pushlane, receiver), start(pushlane, receiver)]
    for done in (2_000, 4_000, 6_000, 8_000):
        receiver.until(done, *crew)
        crew.append(start(pushlane, receiver))
        crew[-1].until("started")

        first = crew.pop(0)
        assert first.stop() == 0, first.text

    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once(totals)


def test_dispatchers_that_start_and_end_together_do_so_cleanly(pushlane) -> None:
    for _ in range(4):
        crew = [pushlane.dispatch("--drain", "--sink", "null") for _ in range(4)]

        codes = [one.wait() for one in crew]

        assert codes == [0] * 4, "".join(one.text for one in crew)


def test_workers_share_the_work(pushlane, receiver, totals) -> None:
    pushlane.drain(receiver.sink, "--workers", "2")

    assert receiver.pushes == each_once(totals)


def test_sigterm_to_the_parent_of_workers_repeats_and_loses_nothing(
    pushlane, receiver, totals
) -> None:
    crew = start(pushlane, receiver, "--workers", "2")
    crew.until("started", times=2)
    receiver.until(3_000, crew)

    assert crew.stop() == 0

    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once(totals)


def test_workers_whose_parent_is_killed_end_gently(pushlane, receiver, totals) -> None:
    crew = start(pushlane, receiver, "--workers", "2")
    crew.until("started", times=2)
    receiver.until(3_000, crew)

    crew.kill()
    crew.workers_end()

    assert crew.times("stopped") == 2
    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once(totals)
