"""Parts of a task's page by its receipts: outcomes, reasons, lateness, and its share over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pushlane.console.lines import HEIGHT, WIDTH, Chart, chart
from pushlane.console.pages import Ask
from pushlane.console.task import part_of_task
from pushlane.core.task import now_ms
from pushlane.operations.reports import GetReport, GetTaskShares, ReportView
from pushlane.operations.task_views import TaskNow

_STEPS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_MOST_STEPS = 240
_MOST_ROWS = 10_000
_REASONS_SHOWN = 50


class Step(NamedTuple):
    """A minute, an hour or a day from `at_ms` on, and what ended in it, by outcome."""

    at_ms: int
    counts: Mapping[str, int]


class OverTime(NamedTuple):
    """The outcomes of each step that has some; `chart` has the empty steps, too."""

    step: str
    names: Sequence[str]
    steps: Sequence[Step]
    chart: Chart


async def _report(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    """Ask once, for all that is shown: a report may take a while."""
    begun_ms = max(task.created_at_ms, task.not_before_ms or 0)
    by = f"{_step_of((task.finished_at_ms or now_ms()) - begun_ms)},outcome,reason"
    view = await ask.do(GetReport(task=task.id, by=by, limit=_MOST_ROWS))
    reasons = _reasons(view)
    return {
        "report": view,
        "reasons": reasons[:_REASONS_SHOWN],
        "others": sum(pushes for *_, pushes in reasons[_REASONS_SHOWN:]),
        "over_time": over_time(view),
        "is_cut": view.rows_in_all > len(view.rows),
        "width": WIDTH,
        "height": HEIGHT,
    }


def _step_of(span_ms: int) -> str:
    """Return the shortest step of which a span has no more than can be shown."""
    for step, step_ms in _STEPS_MS.items():
        if span_ms <= _MOST_STEPS * step_ms:
            return step
    return "day"


def _reasons(view: ReportView) -> list[tuple[str, str, int]]:
    """Return outcome, reason and count of all that has a reason, the most frequent first."""
    found: Counter[tuple[str, str]] = Counter()
    for row in view.rows:
        if row.get("reason"):
            found[row["outcome"], row["reason"]] += row["n"]
    return [(*key, pushes) for key, pushes in found.most_common()]


def over_time(view: ReportView) -> OverTime | None:
    """Return the rows of a report by time and outcome, in longer steps where there are too many.

    Events may come days after the pushes. None where there is no row.
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for row in view.rows:
        counts[_ms(row[view.columns[0]])][row["outcome"]] += row["n"]
    if not counts:
        return None
    step = _step_of(max(counts) - min(counts))
    step_ms = max(_STEPS_MS[step], _STEPS_MS[view.columns[0]])
    merged: dict[int, Counter[str]] = defaultdict(Counter)
    for at_ms, found in counts.items():
        merged[at_ms // step_ms * step_ms].update(found)
    end_ms = max(merged) + step_ms
    points: list[tuple[int, Mapping[str, int]]] = [
        (at_ms, merged.get(start_ms, {}))
        for start_ms in range(min(merged), end_ms, step_ms)
        for at_ms in (start_ms, start_ms + step_ms)  # which makes it a stair
    ]
    names = sorted({name for found in merged.values() for name in found})
    [word] = [word for word, one_ms in _STEPS_MS.items() if one_ms == step_ms]
    steps = [Step(at_ms, merged[at_ms]) for at_ms in sorted(merged)]
    return OverTime(word, names, steps, chart(points, (), end_ms, gap_ms=step_ms))


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


async def _shares(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    found = await ask.do(GetTaskShares(task=task.id))
    step_ms = found.step_s * 1000
    points = [
        (at_ms, {"gets": one.observed_per_s, "fair share": one.entitled_per_s})
        for one in found.points
        for at_ms in (one.at_ms, one.at_ms + step_ms)  # which makes it a stair
    ]
    end_ms = points[-1][0] if points else 0
    return {"found": found, "line": chart(points, (), end_ms, gap_ms=step_ms) if points else None}


REPORT = part_of_task("report", GetReport, _report)
SHARES = part_of_task("shares", GetTaskShares, _shares)
