"""Draws the demo's picture: what each level, task and sink got over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pushlane.cli.demo.arrivals import ArrivalLine, Follower
from pushlane.cli.demo.files import APP, BACKLOG, LATE_TASK, MAIL
from pushlane.cli.demo.report import entitled
from pushlane.cli.demo.scenario import MAIL_SLOTS, NEW_QUOTA, QUOTA_TASK, SLOTS, Played

_BIN_S = 0.25
_COLOURS = {"high": "#c0392b", "medium": "#2471a3", "low": "#7f8c8d"}


def draw(played: Played, path: Path) -> bool:
    """Write the plot; return False when matplotlib is not installed (the extra `plot`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 9), layout="constrained")
    levels, tasks, sinks = figure.subplots(3, 1, sharex=True)
    _draw_levels(levels, played)
    _draw_tasks(tasks, played)
    _draw_sinks(sinks, played)
    for axes in (levels, tasks, sinks):
        _mark(axes, played)
    figure.savefig(path, dpi=120)
    return True


def _bins(
    played: Played, log: Follower, key: Callable[[ArrivalLine], str]
) -> tuple[list[float], list[Counter[str]]]:
    """Return the middles of the bins, in seconds from the start, and how much arrived in each."""
    bins: list[Counter[str]] = [
        Counter() for _ in range(int((played.stopped_at - played.started_at) / _BIN_S))
    ]
    for arrival in log.arrivals:
        place = int((arrival.at_s - played.started_at) / _BIN_S)
        if place < len(bins):
            bins[place][key(arrival)] += 1
    return [(place + 0.5) * _BIN_S for place in range(len(bins))], bins


def _draw_levels(axes: Any, played: Played) -> None:
    times, bins = _bins(played, played.app, lambda arrival: arrival.level)
    for level, due in entitled().items():
        shares = [100 * b[level] / b.total() if b else math.nan for b in bins]
        axes.plot(times, shares, color=_COLOURS[level], label=level)
        axes.axhline(100 * due, color=_COLOURS[level], linestyle=":", linewidth=1)
    axes.set(
        ylabel="share of the sink, %",
        ylim=(0, 80),
        title="Levels at the sink app: measured and entitled (dotted)",
    )
    axes.legend(loc="upper right", ncols=3)


def _draw_tasks(axes: Any, played: Played) -> None:
    times, bins = _bins(played, played.app, lambda arrival: arrival.task)
    for campaign in (*BACKLOG, LATE_TASK):
        task_id = played.tasks[campaign.name].id
        rates = [b[task_id] / _BIN_S for b in bins]
        axes.plot(times, rates, label=f"{campaign.name} ({campaign.level})")
    axes.set(ylabel="pushes/s", title="Tasks of the sink app, as its webhook received them")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(loc="upper right", ncols=2, fontsize="small")


def _draw_sinks(axes: Any, played: Played) -> None:
    for name, slots in ((APP, SLOTS), (MAIL, MAIL_SLOTS)):
        times, bins = _bins(played, played.of_sink(name), lambda arrival: arrival.level)
        rates = [b.total() / _BIN_S for b in bins]
        axes.plot(times, rates, label=f"{name}, {slots} slots")
    start, end = played.rest_at - played.started_at, played.go_on_at - played.started_at
    axes.axvspan(start, end, color="#f0b27a", alpha=0.4, label=f"{MAIL} answers 503")
    axes.set(xlabel="seconds", ylabel="pushes/s", title="Sinks")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(loc="upper right", ncols=3, fontsize="small")


def _mark(axes: Any, played: Played) -> None:
    top = axes.get_ylim()[1]
    for at, text in (
        (played.late_at, " late high task"),
        (played.quota_at, f" {QUOTA_TASK}: quota {NEW_QUOTA}"),
    ):
        place = at - played.started_at
        axes.axvline(place, color="black", linewidth=0.8)
        axes.text(place, top * 0.02, text, fontsize="small", rotation=90, va="bottom", ha="right")
