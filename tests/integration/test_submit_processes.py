"""Submits as real processes: cut off and repeated, or two at once."""

from __future__ import annotations

import pytest

from tests.processes import Pushlane, Running, each_once, until

COUNT = 120_000
KEYED = ("--key", "campaign-1")


def start_submit(pushlane: Pushlane, level: str, count: int) -> Running:
    return pushlane.start("submit", pushlane.rows(count), "--level", level, *KEYED)


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_killed_submit_goes_on_where_it_stopped(pushlane, deliveries, level: str) -> None:
    dispatcher = pushlane.dispatch("--sink", deliveries.sink)
    dispatcher.until("started")
    cut_off = start_submit(pushlane, level, COUNT)
    deliveries.until(1, dispatcher, cut_off)
    cut_off.kill()
    [task] = pushlane.json("tasks")
    assert task["total"] is None, "it had ended before it was killed"

    again = start_submit(pushlane, level, COUNT)

    assert again.wait() == 0, again.text
    assert again.output == task["id"]
    assert "went on with an earlier submit" in again.text
    deliveries.until(COUNT, dispatcher)
    until(lambda: pushlane.task(task["id"])["state"] == "done")
    assert deliveries.pushes == each_once({task["id"]: COUNT})


def test_a_submit_repeated_after_its_end_adds_nothing(pushlane, deliveries) -> None:
    first = pushlane.submit("high", 1_000, *KEYED)

    assert pushlane.submit("high", 1_000, *KEYED) == first

    pushlane.drain(deliveries.sink)
    assert deliveries.pushes == each_once({first: 1_000})


def test_two_submits_of_one_key_at_once_make_one_task(pushlane, deliveries) -> None:
    both = [start_submit(pushlane, "high", 20_000) for _ in range(2)]

    codes = sorted(one.wait() for one in both)

    assert codes in ([0, 0], [0, 1]), "\n".join(one.text for one in both)
    [task] = pushlane.json("tasks")
    assert {one.output for one in both} - {""} == {task["id"]}
    pushlane.drain(deliveries.sink)
    assert deliveries.pushes == each_once({task["id"]: 20_000})


def test_the_same_key_with_other_rows_is_refused(pushlane, deliveries) -> None:
    task = pushlane.submit("high", 10, *KEYED)

    other = pushlane.ran("submit", pushlane.rows(11), "--level", "high", *KEYED)

    assert other.returncode == 1
    assert "campaign-1" in other.stderr
    pushlane.drain(deliveries.sink)
    assert deliveries.pushes == each_once({task: 10})
