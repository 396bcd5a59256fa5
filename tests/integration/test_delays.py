"""Pushes and tasks that wait for their time, by places and times in a webhook's log."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.processes import Pushlane, Received, each_once, until


def file_of(pushlane: Pushlane, header: str, rows: list[str]) -> Path:
    path = pushlane.folder / "delays.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return path


def times_of(receiver: Received, task: str) -> dict[int, float]:
    """When each push of the task arrived, as Unix seconds."""
    receiver.read()
    return {arrival.seq: arrival.at_s for arrival in receiver.arrivals if arrival.task == task}


def test_a_delayed_push_goes_out_after_its_time_and_those_behind_it_go_first(
    pushlane, receiver
) -> None:
    running = pushlane.dispatch("--sink", receiver.sink)
    running.until("started")
    due_s = time.time() + 15
    rows = [f"late-{n},{due_s}" for n in range(100)] + [f"soon-{n}," for n in range(300)]
    path = file_of(pushlane, "recipient,at", rows)
    task = pushlane("submit", path, "--level", "low", "--title", "Hi", "--not-before-column", "at")

    receiver.until(400, running)

    assert receiver.pushes == each_once({task: 400})
    late = range(1, 101)
    last_places = [(arrival.task, arrival.seq) for arrival in receiver.arrivals[-100:]]
    assert sorted(last_places) == [(task, seq) for seq in late]
    assert min(times_of(receiver, task)[seq] for seq in late) >= due_s


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_scheduled_task_starts_by_itself_when_its_time_has_come(
    pushlane, receiver, level: str
) -> None:
    running = pushlane.dispatch("--sink", receiver.sink)
    running.until("started")
    scheduled = pushlane.submit(level, 200, "--delay", "6s")
    start_s = pushlane.task(scheduled)["not_before_ms"] / 1000
    other = pushlane.submit("low", 200)

    receiver.until_of(other, 200, running)
    receiver.until_of(scheduled, 200, running)

    assert receiver.pushes == each_once({scheduled: 200, other: 200})
    assert min(times_of(receiver, scheduled).values()) >= start_s


def test_a_drain_leaves_a_scheduled_task_alone(pushlane, receiver) -> None:
    scheduled = pushlane.submit("high", 10, "--delay", "1h")
    other = pushlane.submit("low", 10)

    pushlane.drain(receiver.sink)

    assert receiver.pushes == each_once({other: 10})
    assert pushlane.task(scheduled)["state"] == "scheduled"


def test_recipients_are_left_alone_in_their_own_quiet_hours(pushlane, receiver) -> None:
    now = datetime.now(UTC)
    hours = f"{now - timedelta(hours=2):%H:%M}-{now + timedelta(hours=2):%H:%M}"
    rows = [f"user-{n},{'UTC' if n % 2 else 'Etc/GMT+8'}" for n in range(200)]
    path = file_of(pushlane, "recipient,tz", rows)
    options = ("--title", "Hi", "--quiet", hours, "--zone-column", "tz")
    task = pushlane("submit", path, "--level", "high", *options)
    running = pushlane.dispatch("--sink", receiver.sink)

    receiver.until_of(task, 100, running)
    after_it = pushlane.submit("low", 100)
    receiver.until_of(after_it, 100, running)

    awake = {(task, seq) for seq in range(1, 201, 2)}
    assert {push for push in receiver.pushes if push[0] == task} == awake


def test_what_two_processes_put_off_until_tomorrow_goes_once_when_there_are_no_quiet_hours(
    pushlane, receiver
) -> None:
    now = datetime.now(UTC)
    hours = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=21):%H:%M}"
    task = pushlane.submit("low", 600, "--quiet", hours)
    running, beside = (pushlane.dispatch("--sink", receiver.sink) for _ in range(2))
    until(lambda: _waiting(pushlane, task) == 600)

    pushlane("reschedule", task, "--quiet", "none")
    receiver.until(600, running, beside)
    after_it = pushlane.submit("low", 100)
    receiver.until_of(after_it, 100, running)

    assert receiver.pushes == each_once({task: 600, after_it: 100})


def _waiting(pushlane: Pushlane, task: str) -> int:
    """How many of its pushes are noted as put off."""
    return sum(one["pushes"] for one in json.loads(pushlane("why", task, "--json"))["waits"])
