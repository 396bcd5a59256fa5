"""Shows the demo, live and in the end, by what the receivers logged, and by nothing else."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dev.demo import (
    ALL,
    APP,
    BACKLOG,
    LATE_TASK,
    MAIL,
    MAIL_SLOTS,
    NEW_QUOTA,
    QUOTA_TASK,
    SLOTS,
    Played,
)
from dev.receiver import ArrivalLine, Follower
from pushlane.core.task import Level, Weights


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
    late = [at_s for at_s in mail if played.rest_at <= at_s < played.go_on_at]
    back = [at_s for at_s in mail if at_s >= played.go_on_at]
    return {
        "mail_rested_s": round(rested_s, 1),
        "mail_goes_on_s": round(min(back) - played.go_on_at, 1) if back else None,
        "mail_per_s_while_it_rested": round(len(late) / rested_s, 1),
        "app_rate_kept": round(len(meanwhile) / rested_s / per_s, 3),
        "app_share_meanwhile": _shares(meanwhile),
    }


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
        table.add_row(f"share of {level}", f"{report['share'][level]:.1%}", f"fair share {due:.0%}")
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
        console.print("no plot: pip install -e '.[demo]' for matplotlib")


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
        title="Levels at the sink app: measured and fair (dotted)",
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


_WINDOW_S = 2.0
_BAR = 20
_STYLES = {Level.HIGH: "red", Level.MEDIUM: "cyan", Level.LOW: ""}


def view(played: Played, phase: str) -> RenderableType:
    """Return what is to be seen now: a table of the tasks, or how the rival's late task waits."""
    if phase != "one queue a level":
        return Group(_tasks(played), _levels(played), _event_lines(played))
    counts = played.rival.counts
    late = counts[played.rival_late_id]
    waited = time.time() - played.rival_late_at if played.rival_late_at else 0.0
    return Text(
        f"one queue a level: {counts.total():,} delivered; of the late task "
        f"{late:,} of {LATE_TASK.pushes:,} after {waited:.0f} s"
    )


def _tasks(played: Played) -> Table:
    """Return a table of the tasks, with what the webhooks got in the last two seconds."""
    table = Table(title="What the webhooks receive", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("sink", "task", "level"):
        table.add_column(heading)
    for heading in ("quota", "left", "last 2 s"):
        table.add_column(heading, justify="right")
    table.add_column("of the sink", min_width=5 + _BAR)
    latest = {name: _recent(played, name) for name in (APP, MAIL)}
    delivered = played.app.counts + played.mail.counts + played.rest.counts
    for campaign in ALL:
        task = played.tasks.get(campaign.name)
        if task is None:
            continue
        quota = NEW_QUOTA if campaign.name == QUOTA_TASK and played.quota_at else task.quota
        recent = latest[campaign.sink]
        share = recent[task.id] / max(1, recent.total())
        table.add_row(
            campaign.sink,
            campaign.name,
            campaign.level.value,
            "pool" if task.pooled else str(quota),
            f"{campaign.pushes - delivered[task.id]:,}",
            f"{recent[task.id] / _WINDOW_S:,.0f}/s",
            f"{share:4.0%} {'█' * round(share * _BAR)}",
            style="bold yellow" if campaign is LATE_TASK else _STYLES[campaign.level],
        )
    return table


def _levels(played: Played) -> Text:
    """Return what each level got of the sink app in the last two seconds, beside its weight."""
    levels = {
        played.tasks[one.name].id: one.level
        for one in (*BACKLOG, LATE_TASK)
        if one.name in played.tasks
    }
    got: Counter[Level] = Counter()
    for task_id, pushes in _recent(played, APP).items():
        got[levels[task_id]] += pushes
    text = Text(f" {APP} by level, weights 6:3:1:")
    for level in Level:
        text.append(f"  {level} {got[level] / max(1, got.total()):.0%}", _STYLES[level])
    return text


def _recent(played: Played, sink: str) -> Counter[str]:
    since = time.time() - _WINDOW_S
    arrivals = reversed(played.of_sink(sink).arrivals)
    return Counter(one.task for one in takewhile(lambda one: one.at_s >= since, arrivals))


def _events(played: Played) -> Iterator[tuple[float, str]]:
    """Yield what has happened so far, and when, in Unix seconds; 0 is what is to come."""
    late = played.tasks.get(LATE_TASK.name)
    first = played.app.first(late.id) if late else None
    came = f"; its first push arrives {first - played.late_at:.2f} s later" if first else ""
    yield played.late_at, f"{LATE_TASK.name} is submitted last{came}"
    yield played.rest_at, f"{MAIL} answers 503 and rests; {APP} goes on as it was"
    yield played.quota_at, f"{QUOTA_TASK} has the quota {NEW_QUOTA}: what waits is re-ordered"
    yield played.go_on_at, f"{MAIL} answers again"


def _event_lines(played: Played) -> Text:
    lines = [
        f" after {at_s - played.started_at:.0f} s: {text}" for at_s, text in _events(played) if at_s
    ]
    return Text("\n".join(lines), style="bold")
