"""`results` and `report` of a large task: their time and memory, and what pushes lose meanwhile.

Both read the log of receipts itself. The task is dispatched to a processor that logs what it gets,
and answers that some addresses are gone; what both say has to be what that log says. Then pushes go
out with nobody asking, and while `results` is asked again and again, in turns.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any, NamedTuple

import uvloop

from bench.backends import backend_settings, environment
from bench.backlog import write_task
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.resident import peak_kib
from pushlane.backends.backend import connect
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks import open_sink
from pushlane.settings import Settings

RUNS: tuple[tuple[str, ...], ...] = ((),)
_SINK = "bench.results:receive"
_LOG = "PUSHLANE_BENCH_RESULTS_LOG"
_GONE_EACH = 97
_LOOK_S = 0.01
_GONE = Outcome.dead("HTTP 410")
_GOAL_S, _GOAL_MB, _GOAL_KEPT = 20, 512, 0.9


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pushes", type=int, default=1_000_000, help="of the task asked about")
    parser.add_argument("--beside", type=int, default=200_000, help="that go out meanwhile")
    parser.add_argument("--rounds", type=int, default=5, help="of pushes without and with (5)")


@functools.cache
def _log() -> IO[str]:
    return Path(os.environ[_LOG]).open("a", buffering=1 << 16)


async def receive(push: Push) -> Outcome | None:
    """The receiver, as `dispatch --sink` takes it: it logs the push, and answers."""
    is_gone = push.seq % _GONE_EACH == 0
    _log().write(f"{push.task_id} {push.seq} {'dead' if is_gone else 'delivered'}\n")
    return _GONE if is_gone else None


def run(options: argparse.Namespace) -> dict[str, Any]:
    with backend_settings("embedded", receipts_max_bytes=16 * 1024**3) as settings:
        log = settings.data_dir / "received"
        os.environ[_LOG] = str(log)
        say(f"a task of {options.pushes:,} pushes: dispatching")
        task_id, _ = uvloop.run(_drain(settings, options.pushes))
        asked = _ask(settings, "results", task_id)
        reported = _ask(settings, "report", task_id)
        counts = {k: n - asked.answer["lacking"][k] for k, n in asked.answer["counts"].items()}
        told = reported.answer["total"]
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(options.rounds):
            for is_asked in (False, True) if number % 2 else (True, False):
                with _asking(settings, task_id) if is_asked else _nobody():
                    _, took_s = uvloop.run(_drain(settings, options.beside))
                rates[is_asked].append(options.beside / took_s)
                say(f"{'beside it' if is_asked else 'alone'}: {rates[is_asked][-1]:,.0f}/s")
        _log().flush()
        received = _received(log, task_id)
        pairs = zip(rates[True], rates[False], strict=True)
        return {
            "receipts": options.pushes,
            "seconds": round(asked.took_s, 2),
            "rss_mb": round(asked.rss_kib / 1024, 1),
            "report_seconds": round(reported.took_s, 2),
            "report_rss_mb": round(reported.rss_kib / 1024, 1),
            "rate_alone": round(median(rates[False])),
            "rate_beside": round(median(rates[True])),
            "rate_kept": round(median(beside / alone for beside, alone in pairs), 3),
            "counts": counts,
            "received": received,
            "wrong": sum(
                abs(n - received.get(kind, 0)) + abs(told.get(kind, 0) - received.get(kind, 0))
                for kind, n in counts.items()
            ),
        }


def figures(result: dict[str, Any]) -> list[Figure]:
    name = f"of {result['receipts']:,} receipts"
    return [
        at_most(f"`results` {name}, s", result["seconds"], _GOAL_S),
        at_most(f"memory of `results` {name}, MiB", result["rss_mb"], _GOAL_MB),
        at_most(f"`report` {name}, s", result["report_seconds"], _GOAL_S),
        at_most(f"memory of `report` {name}, MiB", result["report_rss_mb"], _GOAL_MB),
        at_least("rate of pushes beside it, of that alone", result["rate_kept"], _GOAL_KEPT),
        exactly("pushes counted otherwise than the receiver did", result["wrong"], 0),
    ]


class _Asked(NamedTuple):
    took_s: float
    rss_kib: int
    answer: dict[str, Any]


def _ask(settings: Settings, name: str, task_id: str) -> _Asked:
    """Ask as a command does, in a process of its own."""
    command = [sys.executable, "-m", "pushlane", name, task_id, "--json"]
    started_s, most_kib = time.monotonic(), 0
    with subprocess.Popen(command, env=environment(settings), stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            most_kib = max(most_kib, peak_kib(process.pid))
            time.sleep(_LOOK_S)
        took_s = time.monotonic() - started_s
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
    say(f"{name}: {took_s:.1f} s, {most_kib / 1024:.0f} MiB")
    return _Asked(took_s, most_kib, answer)


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def _asking(settings: Settings, task_id: str) -> Iterator[None]:
    """Ask again and again, meanwhile."""
    command = "while :; do {} -m pushlane results {} --json >/dev/null; done"
    process = subprocess.Popen(
        ["sh", "-c", command.format(sys.executable, task_id)],
        env=environment(settings),
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


async def _drain(settings: Settings, pushes: int) -> tuple[str, float]:
    """Return a task, and the seconds from the dispatcher's start until all of it is acked."""
    async with connect(settings) as backend:
        task_id = await write_task(backend, Level.HIGH, pushes)
        sink = open_sink(_SINK, slots=settings.slots, timeout_s=settings.sink_timeout_s)
        started_s = time.monotonic()
        await Dispatcher(backend, sink, settings, drain=True).run()
        took_s = time.monotonic() - started_s
        await sink.close()
    return task_id, took_s


def _received(log: Path, task_id: str) -> dict[str, int]:
    """Count what the receiver has of the task; its first answer to a push counts."""
    answers: dict[str, str] = {}
    with log.open() as lines:
        for line in lines:
            task, seq, answer = line.split()
            if task == task_id:
                answers.setdefault(seq, answer)
    return dict(Counter(answers.values()))
