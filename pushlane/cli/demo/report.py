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

    Shares are fractions of 1, of the sink app; times are seconds after the late task was handed in.
    `queue_per_level_is_at_least` says that the rival was stopped before its late task came through:
    its figures are then the time that was waited.
    """
    app, rival = played.app, played.rival
    measured = [arrival for arrival in app.arrivals if arrival.at_s <= played.stopped_at]
    late = played.tasks[LATE_TASK.name].id
    rival_first = rival.first(played.rival_late_id) or played.rival_stopped_at
    rival_last = (
        rival.last(played.rival_late_id) if played.is_rival_through else played.rival_stopped_at
    )
    arrived = [*app.arrivals, *played.mail.arrivals, *played.rest.arrivals]
    distinct = {(arrival.task, arrival.seq) for arrival in arrived}
    submitted = sum(task.total or 0 for task in played.tasks.values())
    return {
        "share": _shares(measured),
        "entitled": entitled(),
        "late_first_push_s": _after(played.late_at, app.first(late)),
        "late_completion_s": _after(played.late_at, app.last(late)),
        "queue_per_level_first_push_s": _after(played.rival_late_at, rival_first),
        "queue_per_level_completion_s": _after(played.rival_late_at, rival_last),
        "queue_per_level_is_at_least": not played.is_rival_through,
        "quota_share_before": _quota_share(
            played, [arrival for arrival in measured if arrival.at_s < played.quota_at]
        ),
        "quota_share_after": _quota_share(
            played, [arrival for arrival in measured if arrival.at_s >= played.quota_at]
        ),
        **_while_mail_rests(played, measured),
        "rate_per_s": round(len(measured) / (played.stopped_at - played.started_at), 1),
        "submitted": submitted,
        "lost": submitted - len(distinct),
        "duplicates": len(arrived) - len(distinct),
        "plot": plot,
    }


def entitled() -> dict[str, float]:
    weights = Weights().by_level()
    return {level.value: weight / sum(weights.values()) for level, weight in weights.items()}


def _shares(arrivals: Sequence[ArrivalLine]) -> dict[str, float]:
    levels = Counter(arrival.level for arrival in arrivals)
    return {level.value: round(levels[level] / max(1, len(arrivals)), 4) for level in Level}


def _while_mail_rests(played: Played, measured: Sequence[ArrivalLine]) -> dict[str, Any]:
    """Return what the sink app had while the other one rested, beside all other time.

    `mail_goes_on_s` is how long after its return the sink mail had its first push.
    """
    meanwhile = [one for one in measured if played.rest_at <= one.at_s < played.go_on_at]
    rested_s = played.go_on_at - played.rest_at
    else_s = played.stopped_at - played.started_at - rested_s
    per_s = (len(measured) - len(meanwhile)) / else_s
    mail = [one.at_s for one in played.mail.arrivals]
    back = [at_s for at_s in mail if at_s >= played.go_on_at]
    return {
        "mail_rested_s": round(rested_s, 1),
        "mail_goes_on_s": round(min(back) - played.go_on_at, 1) if back else None,
        "mail_per_s_while_it_rested": round(
            (len(mail) - len(back) - _before(played)) / rested_s, 1
        ),
        "app_rate_kept": round(len(meanwhile) / rested_s / per_s, 3),
        "app_share_meanwhile": _shares(meanwhile),
    }


def _before(played: Played) -> int:
    return sum(one.at_s < played.rest_at for one in played.mail.arrivals)


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
    shares = " / ".join(f"{share:.0%}" for share in report["app_share_meanwhile"].values())
    rested = f"while mail rests {report['mail_rested_s']:g} s"
    table.add_row(f"app's rate {rested}", f"{report['app_rate_kept']:.2f}", "else 1")
    table.add_row("high, medium, low at app meanwhile", shares, "60% / 30% / 10%")
    rate = f"app {report['rate_per_s']:,.0f}/s"
    table.add_row("pushes submitted", f"{report['submitted']:,}", rate)
    table.add_row("lost", str(report["lost"]), "0")
    table.add_row("duplicates", str(report["duplicates"]), "0")
    console.print(table)
    if report["plot"]:
        console.print(f"share over time: {report['plot']}", soft_wrap=True)
    else:
        console.print("no plot: pip install 'pushlane[demo]' for matplotlib")
