"""Draws the demo's picture: the share of the sink that each task got over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pushlane.cli.demo.arrivals import ArrivalLine
from pushlane.cli.demo.files import BACKLOG, LATE_TASK
from pushlane.cli.demo.report import entitled
from pushlane.cli.demo.scenario import NEW_QUOTA, QUOTA_TASK, Played

_BIN_S = 0.25
_COLOURS = {"high": "#c0392b", "medium": "#2471a3", "low": "#7f8c8d"}


def draw(played: Played, path: Path) -> bool:
    """Write the plot; return False when matplotlib is not installed (the extra `plot`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 7), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    _draw_levels(top, played)
    _draw_tasks(bottom, played)
    for axes in (top, bottom):
        _mark(axes, played)
    figure.savefig(path, dpi=120)
    return True


def _bins(
    played: Played, key: Callable[[ArrivalLine], str]
) -> tuple[list[float], list[Counter[str]]]:
    """Return the middles of the bins, in seconds from the start, and how much arrived in each."""
    bins: list[Counter[str]] = [
        Counter() for _ in range(int((played.stopped_at - played.started_at) / _BIN_S))
    ]
    for arrival in played.webhook.arrivals:
        place = int((arrival.at_s - played.started_at) / _BIN_S)
        if place < len(bins):
            bins[place][key(arrival)] += 1
    return [(place + 0.5) * _BIN_S for place in range(len(bins))], bins


def _draw_levels(axes: Any, played: Played) -> None:
    times, bins = _bins(played, lambda arrival: arrival.level)
    for level, due in entitled().items():
        shares = [100 * b[level] / b.total() if b else math.nan for b in bins]
        axes.plot(times, shares, color=_COLOURS[level], label=level)
        axes.axhline(100 * due, color=_COLOURS[level], linestyle=":", linewidth=1)
    axes.set(
        ylabel="share of the sink, %", ylim=(0, 80), title="Levels: measured and entitled (dotted)"
    )
    axes.legend(loc="upper right", ncols=3)


def _draw_tasks(axes: Any, played: Played) -> None:
    times, bins = _bins(played, lambda arrival: arrival.task)
    for campaign in (*BACKLOG, LATE_TASK):
        task_id = played.tasks[campaign.name].id
        rates = [b[task_id] / _BIN_S for b in bins]
        axes.plot(times, rates, label=f"{campaign.name} ({campaign.level})")
    axes.set(xlabel="seconds", ylabel="pushes/s", title="Tasks, as the webhook received them")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(loc="upper right", ncols=2, fontsize="small")


def _mark(axes: Any, played: Played) -> None:
    top = axes.get_ylim()[1]
    for at, text in (
        (played.late_at, " late high task"),
        (played.quota_at, f" {QUOTA_TASK}: quota {NEW_QUOTA}"),
    ):
        place = at - played.started_at
        axes.axvline(place, color="black", linewidth=0.8)
        axes.text(place, top * 0.02, text, fontsize="small", rotation=90, va="bottom", ha="right")
