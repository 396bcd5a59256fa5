"""What one pick of the scheduler costs, from 60 lanes to 100,000: no broker, no sink."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench.figures import Figure
from pushlane.core.task import Level
from pushlane.core.turns import Scheduler

RUNS = ((),)
_LANES = (60, 1_000, 10_000, 100_000)
_PICKS = 200_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the best counts")


def run(options: argparse.Namespace) -> dict[str, Any]:
    best = {lanes: min(_pick_us(lanes) for _ in range(options.rounds)) for lanes in _LANES}
    return {"pick_us": {str(lanes): round(cost_us, 3) for lanes, cost_us in best.items()}}


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        Figure(f"us a pick, {int(lanes):,} lanes", f"{cost_us:.2f}")
        for lanes, cost_us in result["pick_us"].items()
    ]


def _pick_us(lanes: int) -> float:
    scheduler: Scheduler[int] = Scheduler()
    levels = list(Level)
    for lane in range(lanes):
        scheduler.add(lane, levels[lane % len(levels)])
        scheduler.ready(lane)
    pick, charge = scheduler.pick, scheduler.charge
    started = time.perf_counter()
    for _ in range(_PICKS):
        pick()
        charge()
    return (time.perf_counter() - started) / _PICKS * 1e6
