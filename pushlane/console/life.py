"""The part of a task's page that draws its life: when it could go and was paused, and by whom.

The audit tells it, the last hour and, if they are asked for, its receipts. What none of them tells
is no line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pushlane.console.lines import Spell, chart, spell_of
from pushlane.console.pages import Ask, fields_text
from pushlane.console.task import part_of_task
from pushlane.core.task import TERMINAL_STATES, State, now_ms
from pushlane.operations.hour import GetTaskHour, SpanView, TaskHourView
from pushlane.operations.looks import GetResults, ResultsView
from pushlane.operations.processes import Entry, ListAudit
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import GetTask

_CHANGES_SHOWN = 100
_SEEN = ("stalled", "failing")


class Moment(NamedTuple):
    """A moment in the life of a task: what was, and who did it, if somebody did."""

    at_ms: int
    what: str
    who: str = ""


async def _life(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    hour = await ask.do(GetTaskHour(task=task.id))
    is_told, is_read = ask.may(ListAudit), bool(ask.query.get("receipts"))
    subject = f"task/{task.id}"
    found = await ask.do(ListAudit(find=subject, limit=_CHANGES_SHOWN)) if is_told else []
    changes = [one for one in reversed(found) if one.subject == subject]
    is_cut = len(found) == _CHANGES_SHOWN
    results: ResultsView | None = None
    if is_read:
        results = await ask.do(GetResults(task=task.id))
    moments = [*_moments(task, changes), *_firsts(task, hour, results)]
    moments.sort(key=lambda one: one.at_ms)
    end_ms = task.finished_at_ms or now_ms()
    spells = [
        *stood(task, changes, end_ms, _pause(hour.spans), is_whole=is_told and not is_cut),
        *_seen(hour.spans, is_told=is_told),
    ]
    marks = [(one.at_ms, f"{one.what} {one.who and f'by {one.who}'}") for one in moments]
    return {
        "moments": moments,
        "line": chart([], marks, end_ms, spells, from_ms=task.created_at_ms),
        "is_told": is_told,
        "is_cut": is_cut,
        "is_read": is_read,
        "results": results,
        "is_first_known": bool(hour.first_end or (results and results.first_at_ms)),
    }


def _moments(task: TaskNow, changes: Sequence[Entry]) -> list[Moment]:
    told = (
        (task.created_at_ms, "submitted"),
        (task.not_before_ms, "may start"),
        (task.expires_at_ms, "expires"),
        (task.stalled_at_ms, "stalled: what makes it was gone"),
        (task.finished_at_ms, str(task.state)),
    )
    found = [Moment(at_ms, what) for at_ms, what in told if at_ms]
    for one in changes:
        text = f"{one.operation}: {fields_text(one.before)} → {fields_text(one.after)}"
        found.append(Moment(one.at_ms, text, one.who))
    return found


def _firsts(task: TaskNow, hour: TaskHourView, results: ResultsView | None) -> list[Moment]:
    """Return when its first push went, as receipts say, or else as somebody has seen it end."""
    if results is not None and results.first_at_ms:
        last = "last push" if task.has_ended else "newest answer of a push"
        return [
            Moment(results.first_at_ms, "first push sent"),
            Moment(results.last_at_ms, f"{last} answered" if task.has_ended else last),
        ]
    if hour.first_end is None:
        return []
    within_s = (hour.first_end.before_ms - hour.first_end.after_ms) / 1000
    return [Moment(hour.first_end.before_ms, f"first push ended, seen within {within_s:,.1f} s")]


def stood(
    task: TaskNow,
    changes: Sequence[Entry],
    end_ms: int,
    pause: SpanView | None = None,
    *,
    is_whole: bool,
) -> list[Spell]:
    """Return when a task was scheduled, could go and was paused, as its changes tell.

    They are in the order of their times; all of them, if that `is_whole`. Between two that do not
    fit together nobody knows what was. `pause` is the one that somebody sees now.
    """
    starts_ms = max(task.created_at_ms, task.not_before_ms)
    found = []
    if starts_ms > task.created_at_ms:
        until_ms = starts_ms if starts_ms <= end_ms else None
        found.append(Spell("scheduled", "scheduled", "", task.created_at_ms, until_ms))
    since_ms, who = task.created_at_ms, ""
    is_paused = False if is_whole else None  # None is what nobody knows

    def stands(was_paused: bool, until_ms: int | None) -> None:
        """Note how it stood until then, since the last change, if that is known."""
        name, text = ("paused", f"by {who}") if was_paused else ("running", "")
        at_ms = end_ms if until_ms is None else until_ms
        if was_paused != is_paused and was_paused and until_ms is None and pause is not None:
            found.append(spell_of(pause, {})._replace(name=name, text=""))
        elif was_paused != is_paused and was_paused:
            found.append(Spell(name, name, "", at_ms, until_ms, may_begin_sooner=True))
        elif was_paused == is_paused:
            from_ms = since_ms if was_paused else max(since_ms, starts_ms)
            if from_ms < at_ms:
                found.append(Spell(name, name, text, from_ms, until_ms))

    for one in changes:
        if "state" in one.before or "state" in one.after:
            stands(one.before.get("state") == State.PAUSED, one.at_ms)
            state = one.after.get("state")
            is_paused = None if state in TERMINAL_STATES else state == State.PAUSED
            since_ms, who = one.at_ms, one.who
    if task.has_ended:
        stands(bool(is_paused), end_ms)
    else:
        is_paused_now = task.state == State.PAUSED
        is_over = 0 < task.expires_at_ms <= end_ms  # which nobody has noted yet
        stands(is_paused_now, task.expires_at_ms if is_over and not is_paused_now else None)
    return found


def _pause(spans: Sequence[SpanView]) -> SpanView | None:
    """Return the pause of the task itself that goes on, if somebody sees it."""
    seen = [one for one in spans if one.kind == State.PAUSED and one.until_ms is None]
    return seen[-1] if seen else None


def _seen(spans: Sequence[SpanView], *, is_told: bool) -> list[Spell]:
    """Return what was seen of the task itself in the last hour, and no change tells."""
    seen = [
        one
        for one in spans
        if one.kind in _SEEN
        or (one.kind == State.PAUSED and not is_told and one.until_ms is not None)
    ]
    return [spell_of(one, {})._replace(name=one.kind) for one in seen]


LIFE = part_of_task("life", GetTask, _life, query=("receipts",))
