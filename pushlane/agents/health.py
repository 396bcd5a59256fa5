"""One verdict on the whole system, in a few hundred words: what holds it, what to ask next.

It stands on three things: `why` for all that waits, alerts that fire, and what `doctor` finds.
What the caller may not ask, or does not answer, is told in a sentence, and is no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pushlane.core.errors import PushlaneError
from pushlane.model.states import FAILING, RESTING, STALLED, WAITING
from pushlane.operations.alerts import AlertListed, ListAlerts
from pushlane.operations.examining import Examine
from pushlane.operations.looks import GetOverview, Overview, SinkOverview
from pushlane.operations.operation import Operation
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import ListTasks
from pushlane.util.errors import NotAllowed

Result = TypeVar("Result")

_NAMED = 4
_LISTED = 200
_LONGEST = 140
_LONGEST_NAME = 40
_HELD = frozenset({STALLED, WAITING, RESTING, FAILING})
_WELL = "nothing is held: all tasks go on"
_NEXT = "why_task with one of these tasks says what holds it, and what would help"


class Do(Protocol):
    """Does an operation."""

    async def __call__(self, operation: Operation[Result], /) -> Result:
        """Return its view."""


async def health(do: Do) -> dict[str, Any]:
    """Return a verdict, what it stands on, and what to look at next.

    With a token of some apps it is of their tasks and alerts alone.
    """
    try:
        wrong, shown = _of_all(await do(GetOverview()))
    except NotAllowed:
        tasks = await do(ListTasks(limit=_LISTED))
        wrong, shown = _of_tasks(tasks)
    alerts, firing = await _alerts(do)
    checks, errors = await _checks(do)
    wrong += [*firing, *errors]
    return {
        "verdict": "; ".join(wrong) or _WELL,
        "is_well": not wrong,
        **shown,
        "alerts": alerts,
        "checks": checks,
    }


def _of_all(overview: Overview) -> tuple[list[str], dict[str, Any]]:
    """Return what is wrong, and what there is of sinks and tasks, the worst of both first."""
    held = {state: n for state, n in overview.states.items() if state in _HELD}
    wrong = _some([*_wrong(overview.sinks)])
    wrong += [_tasks(count, f"{state}") for state, count in held.items()]
    worst = sorted(overview.sinks, key=lambda one: (not one.rests, not one.resting, -one.left))
    shown: dict[str, Any] = {
        "sinks": [
            {
                "sink": _short(one.name, _LONGEST_NAME),
                "processes": one.served_by,
                "in_flight": f"{one.in_flight:,} of {one.slots:,} slots",
                "per_s": one.per_s,
                "pushes_left": one.left,
                **({"resting": _short(one.resting)} if one.resting else {}),
            }
            for one in worst[:_NAMED]
        ],
        "tasks_by_state": dict(overview.states),
        "look_at_first": [
            {
                "task": one.task_id,
                "name": _short(one.name, _LONGEST_NAME),
                "level": one.level,
                "state": one.shown_state,
                "why": _short(one.shown_reason),
            }
            for one in overview.tasks[:_NAMED]
        ],
        "limits_that_bind": [_short(one) for one in overview.limits[:_NAMED]],
    }
    if overview.is_cut:
        shown["note"] = "there are more tasks than were looked at"
    if overview.tasks:
        shown["next"] = _NEXT
    return wrong, shown


def _wrong(sinks: Sequence[SinkOverview]) -> Iterator[str]:
    for sink in sinks:
        name, resting = _short(sink.name, _LONGEST_NAME), _short(sink.resting)
        if sink.left and not sink.served_by:
            yield f"no process dispatches to sink {name}, and {sink.left:,} pushes wait for it"
        elif sink.rests:
            yield f"sink {name} rests: {resting}"
        elif sink.resting:
            yield f"sink {name} gets less: {resting}"
        if sink.in_doubt:
            yield f"{sink.in_doubt:,} tasks with pushes for {name} are not in the registry"


def _of_tasks(tasks: Sequence[TaskNow]) -> tuple[list[str], dict[str, Any]]:
    """Return the same of the tasks of some apps."""
    held = [one for one in tasks if one.shown_state in _HELD]
    shown: dict[str, Any] = {
        "look_at_first": [
            {"task": one.id, "state": one.shown_state, "why": _short(one.shown_reason)}
            for one in held[:_NAMED]
        ],
    }
    if held:
        shown["next"] = _NEXT
    return [f"{len(held):,} of {len(tasks):,} tasks are held"] if held else [], shown


async def _alerts(do: Do) -> tuple[dict[str, Any] | str, list[str]]:
    """Return the alerts that fire, and what is wrong by them."""
    try:
        found = await do(ListAlerts())
    except PushlaneError as error:
        return f"alerts cannot be asked: {_short(str(error))}", []
    if not found:
        return "there are no alerts", []
    firing = sorted((one for one in found if one.firing), key=_since_ms)
    shown: dict[str, Any] = {
        "there_are": len(found),
        "firing": len(firing),
        "first": [_alert(one) for one in firing[:_NAMED]],
    }
    if not firing:
        return shown, []
    names = ", ".join(one.name for one in firing[:_NAMED])
    more = f" and {len(firing) - _NAMED:,} more" if len(firing) > _NAMED else ""
    return shown, [f"{_n(len(firing), 'alert')} fire{'s' * (len(firing) == 1)}: {names}{more}"]


def _alert(one: AlertListed) -> Mapping[str, Any]:
    return {
        "alert": one.name,
        "when": f"{one.metric} {one.when}",
        "groups": one.firing,
        "since_ms": one.firing_since_ms,
    }


def _since_ms(one: AlertListed) -> int:
    return one.firing_since_ms or 0


async def _checks(do: Do) -> tuple[dict[str, Any] | str, list[str]]:
    """Return what `doctor` finds, and what is wrong by that: errors alone."""
    try:
        found = await do(Examine())
    except PushlaneError as error:
        return f"what doctor checks cannot be asked: {_short(str(error))}", []
    worst = [one for one in found.findings if one.severity != "note"]
    errors = found.counts["error"]
    shown = {
        "found": dict(found.counts),
        "passed": len(found.passed),
        "skipped": len(found.skipped),
        "first": [
            {
                "check": one.check,
                "severity": one.severity,
                "what": _short(one.what),
                **({"mend": _short(one.mend)} if one.mend else {}),
            }
            for one in worst[:_NAMED]
        ],
    }
    if not errors:
        return shown, []
    return shown, [f"doctor finds {_n(errors, 'error')}: {_short(found.findings[0].what)}"]


def _some(found: list[str]) -> list[str]:
    """Return the first, and how many more there are."""
    more = len(found) - _NAMED
    return found if more <= 0 else [*found[:_NAMED], f"{more:,} more of the kind at other sinks"]


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _tasks(count: int, state: str) -> str:
    return f"1 task is {state}" if count == 1 else f"{count:,} tasks are {state}"


def _n(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
