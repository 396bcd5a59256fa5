"""Times the start of commands, beside the import of typer, and of a dispatcher after a kill.

Whole processes, one after the other in turns: `python -c "import typer"`, `tasks` and `dispatch
--drain` on a store without a push. Then a dispatcher with a backlog is killed (SIGKILL) and another
is started at once: until its first push, by the log of the sink; the same with a backlog on each
of many lanes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.backends import anew, backend_settings, environment
from bench.backlog import write_task, write_tasks
from bench.dispatching import Dispatching
from bench.figures import Figure, at_most, say
from dev.receiver import Follower
from pushlane.backends.backend import connect
from pushlane.core.task import Level
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_RATIO = 2.0
_AGAIN_S = 0.5
_OF_MANY_S = 3.0
_PUSHES_A_LANE = 200
_PUSHES = 400_000
_LOOK_S = 0.005
_PATIENCE_S = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--rounds", type=int, default=15, help="of which the median counts")
    parser.add_argument("--kills", type=int, default=5, help="of which the median counts")
    parser.add_argument("--lanes", type=int, default=1_000, help="of a start with many lanes")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with backend_settings(options.broker) as settings:
        took = _starts(settings, options.rounds)
        say(f"killing a dispatcher {options.kills} times")
        asyncio.run(_fill(settings))
        again_s = _first_pushes(settings, options.kills)
        many = anew(settings)
        say(f"the same with {options.lanes:,} lanes")
        asyncio.run(_fill_many(many, options.lanes))
        of_many_s = _first_pushes(many, options.kills)
    base_s = statistics.median(took["typer"])
    ratios = {
        f"{name}_ratio": round(statistics.median(took[name]) / base_s, 2)
        for name in ("tasks", "dispatch")
    }
    return {
        "broker": options.broker,
        "typer_s": round(base_s, 3),
        **ratios,
        "first_push_s": round(statistics.median(again_s), 2),
        "first_push_s_most": round(max(again_s), 2),
        "lanes": options.lanes,
        "first_push_of_many_s": round(statistics.median(of_many_s), 2),
        "first_push_of_many_s_most": round(max(of_many_s), 2),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        Figure('`python -c "import typer"`, s', f"{result['typer_s']:g}"),
        at_most("`tasks`, of that", result["tasks_ratio"], _RATIO),
        at_most("`dispatch --drain`, of that", result["dispatch_ratio"], _RATIO),
        at_most("from a kill to the next push, s (median)", result["first_push_s"], _AGAIN_S),
        Figure("the same, the longest", f"{result['first_push_s_most']:g}"),
        *_figures_of_many(result),
    ]


def _figures_of_many(result: dict[str, Any]) -> list[Figure]:
    if "lanes" not in result:  # it was measured before
        return []
    return [
        at_most(
            f"the same with {result['lanes']:,} lanes (median)",
            result["first_push_of_many_s"],
            _OF_MANY_S,
        ),
        Figure("the longest of these", f"{result['first_push_of_many_s_most']:g}"),
    ]


def _starts(settings: Settings, rounds: int) -> dict[str, list[float]]:
    asyncio.run(_touch(settings))
    commands = {
        "typer": ["-c", "import typer"],
        "tasks": ["-m", "pushlane", "tasks"],
        "dispatch": ["-m", "pushlane", "dispatch", "--drain", "--sink", "null"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            started_s = time.perf_counter()
            subprocess.run(
                [sys.executable, *words],
                env=environment(settings),
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            took[name].append(time.perf_counter() - started_s)
    return took


async def _touch(settings: Settings) -> None:
    """Make what a first connect makes."""
    async with connect(settings):
        return


def _first_pushes(settings: Settings, kills: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="pushlane-start-") as folder:
        log = Path(folder) / "deliveries.jsonl"
        follower, took = Follower(log), []
        process = Dispatching(settings, f"log:{log}")
        try:
            for _ in range(kills):
                _await_push(follower)
                process.kill()
                list(follower.read())
                started_s = time.monotonic()
                process = Dispatching(settings, f"log:{log}")
                _await_push(follower)
                took.append(time.monotonic() - started_s)
        finally:
            process.stop()
    return took


async def _fill(settings: Settings) -> None:
    async with connect(settings) as backend:
        await write_task(backend, Level.HIGH, _PUSHES)


async def _fill_many(settings: Settings, lanes: int) -> None:
    async with connect(settings) as backend:
        await write_tasks(backend, lanes, _PUSHES_A_LANE)


def _await_push(follower: Follower) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not list(follower.read()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no push in {_PATIENCE_S:g} s")
        time.sleep(_LOOK_S)
