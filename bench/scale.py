"""What more processes give on a slow sink, and what becomes of pushes when they join and leave.

1, 2, then 4 dispatchers of 50 slots on a webhook that answers after 100 ms, so each could have
500/s; then they leave again, each by SIGTERM, while the others go on. Shares are those of all
processes together, in the order that the receiver's log has, joins and leaves included.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.backends import backend_settings
from bench.backlog import write_task
from bench.deliveries import account, tell_lost
from bench.dispatching import Dispatching, dispatching, drain
from bench.fairness_of import share_error
from bench.figures import Figure, at_least, at_most, exactly, say
from pushlane.cli.demo.arrivals import ArrivalLine, Follower
from pushlane.cli.demo.receiver import running
from pushlane.lanes.backend import connect
from pushlane.lanes.errors import PushlaneError
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Level, Weights

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_SLOTS = 50
_SINK_MS = 100.0
_PROCESSES = (1, 2, 4)
_TASKS_A_LEVEL = 3
_PUSHES = {Level.HIGH: 14_000, Level.MEDIUM: 7_500, Level.LOW: 3_000}
_SETTLE_S = 2.0
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05


class Phase(NamedTuple):
    """So many processes dispatched from Unix time `begin_s` to `end_s`."""

    processes: int
    begin_s: float
    end_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured a phase (default 6)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-scale-") as name,
    ):
        folder = Path(name)
        say("writing the backlog")
        levels = asyncio.run(_write(settings))
        webhook, rest = Follower(folder / "webhook.jsonl"), Follower(folder / "rest.jsonl")
        with running(folder / "webhook.jsonl", _SINK_MS) as url:
            phases = _play(settings, f"webhook:{url}", webhook, options.seconds)
        webhook.read()
        drain(settings, f"log:{folder / 'rest.jsonl'}")
        rest.read()
    return {"broker": options.broker, **judge(webhook.arrivals, rest.arrivals, levels, phases)}


async def _write(settings: Settings) -> dict[str, Level]:
    async with connect(settings) as backend:
        return {
            await write_task(backend, level, _PUSHES[level]): level
            for _ in range(_TASKS_A_LEVEL)
            for level in Level
        }


def _play(settings: Settings, sink: str, log: Follower, measured_s: float) -> list[Phase]:
    """Processes join until there are four, and then leave, one by one."""
    phases = []
    with ExitStack() as ends:
        crew: list[Dispatching] = []
        for count in _PROCESSES:
            while len(crew) < count:
                crew.append(ends.enter_context(dispatching(settings, sink)))
            _wait(lambda: all(each.has_started for each in crew), crew)
            _wait(lambda: bool(log.read() or log.arrivals), crew)
            time.sleep(_SETTLE_S)
            say(f"{count} {'processes' if count > 1 else 'process'}")
            begin_s = time.time()
            time.sleep(measured_s)
            phases.append(Phase(count, begin_s, time.time()))
        for leaving in crew[1:]:
            say("one leaves")
            leaving.stop()
            time.sleep(1)
    return phases


def _wait(reached: Callable[[], bool], crew: Sequence[Dispatching]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        if any(each.has_ended for each in crew) or time.monotonic() > deadline:
            raise PushlaneError("a dispatcher did not start, or nothing arrived")
        time.sleep(_LOOK_EVERY_S)


def judge(
    webhook: Sequence[ArrivalLine],
    rest: Sequence[ArrivalLine],
    levels: dict[str, Level],
    phases: Sequence[Phase],
) -> dict[str, Any]:
    totals = {task: _PUSHES[level] for task, level in levels.items()}
    lost, duplicates = account([*webhook, *rest], totals)
    tell_lost(lost)
    rates = {phase.processes: rate_per_s(webhook, phase) for phase in phases}
    counted = [arrival for arrival in webhook if arrival.at_s >= phases[0].begin_s]
    together = [one for one in counted if phases[-1].begin_s <= one.at_s < phases[-1].end_s]
    _require_backlog(webhook, totals)
    return {
        "rates": {str(count): round(rate) for count, rate in rates.items()},
        "speedup": {str(count): round(rates[count] / rates[1], 2) for count in _PROCESSES[1:]},
        "share_error_max": round(_error(counted, levels), 2),
        "share_error_max_without_joins": round(_error(together, levels), 2),
        "measured": len(counted),
        "lost": len(lost),
        "duplicates": duplicates,
    }


def _require_backlog(log: Sequence[ArrivalLine], totals: dict[str, int]) -> None:
    """Shares mean something only while every task has pushes left."""
    counts = Counter(arrival.task for arrival in log)
    if any(counts[task] >= total for task, total in totals.items()):
        raise PushlaneError("a task ran out of pushes while shares were measured")


def rate_per_s(log: Sequence[ArrivalLine], phase: Phase) -> float:
    came = sum(phase.begin_s <= arrival.at_s < phase.end_s for arrival in log)
    return came / (phase.end_s - phase.begin_s)


def _error(log: Sequence[ArrivalLine], levels: dict[str, Level]) -> float:
    entitled = {level.value: weight / 10 for level, weight in Weights().by_level().items()}
    return share_error([levels[arrival.task].value for arrival in log], entitled)


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(Figure(f"{count} processes", f"{rate:,}/s") for count, rate in result["rates"].items()),
        Figure("2 processes, times the rate of one", f"{result['speedup']['2']:g}"),
        at_least("4 processes, times the rate of one", result["speedup"]["4"], 3.6),
        at_most("share error, picks in any 100", result["share_error_max"], 3),
        Figure("the same without joins and leaves", f"{result['share_error_max_without_joins']:g}"),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
