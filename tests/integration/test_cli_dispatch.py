"""`dispatch` as real processes: signals, workers, metrics, logs and exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command

ROOT = Path(__file__).parents[2]
DEADLINE_S = 200
HANGING = """
import asyncio, sys

async def hang(push):
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    await asyncio.Event().wait()
"""
FAILING = """
import sys

async def fail(push):
    print('{"action": "delivering"}', file=sys.stderr, flush=True)
    raise ValueError(push.recipient)
"""


class Dispatching:
    """A running `pushlane dispatch` with JSON logs."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pushlane", "dispatch", "--log-format", "json", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def until(self, action: str, times: int = 1) -> list[dict[str, Any]]:
        """Read the log until the action was logged so often; those records."""
        found: list[dict[str, Any]] = []
        while len(found) < times:
            found += [record for record in [self._next()] if record.get("action") == action]
        return found

    def until_line(self, words: str) -> None:
        while words not in self._line():
            pass

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, read all that is left, and return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=DEADLINE_S)
        self.lines += rest.splitlines()
        return self.process.returncode

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _line(self) -> str:
        line = self.process.stderr.readline()
        assert line, f"it ended early:\n{self.text}"
        self.lines.append(line.rstrip())
        return line

    def _next(self) -> dict[str, Any]:
        line = self._line()
        return json.loads(line) if line.startswith("{") else {}


@pytest.fixture
def dispatch(command: Command) -> Iterator[Callable[..., Dispatching]]:
    running: list[Dispatching] = []

    def start(*arguments: str) -> Dispatching:
        sink = () if "--sink" in arguments else ("--sink", "null")
        running.append(Dispatching(*sink, *arguments))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate(timeout=DEADLINE_S)


def delivered(path: Path) -> Counter[tuple[str, int]]:
    records = map(json.loads, path.read_text().splitlines())
    return Counter((record["task"], record["seq"]) for record in records)


def test_logs_name_no_recipient(command: Command, dispatch) -> None:
    command.submit("high", 5)
    command.file("proc.py", FAILING)

    running = dispatch("--sink", "proc:fail")
    running.until("delivering", times=5)
    running.end(signal.SIGTERM)

    assert "user-" not in running.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(dispatch, number: signal.Signals) -> None:
    running = dispatch()
    running.until("started")

    assert running.end(number) == 0
    assert json.loads(running.lines[-1])["action"] == "stopped"


def test_a_second_ctrl_c_leaves_at_once(command: Command, dispatch) -> None:
    command.submit("high", 1)
    command.file("proc.py", HANGING)
    running = dispatch("--sink", "proc:hang")
    running.until("delivering")

    running.process.send_signal(signal.SIGINT)
    running.until_line("stopping after")

    assert running.end(signal.SIGINT) == 130


def test_a_ctrl_c_says_the_same_with_several_workers(dispatch) -> None:
    running = dispatch("--workers", "2")
    running.until("started", times=2)

    running.process.send_signal(signal.SIGINT)

    running.until_line("stopping after what is in flight; Ctrl-C again leaves at once")
    assert running.end() == 0


def test_metrics_are_served_while_it_runs(dispatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    running = dispatch("--metrics-port", str(port))
    running.until("started")

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as reply:
        text = reply.read().decode()

    assert 'pushlane_weight{level="high",sink="default"} 6.0' in text
    assert running.end(signal.SIGTERM) == 0


def test_workers_share_the_lanes(command: Command, dispatch) -> None:
    tasks = [command.submit("high", 300), command.submit("low", 300)]
    log = command.folder / "out.jsonl"

    running = dispatch("--workers", "2", "--drain", "--sink", f"log:{log}")

    assert running.end() == 0
    assert delivered(log) == Counter((task, seq) for task in tasks for seq in range(1, 301))


def test_sigterm_to_the_parent_stops_all_workers(dispatch) -> None:
    running = dispatch("--workers", "2")
    running.until("started", times=2)

    assert running.end(signal.SIGTERM) == 0
    assert running.text.count('"action": "stopped"') == 2


def test_of_workers_together_one_that_dies_takes_the_others_down(dispatch) -> None:
    running = dispatch("--workers", "2", "--workers-together")
    victim, _ = running.until("started", times=2)
    os.kill(victim["pid"], signal.SIGKILL)

    assert running.end() == 1
    [death] = [line for line in running.lines if '"worker_died"' in line]
    assert f"(pid {victim['pid']}) was killed by signal 9" in death
    assert running.text.count('"action": "stopped"') == 1


def test_workers_stop_when_their_parent_is_killed(dispatch) -> None:
    running = dispatch("--workers", "2")
    running.until("started", times=2)

    running.end(signal.SIGKILL)  # reads until the last holder of stderr has ended

    assert running.text.count('"action": "stopped"') == 2
