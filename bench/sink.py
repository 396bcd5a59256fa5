"""How much of a sink's capacity is used: a slow webhook, and one that answers at once.

The slow one answers after 100 ms, so 50 slots could have 500/s of it. The fast one is measured
without TLS and with it, beside each bare loop of bench/bare_client.py with as many requests at
once, on the same receiver, in turns. A rate is that of the middle of a run, by the receiver's log;
so is the CPU time a push, of the process that sends and of the receiver. Where the receiver took
more than 45 % of a core the round is told: it may have limited who sent.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.bare_client import CLIENTS, LOOPS
from bench.bare_client import TASK as BARE_TASK
from bench.beside import (
    BARE,
    OURS,
    Measured,
    Runs,
    busy,
    busy_figures,
    receiver_figures,
    require_enough,
    summary,
    with_cpu,
)
from bench.certificates import Certificates, make_certificates, trusting
from bench.cpu import CpuMeter, middle, run_metered
from bench.deliveries import Account, account, tell_lost
from bench.dispatching import drain, drain_metered
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
_TASKS = 4
_WAYS = {"": "", "tls_": " with TLS"}


class _Arrived(NamedTuple):
    log: list[ArrivalLine]
    account: Account


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=5, help="of the fast sink (default 5)")
    parser.add_argument("--pushes", type=int, default=60_000, help="a round (default 60000)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    require_enough(options.rounds, options.pushes)
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-sink-") as folder,
    ):
        certificates = make_certificates(Path(folder))
        say("a webhook that answers after 100 ms")
        slow = _slow(settings, Path(folder))
        accounts = [slow.account]
        runs: dict[str, dict[str, list[Measured]]] = {way: defaultdict(list) for way in _WAYS}
        for _ in range(options.rounds):
            for way, title in _WAYS.items():
                for name in (OURS, *CLIENTS):
                    with tempfile.TemporaryDirectory(prefix="pushlane-sink-") as own:
                        tls = certificates if way else None
                        measured, found = _run(settings, name, options.pushes, Path(own), tls)
                    runs[way][name].append(measured)
                    accounts += [found] if name == OURS else []
                    say(f"{name}{title}: {measured}")
    return {
        "broker": options.broker,
        "utilisation": round(middle(slow.log, _SLOTS).rate * _SLOW_MS / 1000 / _SLOTS, 4),
        **_judge(runs),
        "lost": sum(len(one.lost) for one in accounts),
        "duplicates": sum(one.duplicates for one in accounts),
    }


def _judge(runs: Mapping[str, Runs]) -> dict[str, Any]:
    result: dict[str, Any] = {"bare_client": BARE, "receiver_busy": {}}
    for way, of_way in runs.items():
        result |= summary(of_way, way, "bare_client_rate")
        result["receiver_busy"] |= busy(of_way, _WAYS[way])
    return result


def _slow(settings: Settings, folder: Path) -> _Arrived:
    own, log = anew(settings), folder / "slow.jsonl"
    totals = asyncio.run(_write(own, _SLOW_PUSHES))
    with running(log, _SLOW_MS) as url:
        drain(own, f"webhook:{url}")
    return _arrived(log, totals)


def _run(
    settings: Settings, name: str, pushes: int, folder: Path, tls: Certificates | None
) -> tuple[Measured, Account]:
    """Send so many pushes to a fast receiver: ours, or a bare client of this name."""
    own, log = anew(settings), folder / "arrivals.jsonl"
    totals = asyncio.run(_write(own, pushes)) if name == OURS else {BARE_TASK: pushes}
    with fast_receiver(log, certificates=tls) as receiver, CpuMeter(receiver.pid) as receiver_cpu:
        if name == OURS:
            sender = drain_metered(own, f"webhook:{receiver.url}", tls)
        else:
            command = [sys.executable, "-m", "bench.bare_client", name, receiver.url]
            sender = run_metered([*command, str(pushes), str(_SLOTS)], trusting(tls))
    log_of_run, found = _arrived(log, totals)
    return Measured.of(middle(log_of_run, _SLOTS), sender, receiver_cpu), found


async def _write(settings: Settings, pushes: int) -> dict[str, int]:
    """Some tasks of the same level, with so many pushes together."""
    async with connect(settings) as backend:
        each = pushes // _TASKS
        return {await write_task(backend, Level.HIGH, each): each for _ in range(_TASKS)}


def _arrived(path: Path, totals: dict[str, int]) -> _Arrived:
    log = Follower(path)
    log.read()
    found = account(log.arrivals, totals)
    tell_lost(found.lost)
    return _Arrived(log.arrivals, found)


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_least("50 slots of 100 ms, of 500/s", result["utilisation"], 0.98),
        *(line for way in _WAYS for line in _of_way(result, way)),
        *busy_figures(result),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _of_way(result: dict[str, Any], way: str) -> list[Figure]:
    if f"{way}rate" not in result:
        return []
    what = f"webhook that answers at once{_WAYS[way]}"
    shown = [Figure(what, with_cpu(result, f"{way}rate", f"{way}cpu_us"))]
    for name in CLIENTS:
        named = way if name == BARE else f"{way}{name}_"
        bare, ratio = f"{named}bare_client_rate", f"{named}ratio"
        if ratio not in result:
            continue
        title = f"{LOOPS[name]}{_WAYS[way]}"
        of_bare = f"ours, of the rate of the {title} (median of ratios)"
        shown += [
            Figure(title, with_cpu(result, bare, f"{named}bare_cpu_us")),
            at_least(of_bare, result[ratio], 0.6 if way else 0.75)
            if name == BARE
            else Figure(of_bare, f"{result[ratio]:g}"),
        ]
    return [*shown, *receiver_figures(result, way, what)]
