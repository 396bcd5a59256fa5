"""Shows the demo on the terminal while it plays, and the report in the end."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pushlane.cli.demo.arrivals import ArrivalLine, Follower
from pushlane.cli.demo.files import BACKLOG, LATE_TASK
from pushlane.cli.demo.report import DemoReport, entitled
from pushlane.cli.demo.scenario import NEW_QUOTA, QUOTA_TASK, Played
from pushlane.lanes.task import Level

_WINDOW_S = 2.0


class Screen:
    """Notes line by line, and under them a live table of the tasks (on a terminal only)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.update("", refresh=True)
            self._live.stop()

    def say(self, note: str) -> None:
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {note}")

    def show(self, played: Played, phase: str) -> None:
        if not self._live.is_started:
            return
        if phase == "one queue a level":
            self._live.update(self._rival(played), refresh=True)
        else:
            self._live.update(Group(self._tasks(played), Text(self._event(played))), refresh=True)

    def _tasks(self, played: Played) -> Table:
        """Return a table of the tasks, with what the webhook got in the last two seconds."""
        table = Table(title="What the webhook receives", title_justify="left")
        for heading in ("task", "level", "quota", "pushes", "delivered", "last 2 s", "of the sink"):
            table.add_column(heading, justify="left" if heading in ("task", "level") else "right")
        recent = _recent(played.webhook)
        delivered = _counts(played.webhook) + _counts(played.rest)
        for campaign in (*BACKLOG, LATE_TASK):
            task = played.tasks.get(campaign.name)
            if task is None:
                continue
            quota = NEW_QUOTA if campaign.name == QUOTA_TASK and played.quota_at else task.quota
            share = recent[task.id] / max(1, recent.total())
            table.add_row(
                campaign.name,
                campaign.level.value,
                "pool" if task.pooled else str(quota),
                f"{campaign.pushes:,}",
                f"{delivered[task.id]:,}",
                f"{recent[task.id] / _WINDOW_S:,.0f}/s",
                f"{share:.0%}",
            )
        return table

    @staticmethod
    def _event(played: Played) -> str:
        if played.quota_at:
            return f"quota of {QUOTA_TASK} is now {NEW_QUOTA}: its backlog is re-ordered"
        if played.late_at:
            return f"{LATE_TASK.name} came late, behind everything written before it"
        return "levels share 6:3:1"

    @staticmethod
    def _rival(played: Played) -> Text:
        rival = played.rival
        assert rival is not None
        late = rival.counts[played.rival_late_id] if played.rival_late_id else 0
        waited = time.time() - played.rival_late_at if played.rival_late_at else 0.0
        return Text(
            f"one queue a level: {rival.counts.total():,} delivered; the late task has waited "
            f"{waited:.0f} s, {late:,} of its {LATE_TASK.pushes:,} pushes arrived"
        )


def _counts(follower: Follower | None) -> Counter[str]:
    return follower.counts if follower is not None else Counter()


def _recent(follower: Follower | None) -> Counter[str]:
    """Return the arrivals of each task in the last two seconds."""
    counts: Counter[str] = Counter()
    now = time.time()
    arrivals: list[ArrivalLine] = follower.arrivals if follower is not None else []
    for arrival in reversed(arrivals):
        if arrival.at_s < now - _WINDOW_S:
            break
        counts[arrival.task] += 1
    return counts


def print_report(console: Console, report: DemoReport) -> None:
    table = Table(title="The demo, by the receivers' own logs", title_justify="left")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("beside", justify="right")
    for level in Level:
        due = entitled()[level.value]
        table.add_row(
            f"share of {level.value}", f"{report.share[level.value]:.1%}", f"entitled {due:.0%}"
        )
    than = "> " if report.queue_per_level_is_at_least else ""
    table.add_row(
        "late high task, first push",
        f"{report.late_first_push_s:.3f} s",
        f"one queue a level {than}{report.queue_per_level_first_push_s:.1f} s",
    )
    table.add_row(
        "late high task, all 1,000",
        f"{report.late_completion_s:.2f} s",
        f"one queue a level {than}{report.queue_per_level_completion_s:.1f} s",
    )
    table.add_row(
        f"{QUOTA_TASK}'s part of its level",
        f"{report.quota_share_before:.0%} → {report.quota_share_after:.0%}",
        f"quota 1 → {NEW_QUOTA}: 50% → 75%",
    )
    table.add_row(
        "pushes submitted", f"{report.submitted:,}", f"webhook {report.rate_per_s:,.0f}/s"
    )
    table.add_row("lost", str(report.lost), "0")
    table.add_row("duplicates", str(report.duplicates), "0")
    console.print(table)
    if report.plot:
        console.print(f"share over time: {report.plot}", soft_wrap=True)
    else:
        console.print("no plot: pip install 'pushlane[demo]' for matplotlib")
