"""Workers as real processes: one hangs, is killed, or is stopped for a while."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probed import Probed
from tests.processes import Pushlane, Running, each_once, until

PATIENCE_S = 5
HANGING = """
import asyncio, json, os, threading

log = os.open("delivered.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def send(push):
    if push.recipient == "device-7":
        threading.Event().wait()
    await asyncio.sleep(0)
    os.write(log, json.dumps([push.task_id, push.seq]).encode() + b"\\n")
"""


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Pushlane]:
    commands = Pushlane(tmp_path, {"broker": "embedded", "data_dir": str(tmp_path / "store")})
    (tmp_path / "shop.py").write_text(HANGING)
    yield commands
    commands.end_all()


def dispatch(pushlane: Pushlane, sink: str, *more: str) -> Running:
    patience = ("--workers", "2", "--slots", "4", "--loop-patience", str(PATIENCE_S))
    return pushlane.dispatch("--sink", sink, *patience, *more)


def workers(running: Running) -> list[int]:
    """The processes of both, the one that runs now if one was started again."""
    running.until("worker_started", 2)
    newest = dict(re.findall(r"worker (\d) is pid (\d+)", running.text))
    return [int(newest[index]) for index in "01"]


def test_a_push_that_hangs_its_loop_is_buried_and_all_others_are_delivered(
    embedded: Pushlane,
) -> None:
    task = embedded.submit("high", 40)

    draining = dispatch(embedded, "shop:send", "--drain")
    code = draining.wait()

    assert code == 0, draining.text
    log = (embedded.folder / "delivered.jsonl").read_text().splitlines()
    delivered = Counter(tuple(json.loads(line)) for line in log)
    assert set(delivered) == set(each_once({task: 40})) - {(task, 7)}
    [dead] = embedded.json("dead", "list", "--task", task)
    assert (dead["seq"], dead["reason"][:6]) == (7, "poison")
    assert draining.times("loop_hung") == draining.times("worker_restarts") >= 3
    assert "shop.py" in draining.text
    assert "device-7" not in draining.text


def test_a_worker_that_is_killed_is_started_again_and_the_other_goes_on(
    embedded: Pushlane,
) -> None:
    words = ("dispatch", "--sink", "null", "--log-format", "json", "--workers", "2")
    parent = Probed(embedded, *words)
    parent.until_ready()
    kept, killed = workers(parent.process)

    os.kill(killed, signal.SIGKILL)

    parent.until_missing(r"^worker 1: was killed by signal 9 and is started again\n$")
    parent.process.until("worker_started", 3)
    parent.until_ready()
    again = workers(parent.process)
    _, metrics = parent.get("/metrics")
    assert again[0] == kept
    assert again[1] != killed
    assert 'pushlane_worker_restarts_total{worker="0"} 0.0' in metrics
    assert 'pushlane_worker_restarts_total{worker="1"} 1.0' in metrics
    assert parent.process.stop() == 0


def test_a_worker_that_was_stopped_for_longer_than_the_patience_is_not_ended(
    embedded: Pushlane,
) -> None:
    crew = dispatch(embedded, "null")
    crew.until("started", 2)
    stopped = workers(crew)[1]

    os.kill(stopped, signal.SIGSTOP)
    try:
        elapse(2 * PATIENCE_S)
    finally:
        os.kill(stopped, signal.SIGCONT)

    task = embedded.submit("high", 200)
    until(lambda: embedded.task(task)["state"] == "done")
    elapse(PATIENCE_S)  # as long as a watchdog would have that believes it has hung
    assert crew.times("loop_hung") == 0
    assert workers(crew)[1] == stopped
    assert crew.stop() == 0


def elapse(seconds: float) -> None:
    """Let time go by: that is what the test is about."""
    began_s = time.monotonic()
    until(lambda: time.monotonic() - began_s > seconds)


def test_a_command_that_hangs_by_itself_ends_with_its_own_code(embedded: Pushlane) -> None:
    embedded.submit("high", 10)

    alone = embedded.dispatch("--sink", "shop:send", "--loop-patience", str(PATIENCE_S))

    assert alone.wait() == 5
    assert "this process ends with exit code 5" in alone.text
