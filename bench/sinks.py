"""Several sinks in a process: what each keeps, how well limits hold, how fair apps are.

`isolation` is what two sinks keep while the third one is in trouble (bench/isolation.py).
`utilisation_min` is of three sinks at once that take 100 ms, in the dispatcher's process, each with
50 slots of its own. `limiter_error` is by how much four processes together go over a sink's limit,
in the worst 10 s, and `limiter_used` is the part of it that they used. `app_jain` and `caps_cost`
are of bench/fairness_apps.py and bench/caps.py.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench import fairness_apps
from bench.backends import anew, backend_settings
from bench.caps import caps_cost
from bench.cpu import middle
from bench.deliveries import account, tell_lost
from bench.dispatching import dispatching, drain
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.isolation import NAMES, isolation, knowing, summary
from bench.late import arrived
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.client.client import Client
from pushlane.core.errors import PushlaneError
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_SLOTS = 50
_TAKES_S = 0.1
_LIMIT_PER_S = 500
_LIMITED = "limited"
_PROCESSES = 4
_WINDOW_S = 10.0
_LEASED_S = 3.0  # until each process has its part of the limit


class Counted(NamedTuple):
    """A figure, with what was lost or came twice while it was measured."""

    figure: float
    lost: int
    duplicates: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each case (default 6)")
    parser.add_argument("--rounds", type=int, default=3, help="of all cases (default 3)")
    parser.add_argument("--smoke", action="store_true", help="a few seconds of each, less of all")


def run(options: argparse.Namespace) -> dict[str, Any]:
    seconds, rounds = (3.0, 1) if options.smoke else (options.seconds, options.rounds)
    with backend_settings(options.broker, slots=_SLOTS) as settings:
        alone = isolation(anew(settings), seconds, rounds)
        say("three sinks of 100 ms at once")
        used = _utilisation(anew(settings), 2 * seconds)
        limiter = _limited(anew(settings))
    return {
        "broker": options.broker,
        **summary(alone),
        "limiter_error": round(max(0.0, limiter.figure - 1), 4),
        "limiter_used": limiter.figure,
        "app_jain": _app_jain(options),
        "utilisation_min": used.figure,
        "caps_cost": _caps_cost(options),
        "lost": alone.lost + used.lost + limiter.lost,
        "duplicates": alone.duplicates + used.duplicates + limiter.duplicates,
    }


class _PacedSink:
    """Takes as long for each push, and remembers when each came."""

    batch_size = 1
    mixes_tasks = True
    hosts_code = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrivals: list[ArrivalLine] = []

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        for one in batch:
            line = ArrivalLine(one.push.task_id, one.push.seq, one.level, time.perf_counter())
            self.arrivals.append(line)
        await asyncio.sleep(_TAKES_S)
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return


def _utilisation(settings: Settings, seconds: float) -> Counted:
    """The least used of three sinks, in a process of its own."""
    count = round(_SLOTS / _TAKES_S * seconds)
    totals = asyncio.run(_submit(settings, dict.fromkeys(NAMES, count)))
    own = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=own) as process:
        logs = process.submit(_paced, settings).result()
    lost, duplicates = account([line for log in logs for line in log], totals)
    tell_lost(lost)
    least = min(middle(log, _SLOTS).rate for log in logs) * _TAKES_S / _SLOTS
    return Counted(round(least, 4), len(lost), duplicates)


def _paced(settings: Settings) -> list[list[ArrivalLine]]:
    sinks = {name: _PacedSink(name) for name in NAMES}
    uvloop.run(_drain(settings, sinks))
    return [sink.arrivals for sink in sinks.values()]


async def _drain(settings: Settings, sinks: Mapping[str, _PacedSink]) -> None:
    async with connect(settings) as backend:
        await Dispatcher(backend, sinks, settings, drain=True).run()


async def _submit(settings: Settings, counts: Mapping[str, int]) -> dict[str, int]:
    """A task of so many pushes for each sink; how many pushes each task has."""
    totals = {}
    settings = knowing(settings, counts)
    async with connect(settings) as backend:
        for name, count in counts.items():
            rows = ({"recipient": f"device-{number}"} for number in range(count))
            request = SubmitRequest(source=rows, level=Level.HIGH, sink=(name,), title="title")
            totals[(await submit(backend, settings, request)).task.id] = count
    return totals


def _limited(settings: Settings) -> Counted:
    """Measure what four processes that could do far more use of a limit, in the worst 10 s."""
    say(f"four processes and a limit of {_LIMIT_PER_S}/s")
    count = round(_LIMIT_PER_S * (_WINDOW_S + _LEASED_S) * 2)
    with tempfile.TemporaryDirectory(prefix="pushlane-limit-") as folder:
        log = Follower(Path(folder) / "limited.jsonl")
        sink = SinkSettings(kind="log", options={"path": str(log.path)})
        settings = settings.but(sinks={_LIMITED: sink})
        totals = asyncio.run(_submit_limited(settings, count))
        with ExitStack() as ends:
            crew = [ends.enter_context(dispatching(settings, "null")) for _ in range(_PROCESSES)]
            asyncio.run(arrived(log, 1, lambda: any(each.has_ended for each in crew)))
            time.sleep(_LEASED_S + _WINDOW_S)
        log.read()
        limited = [line.at_s for line in log.arrivals]
        asyncio.run(_limit(settings, None))
        drain(settings, "null")
        log.read()
    lost, duplicates = account(log.arrivals, totals)
    tell_lost(lost)
    used = most_within(limited, _WINDOW_S) / (_LIMIT_PER_S * _WINDOW_S)
    return Counted(round(used, 4), len(lost), duplicates)


async def _submit_limited(settings: Settings, count: int) -> dict[str, int]:
    await _limit(settings, _LIMIT_PER_S)
    return await _submit(settings, {_LIMITED: count})


async def _limit(settings: Settings, rate_per_s: float | None) -> None:
    """Set the limit, or take it away."""
    async with Client(settings) as client:
        await client.set_limit(f"sink/{_LIMITED}", rate_per_s=rate_per_s)


def most_within(times_s: Sequence[float], window_s: float) -> int:
    """The most arrivals within so many seconds."""
    ordered = sorted(times_s)
    return max(
        (bisect_left(ordered, at_s + window_s) - first for first, at_s in enumerate(ordered)),
        default=0,
    )


def _app_jain(options: argparse.Namespace) -> float:
    """Jain's index over two apps: 1,000 tasks of one against one task of the other."""
    say("1,000 tasks of an app against one of another")
    tasks = 100 if options.smoke else 1_000
    return _part_of("app_jain", fairness_apps.measure(options.broker, tasks))


