"""How long `pushlane trace` takes to find a push among the receipts of a month, files cold.

The store of reports is written for it, an hour a file, each receipt of a trace of its own. Every
question is asked as a command in a process of its own, after the system was told to drop what it
keeps of the files; its start, which is told apart, is in the time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import uvloop

from bench.backends import environment
from bench.figures import Figure, at_most, say
from bench.receipts_store import HOUR_MS, HOURS, trace_of, write_detail
from pushlane.backends.backend import connect
from pushlane.backends.queries import receipt_hasher
from pushlane.core.task import Level, Task, now_ms
from pushlane.pipeline.store import open_store
from pushlane.pipeline.store.manifest import read_parquet
from pushlane.settings import Settings, load

RUNS: tuple[tuple[str, ...], ...] = ((),)
_RECIPIENT = "user-1"
_GOALS_S = {
    "push": 1.0,
    "trace": 5.0,
    "traceparent": 5.0,
    "recipient": 5.0,
    "trace, since 1d": 1.0,
    "recipient, since 1d": 1.0,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--receipts", type=int, default=10_000_000, help="in the store of reports")
    parser.add_argument("--days", type=int, default=30, help="that they are of")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts (5)")
    parser.add_argument("--store", type=Path, help="keep the data here, or use what is there")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pushlane-lookups-") as folder:
        settings = load({"data_dir": options.store or Path(folder), "broker": "embedded"})
        if not (settings.reports_root / "CURRENT").exists():
            since_ms = now_ms() // HOUR_MS * HOUR_MS - options.days * HOURS * HOUR_MS
            whom, positions = uvloop.run(_log_of(settings))
            write_detail(
                settings.reports_root, options.receipts, since_ms, options.days, whom, positions
            )
            os.sync()
        push = uvloop.run(_known_push(settings))
        asked: dict[str, list[_Asked]] = {}
        for _ in range(options.rounds):
            for name, words in _questions(push, options.receipts).items():
                asked.setdefault(name, []).append(_ask(settings, words))
        busy = os.getloadavg()[1]
    return {
        "receipts": options.receipts,
        "days": options.days,
        "load": round(busy, 1),
        "seconds": {k: round(median(one.took_s for one in v), 2) for k, v in asked.items()},
        "cpu_s": {k: round(median(one.cpu_s for one in v), 2) for k, v in asked.items()},
    }


def _questions(push: str, receipts: int) -> dict[str, Sequence[str]]:
    """The command lines by their names; what they look for is there."""
    old, new = trace_of(receipts // 3), trace_of(receipts - 1)
    return {
        "start alone": ("--version",),
        "push": ("trace", push, "--json"),
        "trace": ("trace", old, "--json"),
        "traceparent": ("trace", f"00-{old}-00f067aa0ba902b7-01", "--json"),
        "recipient": ("trace", _RECIPIENT, "--json"),
        "trace, since 1d": ("trace", new, "--since", "1d", "--json"),
        "recipient, since 1d": ("trace", _RECIPIENT, "--since", "1d", "--json"),
    }


async def _log_of(settings: Settings) -> tuple[int, list[str]]:
    """Return the hash that the recipient has in the log, and where that begins."""
    async with connect(settings) as backend:
        hasher = await receipt_hasher(backend.receipts, settings)
        [whom] = hasher.hashes([_RECIPIENT])
        return whom, list(await backend.receipts.first())


async def _known_push(settings: Settings) -> str:
    """Return a push from the middle of the store, of a task that the registry has all the time."""
    store = open_store(settings.reports_root)
    files, since_ms = store.files("detail"), store.entries("detail")[0].min_ms
    rows = read_parquet(Path(files[len(files) // 2]), ["task_id", "seq"])
    [row] = rows.slice(rows.num_rows // 2, 1).to_pylist()
    name = row["task_id"]
    task = Task(id=name, level=Level.HIGH, lane=name, key=name, created_at_ms=since_ms)
    async with connect(settings) as backend:
        await backend.registry.add(task)
    return f"{name}-{row['seq']}"


class _Asked(NamedTuple):
    took_s: float
    cpu_s: float


def _ask(settings: Settings, words: Sequence[str]) -> _Asked:
    """Ask as a command does, with nothing of the store in memory."""
    for path in open_store(settings.reports_root).files("detail"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-m", "pushlane", *words]
    started_s, before_s = time.monotonic(), _cpu_s()
    asked = subprocess.run(command, env=environment(settings), capture_output=True, check=True)
    took = _Asked(time.monotonic() - started_s, _cpu_s() - before_s)
    if words[-1] == "--json":
        assert json.loads(asked.stdout)["pushes"], words
    say(f"{' '.join(words)}: {took.took_s:.2f} s, of a processor {took.cpu_s:.2f} s")
    return took


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def figures(result: dict[str, Any]) -> list[Figure]:
    took_s, cpu_s = result["seconds"], result["cpu_s"]
    return [
        *(at_most(f"`pushlane trace` by {k}, s", took_s[k], most) for k, most in _GOALS_S.items()),
        *(Figure(f"by {k}, s of a processor", f"{cpu_s[k]:g}") for k in _GOALS_S),
        Figure("start of a command alone, s of a processor", f"{cpu_s['start alone']:g}"),
        Figure("load of the machine meanwhile", f"{result['load']:g}"),
    ]
