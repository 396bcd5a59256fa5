"""A push that ends every process which delivers it: it is buried, and what is beside it is not."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.processes import Pushlane, each_once

PROCESSOR = """
import json
import os

log = os.open("delivered.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def send(push):
    if push.recipient == "device-7":
        os._exit(9)
    os.write(log, json.dumps([push.task_id, push.seq]).encode() + b"\\n")
"""

_STARTS = 30


@pytest.fixture
def deadly(pushlane: Pushlane) -> Pushlane:
    """With a processor that one push kills, and claims that soon run out."""
    (pushlane.folder / "mine.py").write_text(PROCESSOR)
    (pushlane.folder / "pushlane.toml").write_text("sink_timeout_s = 3\nclaim_timeout_s = 0.1\n")
    return pushlane


def restarted_until_drained(pushlane: Pushlane) -> int:
    """Start the dispatcher anew each time it dies, as a supervisor does; returns how often."""
    for deaths in range(_STARTS):
        draining = pushlane.dispatch("--drain", "--sink", "mine:send", "--slots", "4")
        if draining.wait() == 0:
            return deaths
    pytest.fail(f"still dying after {_STARTS} starts:\n{draining.text}")


@pytest.mark.parametrize("mode", ["at_least_once", "once"])
def test_it_is_buried_and_all_others_are_delivered(deadly: Pushlane, mode: str) -> None:
    task = deadly.submit("high", 40, "--delivery", mode)

    deaths = restarted_until_drained(deadly)

    log = (deadly.folder / "delivered.jsonl").read_text().splitlines()
    delivered = Counter(tuple(json.loads(line)) for line in log)
    shown = deadly.task(task)
    dead = deadly.json("dead", "list", "--task", task)
    assert set(delivered) == set(each_once({task: 40})) - {(task, 7)}
    assert (shown["state"], shown["delivered"], shown["dead"]) == ("done", 39, 1)
    assert {(one["seq"], one["reason"][:6]) for one in dead} == {(7, "poison")}
    assert 3 <= deaths <= 6
