"""A receiver that refuses every push for good: the task is paused, says why, and can go on."""

from __future__ import annotations

from typing import Any

from tests.processes import Pushlane, Received, Running, each_once, until

TOTAL = 5_000
ANSWER_MS = 20


def until_landed(pushlane: Pushlane, task_id: str, receiver: Received) -> dict[str, Any]:
    """The task, once all that had gone out is counted."""
    until(lambda: pushlane.task(task_id)["dead"] == receiver.count())
    return pushlane.task(task_id)


def dispatch(pushlane: Pushlane, receiver: Received) -> Running:
    return pushlane.dispatch("--slots", "10", "--workers", "2", "--sink", receiver.sink)


def test_a_task_that_dies_is_paused_with_the_reason_and_goes_on_when_resumed(
    pushlane, webhook
) -> None:
    receiver = webhook(ANSWER_MS, status=410)
    task_id = pushlane.submit("high", TOTAL)
    running = dispatch(pushlane, receiver)

    running.until("task_paused")
    paused = until_landed(pushlane, task_id, receiver)

    assert (paused["state"], paused["stopped"]) == ("paused", True)
    assert paused["reason"].startswith("stopped: ")
    assert "most often HTTP 410" in paused["reason"]
    assert 100 <= paused["dead"] < TOTAL
    assert paused["died_of"] == {"HTTP 410": paused["dead"]}
    assert "pushes_died" in running.text
    assert "device-" not in running.text
    [first, *_] = pushlane.json("why", task_id)["causes"]
    assert first["cause"] == "deaths"
    assert f"{paused['dead']:,} died: HTTP 410" in first["detail"]

    pushlane("resume", task_id)
    running.until("task_done")

    assert running.stop() == 0
    done = pushlane.task(task_id)
    assert (done["state"], done["delivered"], done["dead"]) == ("done", 0, TOTAL)
    assert done["died_of"] == {"HTTP 410": TOTAL}
    assert receiver.pushes == each_once({task_id: TOTAL})
    assert running.times("task_paused") == 1


def test_one_that_is_told_never_to_stop_dies_to_its_end(pushlane, webhook) -> None:
    task_id = pushlane.submit("low", 300, "--stop-if-dead", "off")

    pushlane.drain(webhook(1, status=410).sink)

    assert pushlane.task(task_id)["died_of"] == {"HTTP 410": 300}
