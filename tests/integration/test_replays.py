"""Sent again: a whole task, a part of it by time, and what is no longer there."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.processes import Pushlane, Received, each_once, until

PUSHES = 200


def sent(pushlane: Pushlane, deliveries: Received, level: str, *options: str) -> str:
    """A task that is done."""
    task = pushlane.submit(level, PUSHES, *options)
    pushlane.drain(deliveries.sink)
    return task


def test_a_finished_task_is_cloned_and_sent_again_whole(pushlane, deliveries) -> None:
    task = sent(pushlane, deliveries, "high", "--name", "sale")

    again = pushlane.json("clone", task)
    pushlane.drain(deliveries.sink)

    assert (again["published"], again["task"]["name"]) == (PUSHES, "sale")
    assert {seq for of, seq in deliveries.pushes if of == again["task_id"]} == {
        *range(1, PUSHES + 1)
    }
    assert pushlane.task(again["task_id"])["delivered"] == PUSHES
    assert deliveries.of(task) == PUSHES


def test_a_replay_sends_what_was_published_since(pushlane, deliveries) -> None:
    task = sent(pushlane, deliveries, "medium")

    again = pushlane.json("replay", task, "--since", "1h")

    assert again["published"] == PUSHES


def test_a_replay_of_a_time_in_which_nothing_was_published_is_refused(pushlane) -> None:
    task = pushlane.submit("high", 10)
    now = datetime.now().astimezone().isoformat()

    ran = pushlane.ran("replay", task, "--since", now)

    assert ran.exit_code == 1
    assert "has published nothing since" in ran.stderr
    assert len(pushlane.json("tasks")) == 1


def test_a_low_task_with_a_retention_can_be_replayed(pushlane, deliveries) -> None:
    task = sent(pushlane, deliveries, "low", "--retention", "10m")

    assert pushlane.json("clone", task)["published"] == PUSHES


@pytest.mark.pulsar
@pytest.mark.parametrize("pushlane", ["pulsar"], indirect=True)
def test_pulsar_keeps_what_low_tasks_put_on_the_lane_that_they_share(pushlane, deliveries) -> None:
    task, moved, other = (pushlane.submit("low", PUSHES) for _ in range(3))
    pushlane("promote", moved, "--to", "high")
    pushlane.drain(deliveries.sink)

    again = [pushlane.json("clone", task), pushlane.json("replay", moved, "--since", "1h")]
    pushlane.drain(deliveries.sink)

    assert [one["published"] for one in again] == [PUSHES, PUSHES]
    totals = dict.fromkeys([task, moved, other, *(one["task_id"] for one in again)], PUSHES)
    assert deliveries.pushes == each_once(totals)


def test_what_is_no_longer_retained_is_not_replayed(pushlane, deliveries) -> None:
    task = sent(pushlane, deliveries, "high", "--retention", "0s")
    dispatcher = pushlane.dispatch("--sink", deliveries.sink)
    until(lambda: pushlane.task(task)["lane_dropped"])
    dispatcher.stop()

    ran = pushlane.ran("clone", task)

    assert ran.exit_code == 1
    assert "no pushes retained" in ran.stderr
    assert "submit the file again" in ran.stderr


def test_what_was_cancelled_is_gone_at_once(pushlane, deliveries) -> None:
    task = pushlane.submit("high", PUSHES, "--retention", "1h")
    pushlane("cancel", task, "--yes")
    dispatcher = pushlane.dispatch("--sink", deliveries.sink)
    until(lambda: pushlane.task(task)["lane_dropped"])
    dispatcher.stop()

    ran = pushlane.ran("clone", task)

    assert ran.exit_code == 1
    assert "when it was cancelled" in ran.stderr
