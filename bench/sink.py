"""How much of a sink's capacity is used: a slow webhook, and one that answers at once.

The slow one answers after 100 ms, so 50 slots could have 500/s of it. The fast one is measured
beside a bare loop of the same HTTP client with as many requests at once, on the same receiver, in
turns; its rate is that of the middle of each run, by the receiver's log.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.bare_client import TASK as BARE
from bench.deliveries import account, tell_lost
from bench.dispatching import drain
from bench.fast_receiver import fast_receiver
from bench.figures import Figure, at_least, exactly, say
from dev.receiver import ArrivalLine, Follower, running
from pushlane.backends.backend import connect
from pushlane.core.task import Level
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_SLOTS = 50
_SLOW_MS = 100.0
_SLOW_PUSHES = 6_000
_CUT = 0.15
_TASKS = 4


class Run(NamedTuple):
    """Pushes a second in the middle of a run, and the share of a core that the receiver used."""

    rate: float
    receiver_cpu: float
    lost: list[tuple[str, int]]
    duplicates: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=5, help="of the fast sink (default 5)")
    parser.add_argument("--pushes", type=int, default=60_000, help="a round (default 60000)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with backend_settings(options.broker, slots=_SLOTS) as settings:
        say("a webhook that answers after 100 ms")
        slow = _slow(settings)
        rounds = [_round(settings, options.pushes) for _ in range(options.rounds)]
    ours, bare = zip(*rounds, strict=True)
    rate, bare_rate = (median(one.rate for one in runs) for runs in (ours, bare))
    return {
        "broker": options.broker,
        "utilisation": round(slow.rate * _SLOW_MS / 1000 / _SLOTS, 4),
        "rate": round(rate),
        "bare_client_rate": round(bare_rate),
        "ratio": round(median(our.rate / other.rate for our, other in rounds), 3),
        "ratios": [round(our.rate / other.rate, 3) for our, other in rounds],
        "receiver_cpu_max": round(max(one.receiver_cpu for one in (*ours, *bare)), 2),
        "lost": len(slow.lost) + sum(len(one.lost) for one in ours),
        "duplicates": slow.duplicates + sum(one.duplicates for one in ours),
    }


def _slow(settings: Settings) -> Run:
    own = anew(settings)
    with tempfile.TemporaryDirectory(prefix="pushlane-sink-") as folder:
        log = Path(folder) / "arrivals.jsonl"
        totals = asyncio.run(_write(own, _SLOW_PUSHES))
        with running(log, _SLOW_MS) as url:
            drain(own, f"webhook:{url}")
        return _judge(log, totals, 0.0)


def _round(settings: Settings, pushes: int) -> tuple[Run, Run]:
    own = anew(settings)
    totals = asyncio.run(_write(own, pushes))
    with _log() as log:
        with fast_receiver(log) as receiver:
            drain(own, f"webhook:{receiver.url}")
            cpu_s = _cpu_s(receiver.pid)
        ours = _judge(log, totals, cpu_s)
    with _log() as log:
        command = [sys.executable, "-m", "bench.bare_client"]
        with fast_receiver(log) as receiver:
            subprocess.run([*command, receiver.url, str(pushes), str(_SLOTS)], check=True)
            cpu_s = _cpu_s(receiver.pid)
        bare = _judge(log, {BARE: pushes}, cpu_s)
    say(f"ours {ours.rate:,.0f}/s, the bare client {bare.rate:,.0f}/s")
    return ours, bare


@contextmanager
def _log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pushlane-sink-") as folder:
        yield Path(folder) / "arrivals.jsonl"


async def _write(settings: Settings, pushes: int) -> dict[str, int]:
    """Some tasks of the same level, with so many pushes together."""
    async with connect(settings) as backend:
        each = pushes // _TASKS
        return {await write_task(backend, Level.HIGH, each): each for _ in range(_TASKS)}


def _judge(path: Path, totals: dict[str, int], cpu_s: float) -> Run:
    log = Follower(path)
    log.read()
    lost, duplicates = account(log.arrivals, totals)
    tell_lost(lost)
    took_s = log.arrivals[-1].at_s - log.arrivals[0].at_s
    return Run(middle_rate(log.arrivals), cpu_s / took_s, lost, duplicates)


def middle_rate(log: Sequence[ArrivalLine]) -> float:
    """Arrivals a second without the first and the last part, over whole rounds of the slots.

    Slots that began together stay together: between two arrivals so many whole rounds apart lie
    exactly so many times what a round takes.
    """
    first = int(len(log) * _CUT) // _SLOTS * _SLOTS
    last = first + (len(log) - 2 * first - 1) // _SLOTS * _SLOTS
    return (last - first) / (log[last].at_s - log[first].at_s)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_least("50 slots of 100 ms, of 500/s", result["utilisation"], 0.98),
        Figure("webhook that answers at once", f"{result['rate']:,}/s"),
        Figure("the same HTTP client in a bare loop", f"{result['bare_client_rate']:,}/s"),
        at_least("ours, of the bare loop's rate (median of ratios)", result["ratio"], 0.6),
        Figure("receiver's share of a core, most", f"{result['receiver_cpu_max']:.0%}"),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
