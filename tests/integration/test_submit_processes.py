"""Submits as real processes: repeated, or two at once."""

from __future__ import annotations

from tests.processes import Pushlane, Running, each_once

KEYED = ("--key", "campaign-1")


def start_submit(pushlane: Pushlane, level: str, count: int) -> Running:
    return pushlane.start("submit", pushlane.rows(count), "--level", level, "--title", "Hi", *KEYED)


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

    other = pushlane.ran("submit", pushlane.rows(11), "--level", "high", "--title", "Hi", *KEYED)

    assert other.exit_code == 1
    assert "campaign-1" in other.stderr
    pushlane.drain(deliveries.sink)
    assert deliveries.pushes == each_once({task: 10})