def _caps_cost(options: argparse.Namespace) -> float:
    """The part of its rate that a dispatcher loses to frequency caps."""
    say("with frequency caps and without")
    less = {"rounds": 1, "pushes": 10_000} if options.smoke else {}
    return _part_of("caps_cost", caps_cost(options.broker, **less))


def _part_of(key: str, found: Mapping[str, Any]) -> float:
    if found.get("lost"):
        raise PushlaneError(f"{found['lost']} pushes were lost while {key} was measured")
    return float(found[key])


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_least("the others keep, the least of all cases", result["isolation"], 0.99),
        *(Figure(f"one {case}: they keep", f"{kept:g}") for case, kept in result["kept"].items()),
        *(
            Figure(f"one {case}: their low tasks keep", f"{kept:g}")
            for case, kept in result["low_kept"].items()
        ),
        at_least("three sinks of 100 ms at once, least used", result["utilisation_min"], 0.98),
        at_most("four processes over a sink's limit", result["limiter_error"], 0.02),
        Figure("part of the limit that they used", f"{result['limiter_used']:g}"),
        at_least(
            "Jain's index, 1,000 tasks of an app against one of another", result["app_jain"], 0.99
        ),
        at_most("part of the rate that frequency caps cost", result["caps_cost"], 0.15),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
