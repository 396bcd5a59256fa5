"""The demo's figures, computed from what the receivers logged and from nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pushlane.cli.demo.arrivals import ArrivalLine
from pushlane.cli.demo.files import BACKLOG, LATE_TASK
from pushlane.cli.demo.scenario import NEW_QUOTA, QUOTA_TASK, Played
from pushlane.lanes.task import Level, Weights


def report(played: Played, plot: str | None) -> dict[str, Any]:
    """Return the figures by name.

    Shares are fractions of 1; times are seconds after the late task was handed in.
    `queue_per_level_is_at_least` says that the rival was stopped before its late task came through:
    its figures are then the time that was waited.
    """
    webhook, rival = played.webhook, played.rival
    measured = [arrival for arrival in webhook.arrivals if arrival.at_s <= played.stopped_at]
    levels = Counter(arrival.level for arrival in measured)
    late = played.tasks[LATE_TASK.name].id
    rival_first = rival.first(played.rival_late_id) or played.rival_stopped_at
    rival_last = (
        rival.last(played.rival_late_id) if played.is_rival_through else played.rival_stopped_at
    )
    arrived = [*webhook.arrivals, *played.rest.arrivals]
    distinct = {(arrival.task, arrival.seq) for arrival in arrived}
    submitted = sum(task.total or 0 for task in played.tasks.values())
    return {
        "share": {level.value: round(levels[level] / len(measured), 4) for level in Level},
        "entitled": entitled(),
        "late_first_push_s": _after(played.late_at, webhook.first(late)),
        "late_completion_s": _after(played.late_at, webhook.last(late)),
        "queue_per_level_first_push_s": _after(played.rival_late_at, rival_first),
        "queue_per_level_completion_s": _after(played.rival_late_at, rival_last),
        "queue_per_level_is_at_least": not played.is_rival_through,
        "quota_share_before": _quota_share(
            played, [arrival for arrival in measured if arrival.at_s < played.quota_at]
        ),
        "quota_share_after": _quota_share(
            played, [arrival for arrival in measured if arrival.at_s >= played.quota_at]
        ),
        "rate_per_s": round(len(measured) / (played.stopped_at - played.started_at), 1),
        "submitted": submitted,
        "lost": submitted - len(distinct),
        "duplicates": len(arrived) - len(distinct),
        "plot": plot,
    }


def entitled() -> dict[str, float]:
    weights = Weights().by_level()
    return {level.value: weight / sum(weights.values()) for level, weight in weights.items()}


def _quota_share(played: Played, arrivals: Sequence[ArrivalLine]) -> float:
    """Return the part of the medium level that the task with the new quota had."""
    counts = Counter(arrival.task for arrival in arrivals)
    mediums = sum(counts[played.tasks[c.name].id] for c in BACKLOG if c.level is Level.MEDIUM)
    return round(counts[played.tasks[QUOTA_TASK].id] / max(1, mediums), 4)


def _after(start: float, end: float | None) -> float:
    return round((end or start) - start, 4)


def print_report(console: Console, report: dict[str, Any]) -> None:
    table = Table(title="The demo, by the receivers' own logs", title_justify="left")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("beside", justify="right")
    for level, due in report["entitled"].items():
        table.add_row(f"share of {level}", f"{report['share'][level]:.1%}", f"entitled {due:.0%}")
    than = "> " if report["queue_per_level_is_at_least"] else ""
    table.add_row(
        "late high task, first push",
        f"{report['late_first_push_s']:.3f} s",
        f"one queue a level {than}{report['queue_per_level_first_push_s']:.1f} s",
    )
    table.add_row(
        "late high task, all 1,000",
        f"{report['late_completion_s']:.2f} s",
        f"one queue a level {than}{report['queue_per_level_completion_s']:.1f} s",
    )
    table.add_row(
        f"{QUOTA_TASK}'s part of its level",
        f"{report['quota_share_before']:.0%} → {report['quota_share_after']:.0%}",
        f"quota 1 → {NEW_QUOTA}: 50% → 75%",
    )
    rate = f"webhook {report['rate_per_s']:,.0f}/s"
    table.add_row("pushes submitted", f"{report['submitted']:,}", rate)
    table.add_row("lost", str(report["lost"]), "0")
    table.add_row("duplicates", str(report["duplicates"]), "0")
    console.print(table)
    if report["plot"]:
        console.print(f"share over time: {report['plot']}", soft_wrap=True)
    else:
        console.print("no plot: pip install 'pushlane[demo]' for matplotlib")
