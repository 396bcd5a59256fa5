"""A user's own function as the sink: a module in the folder where the dispatcher is started."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.processes import Pushlane, each_once, until

PROCESSORS = """
import asyncio
import json
import os
import threading
from contextlib import suppress

from pushlane import Outcome, batch


def note(push, batch=1):
    line = {"task": push.task_id, "seq": push.seq, "to": push.recipient, "batch": batch}
    log = os.open("delivered.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, json.dumps(line).encode() + b"\\n")
    os.close(log)


def one(push):
    note(push)


async def later(push):
    note(push)
    return True


@batch(10)
def ten(pushes):
    for push in pushes:
        note(push, len(pushes))


def only_even(push):
    note(push)
    return push.seq % 2 == 0


def second_time(push):
    note(push)
    return Outcome.delivered() if push.attempt > 1 else Outcome.retry("busy", after_s=0.1)


def fails(push):
    raise ValueError(push.recipient)


def blocks(push):
    note(push)
    threading.Event().wait()


async def heeds_nothing(push):
    note(push)
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
"""

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(pushlane: Pushlane) -> Lines:
    """What the processors of `mine.py` noted."""
    (pushlane.folder / "mine.py").write_text(PROCESSORS)
    log = pushlane.folder / "delivered.jsonl"
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def pushes(lines: Lines) -> Counter[tuple[str, int]]:
    return Counter((line["task"], line["seq"]) for line in lines())


@pytest.mark.parametrize("name", ["one", "later", "ten"])
def test_it_is_called_with_every_push(pushlane, lines, name: str) -> None:
    totals = {pushlane.submit("high", 100): 100, pushlane.submit("low", 100): 100}

    pushlane.drain(f"mine:{name}")

    assert pushes(lines) == each_once(totals)
    assert {line["to"] for line in lines()} == {f"device-{number}" for number in range(1, 101)}
    assert {task["delivered"] for task in pushlane.json("tasks", "--all")} == {100}


def test_one_that_takes_batches_gets_batches(pushlane, lines) -> None:
    pushlane.submit("high", 100)

    pushlane.drain("mine:ten")

    assert max(line["batch"] for line in lines()) == 10


def test_what_it_calls_dead_is_dead(pushlane, lines) -> None:
    task = pushlane.submit("high", 10)

    pushlane.drain("mine:only_even")

    shown = pushlane.task(task)
    assert (shown["state"], shown["delivered"], shown["dead"]) == ("done", 5, 5)


def test_what_it_wants_again_comes_again(pushlane, lines) -> None:
    task = pushlane.submit("high", 10)

    pushlane.drain("mine:second_time")

    assert pushes(lines) == each_once({task: 10}) + each_once({task: 10})
    assert pushlane.task(task)["delivered"] == 10


def test_one_that_raises_gives_up_without_naming_a_recipient(pushlane, lines) -> None:
    task = pushlane.submit("high", 5, "--max-attempts", "2")
    draining = pushlane.dispatch("--drain", "--sink", "mine:fails")

    assert draining.wait() == 0

    shown = pushlane.task(task)
    assert (shown["state"], shown["dead"]) == ("done", 5)
    assert "device-" not in draining.text


@pytest.mark.parametrize(("name", "code"), [("blocks", 0), ("heeds_nothing", 1)])
def test_one_that_never_comes_back_keeps_no_dispatcher_that_is_to_stop(
    pushlane, lines, name: str, code: int
) -> None:
    (pushlane.folder / "pushlane.toml").write_text("drain_timeout_s = 0.2\n")
    task = pushlane.submit("high", 3)
    dispatching = pushlane.dispatch("--sink", f"mine:{name}")
    until((pushlane.folder / "delivered.jsonl").exists)

    assert dispatching.stop() == code

    assert dispatching.times("drain_late") == 1
    left = "left as it is; what was in flight will be sent again"
    assert (left in dispatching.text) == (code == 1)
    pushlane.drain("mine:one", "--replace-sink")
    assert set(pushes(lines)) == set(each_once({task: 3}))
    assert pushlane.task(task)["delivered"] == 3
