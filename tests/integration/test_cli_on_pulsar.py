"""A user's day on a real Pulsar: commands as processes, judged by what the webhook received."""

from __future__ import annotations

import pytest
from redis import Redis

from tests.processes import Pushlane, each_once, until

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.parametrize("pushlane", ["pulsar"], indirect=True),
]


def test_what_was_submitted_is_listed_then_delivered_then_done(pushlane, receiver) -> None:
    high = pushlane.submit("high", 300, "--name", "sale", "--quota", "2", "--title", "Hi {name}")
    low = pushlane.submit("low", 200)

    listed = [(t["id"], t["level"], t["state"], t["total"]) for t in pushlane.json("tasks")]
    pushlane.drain(receiver.sink)

    assert listed == [(high, "high", "running", 300), (low, "low", "running", 200)]
    assert receiver.pushes == each_once({high: 300, low: 200})
    assert pushlane.json("tasks") == []
    assert [task["state"] for task in pushlane.json("tasks", "--all")] == ["done", "done"]
    assert pushlane.task("sale")["delivered"] == 300


def test_a_dispatcher_that_runs_already_takes_up_a_new_task(pushlane, receiver) -> None:
    running = pushlane.dispatch("--sink", receiver.sink)
    running.until("started")

    task = pushlane.submit("medium", 500)

    receiver.until(500, running)
    assert receiver.pushes == each_once({task: 500})


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_paused_task_waits_until_it_is_resumed(pushlane, receiver, level: str) -> None:
    waiting = pushlane.submit(level, 100)
    going = pushlane.submit(level, 150)
    pushlane("pause", waiting, "--reason", "not yet")

    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once({going: 150})
    assert pushlane.task(waiting)["reason"] == "not yet"

    pushlane("resume", waiting)
    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once({waiting: 100, going: 150})


def test_pause_and_resume_reach_a_running_dispatcher(pushlane, webhook) -> None:
    receiver = webhook(20)
    running = pushlane.dispatch("--slots", "2", "--sink", receiver.sink)
    task = pushlane.submit("high", 600)
    receiver.until(50, running)

    pushlane("pause", task)
    other = pushlane.submit("low", 150)  # more than a second of work for this webhook
    receiver.until_of(other, 150, running)
    before = receiver.counts[task]
    after_it = pushlane.submit("low", 50)
    receiver.until_of(after_it, 50, running)

    assert receiver.counts[task] == before < 600
    pushlane("resume", task)
    receiver.until(800, running)
    assert receiver.pushes == each_once({task: 600, other: 150, after_it: 50})


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_cancelled_task_sends_no_more(pushlane, webhook, level: str) -> None:
    receiver = webhook(20)
    running = pushlane.dispatch("--slots", "2", "--sink", receiver.sink)
    cancelled = pushlane.submit(level, 2_000)
    receiver.until(10, running)

    pushlane("cancel", cancelled, "--yes")
    sent = receiver.of(cancelled)

    other = pushlane.submit("low", 150)
    receiver.until_of(other, 150, running)
    assert receiver.counts[cancelled] < sent + 200  # about 100 a second go out; a cancel takes one
    assert running.stop() == 0
    assert pushlane.task(cancelled)["state"] == "cancelled"


def test_a_promoted_task_takes_its_backlog_along(pushlane, receiver) -> None:
    promoted = pushlane.submit("low", 500)
    other = pushlane.submit("low", 500)

    pushlane("promote", promoted, "--to", "high")
    pushlane.drain(receiver.sink)

    assert receiver.pushes == each_once({promoted: 500, other: 500})
    levels = {arrival.level for arrival in receiver.arrivals if arrival.task == promoted}
    assert levels == {"high"}
    assert pushlane.task(promoted)["pooled"] is False


def test_a_quota_and_level_weights_are_kept(pushlane) -> None:
    task = pushlane.submit("medium", 10)

    pushlane("quota", task, "7")
    pushlane("levels", "5:3:2")

    assert pushlane.task(task)["quota"] == 7
    weights = {level: share["weight"] for level, share in pushlane.json("levels").items()}
    assert weights == {"high": 5, "medium": 3, "low": 2}


def test_a_lane_goes_when_its_task_has_ended_and_nothing_retains_it(pushlane, receiver) -> None:
    task = pushlane.submit("high", 10, "--retention", "0")
    running = pushlane.dispatch("--sink", receiver.sink)

    until(lambda: pushlane.task(task)["lane_dropped"])

    assert running.stop() == 0
    assert receiver.pushes == each_once({task: 10})


def test_tasks_come_back_from_the_journal_when_redis_loses_them(
    pushlane, receiver, redis_url
) -> None:
    high = pushlane.submit("high", 100, "--name", "sale", "--quota", "3", "--key", "sale-1")
    low = pushlane.submit("low", 100)
    pushlane("pause", high, "--reason", "wait")
    pushlane("levels", "2:2:1")
    before = pushlane.json("tasks"), pushlane.json("levels")

    assert forget_all(redis_url, pushlane) > 0

    assert (pushlane.json("tasks"), pushlane.json("levels")) == before
    assert pushlane.submit("high", 100, "--name", "sale", "--quota", "3", "--key", "sale-1") == high
    pushlane("resume", high)
    pushlane.drain(receiver.sink)
    assert receiver.pushes == each_once({high: 100, low: 100})


def test_a_running_dispatcher_outlives_the_loss_of_redis_data(
    pushlane, receiver, redis_url
) -> None:
    running = pushlane.dispatch("--sink", receiver.sink)
    first = pushlane.submit("high", 100)
    receiver.until(100, running)

    forget_all(redis_url, pushlane)

    second = pushlane.submit("high", 100)
    receiver.until(200, running)
    assert receiver.pushes == each_once({first: 100, second: 100})
    assert running.stop() == 0


def forget_all(redis_url: str, pushlane: Pushlane) -> int:
    """Delete all that Redis holds of the test's own namespace; how many keys that were."""
    with Redis.from_url(redis_url) as redis:
        keys = list(redis.scan_iter(f"{{{pushlane.settings['namespace']}}}:*", count=1_000))
        return redis.delete(*keys) if keys else 0
