"""Counts the exit codes of commands while Pulsar does not answer: each must be 3.

The threads of clients that wrap native code have aborted such commands at times, more often on a
busy machine. Each command is run many times, beside processes that keep the machine busy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.figures import Figure, say

_AWAY = "pulsar://127.0.0.1:1"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=60, help="of each command (default 60)")
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside (default 2)")
    parser.add_argument("--broker", default=_AWAY, help="where Pulsar is; nowhere unless given")
    parser.add_argument("--expect", type=int, default=3, help="the exit code (default 3)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    environment = os.environ | {"PUSHLANE_BROKER": options.broker}
    codes: dict[str, dict[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder, _busy(options.busy):
        rows = Path(folder) / "rows.csv"
        rows.write_text("recipient\nuser-1\n")
        text = ("--title", "Hi", "--body", "Hi")
        for words in (["tasks"], ["submit", str(rows), "--level", "high", *text]):
            ends = Counter(_exit_code(words, environment) for _ in range(options.runs))
            codes[words[0]] = dict(ends)
            say(f"{words[0]}: {dict(ends)}")
    wrong = [f"{name}: {ends}" for name, ends in codes.items() if set(ends) != {options.expect}]
    return {"runs": options.runs, "busy": options.busy, "codes": codes, "failures": wrong}


def figures(result: dict[str, Any]) -> list[Figure]:
    return [Figure(name, str(ends)) for name, ends in result["codes"].items()]


def _exit_code(words: list[str], environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pushlane", *words]
    ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    return ran.returncode


@contextmanager
def _busy(count: int) -> Iterator[None]:
    with ExitStack() as ends:
        for _ in range(count):
            spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            ends.callback(spinning.wait)
            ends.callback(spinning.kill)
        yield
