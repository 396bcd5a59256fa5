"""One verdict on the whole system, in a few hundred words: what holds it, what to ask next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from pushlane.model.states import FAILING, RESTING, STALLED, WAITING
from pushlane.operations.looks import GetOverview, Overview, SinkOverview
from pushlane.operations.operation import Operation
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import ListTasks
from pushlane.util.errors import NotAllowed

Result = TypeVar("Result")

_NAMED = 10
_LISTED = 200
_HELD = frozenset({STALLED, WAITING, RESTING, FAILING})
_WELL = "nothing is held: all tasks go on"
_NEXT = "why_task with one of these tasks says what holds it, and what would help"


class Do(Protocol):
    """Does an operation."""

    async def __call__(self, operation: Operation[Result], /) -> Result:
        """Return its view."""


async def health(do: Do) -> dict[str, Any]:
    """Return a verdict, what it stands on, and what to look at next.

    With a token of some apps it is of their tasks alone.
    """
    try:
        overview = await do(GetOverview())
    except NotAllowed:
        tasks = await do(ListTasks(limit=_LISTED))
        return _of_tasks(tasks)
    return _of_all(overview)


def _of_all(overview: Overview) -> dict[str, Any]:
    wrong = [*_wrong(overview.sinks)]
    held = {state: n for state, n in overview.states.items() if state in _HELD}
    wrong += [f"{count:,} tasks are {state}" for state, count in held.items()]
    shown: dict[str, Any] = {
        "verdict": "; ".join(wrong) or _WELL,
        "is_well": not wrong,
        "sinks": [
            {
                "sink": one.name,
                "processes": one.served_by,
                "in_flight": f"{one.in_flight:,} of {one.slots:,} slots",
                "per_s": one.per_s,
                "pushes_left": one.left,
                **({"resting": one.resting} if one.resting else {}),
            }
            for one in overview.sinks
        ],
        "tasks_by_state": dict(overview.states),
        "look_at_first": [
            {
                "task": one.task_id,
                "name": one.name,
                "level": one.level,
                "state": one.shown_state,
                "why": one.shown_reason,
            }
            for one in overview.tasks[:_NAMED]
        ],
        "limits_that_bind": list(overview.limits[:_NAMED]),
    }
    if overview.is_cut:
        shown["note"] = "there are more tasks than were looked at"
    if overview.tasks:
        shown["next"] = _NEXT
    return shown


def _wrong(sinks: Sequence[SinkOverview]) -> Iterator[str]:
    for sink in sinks:
        if sink.left and not sink.served_by:
            yield f"no process dispatches to sink {sink.name}, and {sink.left:,} pushes wait for it"
        elif sink.rests:
            yield f"sink {sink.name} rests: {sink.resting}"
        elif sink.resting:
            yield f"sink {sink.name} gets less: {sink.resting}"
        if sink.in_doubt:
            yield f"{sink.in_doubt:,} tasks with pushes for {sink.name} are not in the registry"


def _of_tasks(tasks: Sequence[TaskNow]) -> dict[str, Any]:
    """Return the verdict on the tasks of some apps."""
    held = [one for one in tasks if one.shown_state in _HELD]
    shown: dict[str, Any] = {
        "verdict": f"{len(held):,} of {len(tasks):,} tasks are held" if held else _WELL,
        "is_well": not held,
        "look_at_first": [
            {"task": one.id, "state": one.shown_state, "why": one.shown_reason}
            for one in held[:_NAMED]
        ],
    }
    if held:
        shown["next"] = _NEXT
    return shown
