"""Shows on the terminal what happens while the demo plays."""

from __future__ import annotations

import time
from collections import Counter
from itertools import takewhile

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pushlane.cli.demo.files import ALL, APP, LATE_TASK, MAIL
from pushlane.cli.demo.scenario import NEW_QUOTA, QUOTA_TASK, Played

_WINDOW_S = 2.0


def view(played: Played, phase: str) -> RenderableType:
    """Return what is to be seen now: a table of the tasks, or how the rival's late task waits."""
    if phase == "one queue a level":
        return Text(_rival(played))
    return Group(_tasks(played), Text(_event(played)))


def _tasks(played: Played) -> Table:
    """Return a table of the tasks, with what the webhooks got in the last two seconds."""
    table = Table(title="What the webhooks receive", title_justify="left")
    for heading in ("sink", "task", "level"):
        table.add_column(heading)
    for heading in ("quota", "pushes", "delivered", "last 2 s", "of the sink"):
        table.add_column(heading, justify="right")
    latest = {name: _recent(played, name) for name in (APP, MAIL)}
    delivered = played.app.counts + played.mail.counts + played.rest.counts
    for campaign in ALL:
        task = played.tasks.get(campaign.name)
        if task is None:
            continue
        quota = NEW_QUOTA if campaign.name == QUOTA_TASK and played.quota_at else task.quota
        recent = latest[campaign.sink]
        table.add_row(
            campaign.sink,
            campaign.name,
            campaign.level.value,
            "pool" if task.pooled else str(quota),
            f"{campaign.pushes:,}",
            f"{delivered[task.id]:,}",
            f"{recent[task.id] / _WINDOW_S:,.0f}/s",
            f"{recent[task.id] / max(1, recent.total()):.0%}",
        )
    return table


def _recent(played: Played, sink: str) -> Counter[str]:
    since = time.time() - _WINDOW_S
    arrivals = reversed(played.of_sink(sink).arrivals)
    return Counter(one.task for one in takewhile(lambda one: one.at_s >= since, arrivals))


def _event(played: Played) -> str:
    if played.rest_at and not played.go_on_at:
        return "mail answers 503 and rests: app goes on as it was"
    if played.quota_at:
        return f"quota of {QUOTA_TASK} is now {NEW_QUOTA}: its backlog is re-ordered"
    if played.late_at:
        return f"{LATE_TASK.name} came late, behind everything written before it"
    return "levels share 6:3:1"


def _rival(played: Played) -> str:
    counts = played.rival.counts
    late = counts[played.rival_late_id]
    waited = time.time() - played.rival_late_at if played.rival_late_at else 0.0
    return (
        f"one queue a level: {counts.total():,} delivered; the late task has waited "
        f"{waited:.0f} s, {late:,} of its {LATE_TASK.pushes:,} pushes arrived"
    )
