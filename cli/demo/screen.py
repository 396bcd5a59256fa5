"""Shows on the terminal what happens while the demo plays."""

from __future__ import annotations

import time
from collections import Counter
from itertools import takewhile

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pushlane.cli.demo.files import BACKLOG, LATE_TASK
from pushlane.cli.demo.scenario import NEW_QUOTA, QUOTA_TASK, Played

_WINDOW_S = 2.0


def view(played: Played, phase: str) -> RenderableType:
    """Return what is to be seen now: a table of the tasks, or how the rival's late task waits."""
    if phase == "one queue a level":
        return Text(_rival(played))
    return Group(_tasks(played), Text(_event(played)))


def _tasks(played: Played) -> Table:
    """Return a table of the tasks, with what the webhook got in the last two seconds."""
    table = Table(title="What the webhook receives", title_justify="left")
    for heading in ("task", "level", "quota", "pushes", "delivered", "last 2 s", "of the sink"):
        table.add_column(heading, justify="left" if heading in ("task", "level") else "right")
    since = time.time() - _WINDOW_S
    latest = takewhile(lambda one: one.at_s >= since, reversed(played.webhook.arrivals))
    recent = Counter(arrival.task for arrival in latest)
    delivered = played.webhook.counts + played.rest.counts
    for campaign in (*BACKLOG, LATE_TASK):
        task = played.tasks.get(campaign.name)
        if task is None:
            continue
        quota = NEW_QUOTA if campaign.name == QUOTA_TASK and played.quota_at else task.quota
        table.add_row(
            campaign.name,
            campaign.level.value,
            "pool" if task.pooled else str(quota),
            f"{campaign.pushes:,}",
            f"{delivered[task.id]:,}",
            f"{recent[task.id] / _WINDOW_S:,.0f}/s",
            f"{recent[task.id] / max(1, recent.total()):.0%}",
        )
    return table


def _event(played: Played) -> str:
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
