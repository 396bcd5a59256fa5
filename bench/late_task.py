"""How long a late high task waits behind a large high one and a low backlog, and its rival does.

20 late tasks of 1,000, one after the other, each handed in by an in-process submit. The delay of a
push is from the start of that submit until the receiver's log has it. The rival is first in first
out: one lane a level, on the same broker, with the same dispatcher.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.backends import anew, backend_settings
from bench.deliveries import account, tell_lost
from bench.figures import Figure, at_least, at_most, exactly
from bench.late import LATE, SLOTS, Late, Played, play, play_rival
from pushlane.core.task import Weights

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_NOTICE_S = 0.25
_OTHER_HIGH_LANES = 1
_HIGH_SHARE = 0.6


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--backlog", type=int, default=100_000, help="of high, and of low pushes")
    parser.add_argument("--full", action="store_true", help="a backlog of 1,000,000 each")
    parser.add_argument("--lates", type=int, default=20, help="late tasks (default 20)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    backlog = 1_000_000 if options.full else options.backlog
    with (
        backend_settings(options.broker, slots=SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-late-") as name,
    ):
        folder = Path(name)
        played = asyncio.run(play(anew(settings), folder, backlog, options.lates))
        rival_s = asyncio.run(play_rival(anew(settings), folder, backlog))
    return {"broker": options.broker, "backlog": backlog, **judge(played, rival_s)}


def judge(played: Played, rival_s: float) -> dict[str, Any]:
    arrivals = played.webhook.arrivals
    lost, duplicates = account([*arrivals, *played.rest.arrivals], played.totals)
    tell_lost(lost)
    lates = played.lates
    begin, end = lates[0].first_s, lates[-1].last_s
    rate = sum(begin <= arrival.at_s < end for arrival in arrivals) / (end - begin)
    due_s = LATE / (due_share() * rate)
    first_push_s = p99([late.first_push_s for late in lates])
    completions = [late.completion_s / due_s for late in lates]
    return {
        "first_push_s": round(first_push_s, 3),
        "bound_s": round(bound_s(rate), 3),
        "fifo_first_push_s": round(rival_s, 2),
        "speedup": round(rival_s / first_push_s, 1),
        "completion_ratio": round(median(completions), 3),
        "completion_ratio_max": round(max(completions), 3),
        "completion_ratio_from_first_push": round(median(_own_ratios(lates, due_s)), 3),
        "submit_s": round(median(late.submitted_s - late.handed_in_s for late in lates), 3),
        "first_pushes_s": [round(late.first_push_s, 4) for late in lates],
        "completions": [round(ratio, 3) for ratio in completions],
        "rate": round(rate),
        "lost": len(lost),
        "duplicates": duplicates,
    }


def _own_ratios(lates: Sequence[Late], due_s: float) -> list[float]:
    return [(late.last_s - late.first_s) / due_s for late in lates]


def due_share() -> float:
    """The late task's part of the sink: its level's (medium is idle), by two tasks of quota 1."""
    weights = Weights()
    return weights.high / (weights.high + weights.low) / (1 + _OTHER_HIGH_LANES)


def bound_s(rate: float) -> float:
    """Time to notice the task, until a slot is free, and for those whose turn is before its own."""
    quota = 1
    return _NOTICE_S + SLOTS / rate + (2 + _OTHER_HIGH_LANES * quota / _HIGH_SHARE) / rate


def p99(values: Sequence[float]) -> float:
    """By nearest rank: of 20 values it is the largest."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_most("first push, p99, s", result["first_push_s"], round(1.2 * result["bound_s"], 3)),
        Figure("first push, first in first out, s", f"{result['fifo_first_push_s']:g}"),
        at_least("times sooner", result["speedup"], 100),
        at_most("all 1,000 arrived, of the time due (median)", result["completion_ratio"], 1.1),
        Figure("the same, the slowest of all", f"{result['completion_ratio_max']:g}"),
        Figure(
            "the same from the first push on (median)",
            f"{result['completion_ratio_from_first_push']}",
        ),
        Figure("submit of 1,000 pushes, s (median)", f"{result['submit_s']:g}"),
        Figure("rate of the sink", f"{result['rate']:,}/s"),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def plot(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(8, 4), layout="constrained")
    axes = drawing.subplots()
    waits = result["first_pushes_s"]
    axes.plot(range(1, len(waits) + 1), waits, "o", color="#2471a3", label="pushlane")
    axes.axhline(result["bound_s"], color="black", linestyle=":", label="bound")
    axes.axhline(result["fifo_first_push_s"], color="#c0392b", label="one lane a level")
    axes.set(yscale="log", xlabel="late task", ylabel="first push, seconds after it was handed in")
    axes.set(xticks=range(1, len(waits) + 1), ylim=(0.01, 4 * result["fifo_first_push_s"]))
    axes.set_title(f"A late high task behind {result['backlog']:,} high pushes")
    axes.legend()
    drawing.savefig(path, dpi=110)
