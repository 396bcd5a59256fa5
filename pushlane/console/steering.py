"""Says which changes of a task a page offers its reader, names them, and finds those to undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pushlane.console.naming import names_of
from pushlane.console.pages import Ask
from pushlane.core.task import Level, now_ms
from pushlane.operations.dead import RetryDead
from pushlane.operations.operation import Operation
from pushlane.operations.previewing import Preview
from pushlane.operations.processes import Entry, ListAudit
from pushlane.operations.replays import CloneTask
from pushlane.operations.shares import ClearLimit, SetLevels, SetLimit
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    PauseTask,
    PromoteTask,
    RescheduleTask,
    ResumeTask,
    SetQuota,
)

UNDO_MS = 600_000
"""So long a change is offered to be undone."""

NO_LIMIT = "none"
"""The word that a form sends to take a limit away."""

_MOST = 5
_LOOKED_AT = 100
_STEERS: tuple[type[Operation[Any]], ...] = (
    *(SetQuota, PromoteTask, DemoteTask, PauseTask, ResumeTask, CancelTask),
    *(RetryDead, RescheduleTask, CloneTask, SetLimit, Preview),
)
_ORDER = [*Level]


def may_of(ask: Ask) -> Mapping[str, bool]:
    """Return by the names of operations which of them the caller may do."""
    return {kind.word(): ask.may(kind) for kind in _STEERS}


def preview_address(operation: str, task: str, back: str, **fields: Any) -> str:
    """Return the address of the preview of a change, seen from the root."""
    given = {"operation": operation, "task": task, **fields, "back": back}
    return f"preview?{urlencode({name: one for name, one in given.items() if one})}"


class Undoable(NamedTuple):
    """A change of the last minutes; `operation` with `fields` takes it back."""

    entry: Entry
    task: str
    operation: str
    fields: Mapping[str, Any]
    name: str = ""


async def undoable(ask: Ask, task: str = "") -> list[Undoable]:
    """Return the newest changes of tasks that can be taken back, of one task if it is named.

    Of each task the newest change of a kind alone: what was before an older one is over already.
    Empty for who may not see the audit.
    """
    if not ask.may(ListAudit):
        return []
    found = await ask.quietly(ListAudit(find=f"task/{task}", limit=_LOOKED_AT))
    since_ms = now_ms() - UNDO_MS
    undone: dict[tuple[str, str], Undoable | None] = {}
    for entry in found:
        kind, _, task_id = entry.subject.partition("/")
        if kind != "task" or entry.at_ms < since_ms or entry.operation not in _KINDS:
            continue
        back = _back(entry)
        undone.setdefault(
            (task_id, _KINDS[entry.operation]), back and Undoable(entry, task_id, *back)
        )
    some = [one for one in undone.values() if one and ask.may(_BY_WORD[one.operation])][:_MOST]
    names = await names_of(ask, (one.task for one in some))
    return [one._replace(name=names.get(one.task, "")) for one in some]


_BY_WORD = {kind.word(): kind for kind in _STEERS}
_KINDS = {
    SetQuota.word(): "quota",
    PromoteTask.word(): "level",
    DemoteTask.word(): "level",
    PauseTask.word(): "pause",
    ResumeTask.word(): "pause",
}


def _back(entry: Entry) -> tuple[str, Mapping[str, Any]] | None:
    """Return what takes a change back, by what was before it; None where that is not known."""
    kind, before = _KINDS[entry.operation], entry.before
    if kind == "quota":
        return (SetQuota.word(), {"quota": before["quota"]}) if "quota" in before else None
    if kind == "level":
        was, now = before.get("level"), entry.after.get("level")
        if was not in _ORDER or now not in _ORDER:
            return None
        is_down = _ORDER.index(was) > _ORDER.index(now)
        return (DemoteTask if is_down else PromoteTask).word(), {"level": was}
    if entry.operation == PauseTask.word():
        return ResumeTask.word(), {}
    return PauseTask.word(), {"reason": before.get("reason", "")}


_LIMITS = {
    "rate_per_s": "rate",
    "in_flight": "in flight",
    "a_day": "a day",
    "total_cost": "total cost",
    "cost_a_day": "cost a day",
}
"""The option of the command line for each limit."""


class LimitUndo(NamedTuple):
    """A change of limits of the last minutes, and the address of the preview that undoes it."""

    entry: Entry
    address: str


async def undoable_limits(ask: Ask, back: str) -> list[LimitUndo]:
    """Return the newest change of each limit that can be taken back.

    What a recipient gets in a day is set on the command line. Empty for who may not see the audit.
    """
    if not (ask.may(ListAudit) and ask.may(SetLimit)):
        return []
    since_ms, found = now_ms() - UNDO_MS, dict[str, LimitUndo | None]()
    for entry in await ask.quietly(ListAudit(find="-limit", limit=_LOOKED_AT)):
        if entry.operation in (SetLimit.word(), ClearLimit.word()) and entry.at_ms >= since_ms:
            found.setdefault(entry.subject, _limit_undo(entry, back))
    return [one for one in found.values() if one is not None][:_MOST]


def _limit_undo(entry: Entry, back: str) -> LimitUndo | None:
    names = sorted({*entry.before, *entry.after})
    if not names or isinstance(entry.before.get("recipient_a_day"), Mapping):
        return None
    given = {name: entry.before.get(name, NO_LIMIT) for name in names}
    asked = {"operation": SetLimit.word(), "subject": entry.subject, **given, "back": back}
    return LimitUndo(entry, f"preview?{urlencode(asked)}")


def change_text(operation: str, fields: Mapping[str, Any], name: str) -> str:
    """Return what a change does, as the beginning of a sentence and the word of its button."""
    if operation == SetQuota.word():
        return f"Set the quota of {name} to {fields.get('quota', '')}"
    if operation in (PromoteTask.word(), DemoteTask.word()):
        up = operation == PromoteTask.word()
        to = fields.get("level") or ("the next higher level" if up else "the next lower level")
        return f"Move {name} to {to}"
    words = {PauseTask.word(): "Pause", ResumeTask.word(): "Resume", CancelTask.word(): "Cancel"}
    if operation in words:
        return f"{words[operation]} {name}"
    if operation == SetLevels.word():
        return f"Share by {fields.get('weights', '')}"
    if operation == SetLimit.word():
        given = {one: text for one, text in fields.items() if one not in ("subject", "task")}
        wanted = ", ".join(f"{_LIMITS.get(one, one)} {text}" for one, text in given.items())
        return f"Limit {fields.get('subject', '')} to {wanted or 'what it is limited to'}"
    if operation == ClearLimit.word():
        return f"Take the limits of {fields.get('subject', '')} away"
    return operation.replace("-", " ").capitalize()
