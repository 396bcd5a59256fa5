"""How fairly levels and tasks share the sink, in the order that the `log` sink receives.

20 tasks a level, each on a lane of its own and all written before the dispatcher starts. Measured
from when every task was seen once until the first one has nothing left: while all are backlogged.
With `--apps` it is 1,000 tasks of one app against one task of another, in one level.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench import fairness_apps
from bench.backends import backend_settings
from bench.backlog import write_task
from bench.deliveries import account, tell_lost
from bench.dispatching import drain
from bench.fairness_of import jain, longest_gap, share_error
from bench.figures import Figure, at_least, at_most, exactly
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.core.task import Level, Weights
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--tasks", type=int, default=20, help="tasks a level (default 20)")
    parser.add_argument("--pushes", type=int, default=1_000, help="pushes a task (default 1000)")
    parser.add_argument("--apps", action="store_true", help="between apps instead")
    parser.add_argument("--smoke", action="store_true", help="with --apps: a tenth of the tasks")
    parser.add_argument("--app-quota", type=int, default=1, help="with --apps: of the one task's")


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.apps:
        tasks = 100 if options.smoke else 1_000
        return fairness_apps.measure(options.broker, tasks, quota=options.app_quota)
    with (
        backend_settings(options.broker) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-fairness-") as folder,
    ):
        levels = asyncio.run(submit(settings, options.tasks, options.pushes))
        path = Path(folder) / "deliveries.jsonl"
        drain(settings, f"log:{path}")
        log = list(Follower(path).read())
    result = judge(log, levels, options.pushes)
    return {"broker": options.broker, "tasks_a_level": options.tasks, "pushes": len(log), **result}


async def submit(settings: Settings, tasks: int, pushes: int) -> dict[str, Level]:
    """Write all tasks; returns the level of each."""
    levels: dict[str, Level] = {}
    async with connect(settings) as backend:
        for _ in range(tasks):
            for level in Level:
                levels[await write_task(backend, level, pushes)] = level
    return levels


def judge(log: list[ArrivalLine], levels: dict[str, Level], pushes: int) -> dict[str, Any]:
    """The figures of one run, over the part of the log in which every task had a backlog."""
    lost, duplicates = account(log, dict.fromkeys(levels, pushes))
    tell_lost(lost)
    measured = while_backlogged([arrival.task for arrival in log], len(levels), pushes)
    by_level = [levels[task].value for task in measured]
    weights = Weights().by_level()
    entitled = {level.value: weight / sum(weights.values()) for level, weight in weights.items()}
    counts = Counter(measured)
    jains = {
        level.value: round(jain(counts[task] for task in levels if levels[task] is level), 4)
        for level in Level
    }
    return {
        "measured": len(measured),
        "share_error_max": round(share_error(by_level, entitled), 3),
        "gap_max": {level.value: longest_gap(by_level, level.value) for level in Level},
        "jain": min(jains.values()),
        "jain_by_level": jains,
        "lost": len(lost),
        "duplicates": duplicates,
    }


def while_backlogged(tasks: list[str], how_many: int, pushes: int) -> list[str]:
    """From when all tasks were seen once until the first has been served for the last time."""
    seen: Counter[str] = Counter()
    start = 0
    for place, task in enumerate(tasks):
        seen[task] += 1
        if len(seen) == how_many and not start:
            start = place + 1
        if seen[task] == pushes:
            return tasks[start:place]
    return tasks[start:]


def figures(result: dict[str, Any]) -> list[Figure]:
    if "app_jain" in result:
        return fairness_apps.figures(result)
    gaps = [
        at_most(f"longest gap, {level}", result["gap_max"][level.value], goal)
        for level, goal in zip(Level, (2, 4, 10), strict=True)
    ]
    return [
        at_most("share error, picks in any 100", result["share_error_max"], 1),
        *gaps,
        at_least("Jain's index, tasks within a level (least)", result["jain"], 0.99),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
