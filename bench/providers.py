"""Measures how fast pushes reach FCM, APNs and Web Push, beside a bare loop of the same client.

A dispatcher drains a backlog into one sink; the bare loop posts as many bodies of that size on as
many connections, with the same headers, and for Web Push encrypts each by itself. Both go to the
same fast provider in turns, which answers at once; rates are of the middle of its log. Then one
that answers after 50 ms, over 5 connections: how much of the slots' capacity is used.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.deliveries import account, tell_lost
from bench.dispatching import Dispatching
from bench.fast_provider import fast_provider
from bench.figures import Figure, at_least, exactly, say
from bench.provider_kinds import KINDS, STREAMS, push_to, sink_settings, write_keys
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"),)
_FAST_ENOUGH = 10_000
_SLOTS = 100
_SLOW_S = 0.05
_SLOW_SLOTS = 50
_SLOW_STREAMS = 10
_SLOW_PUSHES = 20_000
_CUT = 0.15
_TASKS = 4
_DRAIN_S = 600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=3, help="a kind of provider (default 3)")
    parser.add_argument("--pushes", type=int, default=60_000, help="a round (default 60000)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-providers-") as folder,
    ):
        place = Path(folder)
        write_keys(place)
        result: dict[str, Any] = {"broker": options.broker, "lost": 0, "duplicates": 0}
        for kind in KINDS:
            rounds = [_round(settings, place, kind, options.pushes) for _ in range(options.rounds)]
            ours, bare = zip(*rounds, strict=True)
            result |= {
                f"{kind}_rate": round(median(ours)),
                f"{kind}_bare_rate": round(median(bare)),
                f"{kind}_ratio": round(median(our / other for our, other in rounds), 3),
            }
        say("FCM, which answers after 50 ms")
        slow = settings.but(slots=_SLOW_SLOTS)
        rate = _drained(slow, place, "fcm", _SLOW_PUSHES, _SLOW_S, _SLOW_STREAMS)
        result["utilisation"] = round(rate * _SLOW_S / _SLOW_SLOTS, 4)
    return result


def _round(settings: Settings, place: Path, kind: str, pushes: int) -> tuple[float, float]:
    ours = _drained(settings, place, kind, pushes)
    bare = _bare(place, kind, pushes)
    say(f"{kind}: ours {ours:,.0f}/s, the bare client {bare:,.0f}/s")
    return ours, bare


def _drained(
    settings: Settings,
    place: Path,
    kind: str,
    pushes: int,
    takes_s: float = 0.0,
    streams: int = STREAMS,
) -> float:
    """Dispatch so many pushes to a provider of this kind, and return the rate it saw."""
    port, log = _free_port(), _fresh(place / "arrivals.jsonl")
    with fast_provider(log, port, takes_s) as url:
        own = anew(settings).but(sinks={kind: sink_settings(kind, place, url, streams)})
        totals = asyncio.run(_write(own, kind, url, pushes))
        process = Dispatching(own, "null", "--drain")
        process.wait(_DRAIN_S)
    arrivals = _arrivals(log)
    lost, duplicates = account(arrivals, totals)
    tell_lost(lost)
    if lost or duplicates:
        raise PushlaneError(f"{len(lost)} pushes were lost, {duplicates} came twice")
    return _middle_rate(arrivals)


async def _write(settings: Settings, kind: str, url: str, pushes: int) -> dict[str, int]:
    """Some tasks of the same level, with so many pushes together."""
    make = push_to(kind, url)
    async with connect(settings) as backend:
        each = pushes // _TASKS
        tasks = [
            await write_task(backend, Level.HIGH, each, sinks=(kind,), make=make)
            for _ in range(_TASKS)
        ]
    return dict.fromkeys(tasks, each)


def _bare(place: Path, kind: str, pushes: int) -> float:
    port, log = _free_port(), _fresh(place / "bare.jsonl")
    with fast_provider(log, port) as url:
        command = [sys.executable, "-m", "bench.provider_kinds", kind, url]
        subprocess.run([*command, str(pushes), str(_SLOTS)], check=True)
    return _middle_rate(_arrivals(log))


def _arrivals(log: Path) -> list[ArrivalLine]:
    follower = Follower(log)
    follower.read()
    return sorted(follower.arrivals, key=lambda one: one.at_s)


def _middle_rate(arrivals: list[ArrivalLine]) -> float:
    """Arrivals a second without the first and the last part."""
    first, last = int(len(arrivals) * _CUT), int(len(arrivals) * (1 - _CUT))
    return (last - first) / (arrivals[last].at_s - arrivals[first].at_s)


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(line for kind in KINDS for line in _of_kind(result, kind)),
        at_least("slots used, answers after 50 ms", result["utilisation"], 0.98),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _of_kind(result: dict[str, Any], kind: str) -> list[Figure]:
    name, rate, ratio = KINDS[kind], result[f"{kind}_rate"], result[f"{kind}_ratio"]
    met = rate >= _FAST_ENOUGH or ratio >= 0.6
    return [
        Figure(f"{name}, one process", f"{rate:,}/s", f"≥ {_FAST_ENOUGH:,}/s, or 0.6", met),
        Figure(f"{name}, the bare client", f"{result[f'{kind}_bare_rate']:,}/s"),
        Figure(f"{name}, of the bare client's rate", f"{ratio:g}"),
    ]
