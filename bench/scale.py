"""What more processes give on a slow sink, and what becomes of pushes when they join and leave.

1, 2, 4, then 8 dispatchers of 50 slots on a webhook that answers after 100 ms, so each could have
500/s. Then in turns one leaves, by SIGTERM, and another joins; in the end they leave, while the
others go on. Shares are those of all processes together, in the order that the receiver's log has,
joins and leaves included.
"""

from __future__ import annotations

import argparse
import asyncio
import random
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
from bench.fairness_of import WINDOW, share_error
from bench.figures import Figure, at_least, at_most, exactly, say
from dev.receiver import ArrivalLine, Follower, running
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level, Weights
from pushlane.core.turns import Scheduler
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_SLOTS = 50
_SINK_MS = 100.0
_PROCESSES = (1, 2, 4, 8)
_COMPARED = (2, 4, 8)
_TASKS_A_LEVEL = 3
_SETTLE_S = 2.0
_TURN_S = 3.0
_SPARE = 2.0
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05
_SEED = 1


class Phase(NamedTuple):
    """So many processes dispatched from Unix time `begin_s` to `end_s`."""

    processes: int
    begin_s: float
    end_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured a phase (default 6)")
    parser.add_argument("--turns", type=int, default=8, help="in which one leaves and one joins")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-scale-") as name,
    ):
        folder = Path(name)
        say("writing the backlog")
        tasks = asyncio.run(_write(settings, _needed(options)))
        webhook, rest = Follower(folder / "webhook.jsonl"), Follower(folder / "rest.jsonl")
        with running(folder / "webhook.jsonl", _SINK_MS) as url:
            phases = _play(settings, f"webhook:{url}", webhook, options)
        webhook.read()
        drain(settings, f"log:{folder / 'rest.jsonl'}")
        rest.read()
    return {"broker": options.broker, **judge(webhook.arrivals, rest.arrivals, tasks, phases)}


def _needed(options: argparse.Namespace) -> int:
    """Pushes for the whole time, twice as many as slots could send."""
    phases_s = sum(_PROCESSES) * (options.seconds + _SETTLE_S + _TURN_S)
    turns_s = max(_PROCESSES) * _TURN_S * (options.turns + 3)
    return int(_SPARE * (phases_s + turns_s) * _SLOTS * 1000 / _SINK_MS)


class Written(NamedTuple):
    level: Level
    pushes: int


async def _write(settings: Settings, pushes: int) -> dict[str, Written]:
    """Tasks of all levels that would end at the same time."""
    weights = Weights().by_level()
    sizes = {
        level: int(pushes * weight / sum(weights.values()) / _TASKS_A_LEVEL)
        for level, weight in weights.items()
    }
    async with connect(settings) as backend:
        return {
            await write_task(backend, level, sizes[level]): Written(level, sizes[level])
            for _ in range(_TASKS_A_LEVEL)
            for level in Level
        }


def _play(settings: Settings, sink: str, log: Follower, options: argparse.Namespace) -> list[Phase]:
    """Processes join until there are eight, take turns, and then leave, one by one."""
    phases = []
    with ExitStack() as ends:
        crew: list[Dispatching] = []

        def join() -> None:
            crew.append(ends.enter_context(dispatching(settings, sink)))

        for count in _PROCESSES:
            while len(crew) < count:
                join()
            _wait(lambda: all(each.has_started for each in crew), crew)
            _wait(lambda: bool(log.read() or log.arrivals), crew)
            time.sleep(_SETTLE_S)
            say(f"{count} {'processes' if count > 1 else 'process'}")
            begin_s = time.time()
            time.sleep(options.seconds)
            phases.append(Phase(count, begin_s, time.time()))
        for _ in range(options.turns):
            say("one leaves, one joins")
            crew.pop(0).stop()
            join()
            _wait(lambda: all(each.has_started for each in crew), crew)
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
    tasks: dict[str, Written],
    phases: Sequence[Phase],
) -> dict[str, Any]:
    totals = {task: written.pushes for task, written in tasks.items()}
    levels = {task: written.level for task, written in tasks.items()}
    lost, duplicates = account([*webhook, *rest], totals)
    tell_lost(lost)
    rates = {phase.processes: rate_per_s(webhook, phase) for phase in phases}
    counted = [arrival for arrival in webhook if arrival.at_s >= phases[0].begin_s]
    together = [one for one in counted if phases[-1].begin_s <= one.at_s < phases[-1].end_s]
    _require_backlog(webhook, totals)
    return {
        "rates": {str(count): round(rate) for count, rate in rates.items()},
        "speedup": {str(count): round(rates[count] / rates[1], 2) for count in _COMPARED},
        "share_error_max": round(_error(counted, levels), 2),
        "share_error_max_without_joins": round(_error(together, levels), 2),
        "share_error_merged": merged_error(max(_PROCESSES), len(counted)),
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
    return share_error([levels[arrival.task].value for arrival in log], _entitled())


def _entitled() -> dict[str, float]:
    return {level.value: weight / 10 for level, weight in Weights().by_level().items()}


def merged_error(processes: int, picks: int) -> float:
    """The share error of the schedulers of so many processes alone, merged at random.

    Each begins anywhere in its order, and knows nothing of the others.
    """
    chance = random.Random(_SEED)
    schedulers = []
    for _ in range(processes):
        scheduler: Scheduler[Level] = Scheduler()
        for level in Level:
            scheduler.add(level, level)
            scheduler.ready(level)
        for _ in range(chance.randrange(WINDOW)):
            _next(scheduler)
        schedulers.append(scheduler)
    merged = [_next(chance.choice(schedulers)).value for _ in range(picks)]
    return round(share_error(merged, _entitled()), 2)


def _next(scheduler: Scheduler[Level]) -> Level:
    level = scheduler.pick()
    if level is None:
        raise ValueError("no level is ready")
    scheduler.charge()
    return level


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(Figure(f"{count} processes", f"{rate:,}/s") for count, rate in result["rates"].items()),
        Figure("2 processes, times the rate of one", f"{result['speedup']['2']:g}"),
        at_least("4 processes, times the rate of one", result["speedup"]["4"], 3.6),
        Figure("8 processes, times the rate of one", f"{result['speedup']['8']:g}"),
        at_most("share error, picks in any 100", result["share_error_max"], 3),
        Figure("of 8 without joins and leaves", f"{result['share_error_max_without_joins']:g}"),
        Figure("of 8 orders without errors, simulated", f"{result['share_error_merged']:g}"),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
