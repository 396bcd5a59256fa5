"""The page of one task, and parts of it: why it waits, its results, its dead pushes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from pushlane.console.lines import chart, marks_of, spell_of
from pushlane.console.naming import names_of, the_task
from pushlane.console.pages import Ask, Page
from pushlane.console.steering import may_of, undoable
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.task import MAX_QUOTA, State, now_ms
from pushlane.operations.dead import ListDead, RetryDead
from pushlane.operations.hour import HOUR_MS, GetTaskHour
from pushlane.operations.looks import GetResults, ListReceipts, ReceiptsView, WhyTask
from pushlane.operations.operation import Operation, Role
from pushlane.operations.processes import ListAudit
from pushlane.operations.recipients import CheckSuppressed
from pushlane.operations.session import Beside
from pushlane.operations.shares import SetLimit
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import (
    CancelTask,
    GetTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
    SetQuota,
)
from pushlane.operations.tracing import OF_RECIPIENT, OF_TRACE, TracePushes
from pushlane.util.errors import NotFound

_DEAD_SHOWN = 20


async def _task(ask: Ask) -> Mapping[str, Any]:
    beside = Beside()
    task = await ask.do(GetTask(task=ask.parts["task"]), beside)
    may = may_of(ask)
    ask.asked += [one for one in _steers(task) if may[one.word()]]
    address = f"tasks/{task.id}"
    return {
        "title": task.name or task.id,
        "task": task,
        "may": may,
        "seen": beside.tag,
        "address": address,
        "outcomes": _outcomes(task),
        **await _share(ask, task),
        "edited": task if ask.query.get("quota") and not ask.is_again else None,
        "most_quota": MAX_QUOTA,
        "undo": () if ask.is_again else await undoable(ask, task.id),
    }


async def _share(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    """Return what the task got in the last hour, drawn, and of which of its times that is known."""
    hour = await ask.do(GetTaskHour(task=task.id))
    points = [
        (one.at_ms, {"gets": one.observed_per_s, "fair share": one.entitled_per_s})
        for one in hour.points
    ]
    spells = [spell_of(one, {task.id: task.name}) for one in hour.spans]
    begun_ms = max(task.created_at_ms, hour.at_ms - HOUR_MS)
    return {
        "hour": hour,
        "share": chart(points, marks_of(hour.marks), hour.at_ms, spells, from_ms=begun_ms),
        "may_audit": ask.may(ListAudit),
        "kept_since_ms": hour.points[0].at_ms if hour.points else None,
        "ended_before": 0 < task.finished_at_ms < begun_ms,
    }


def _steers(task: TaskNow) -> list[Operation[Any]]:
    """Return how the task is steered elsewhere, as it stands."""
    if task.has_ended:
        return []
    is_paused = task.state == State.PAUSED
    return [
        ResumeTask(task=task.id) if is_paused else PauseTask(task=task.id),
        SetQuota(task=task.id, quota=task.quota),
        PromoteTask(task=task.id),
        SetLimit(subject=f"task/{task.id}", rate_per_s="100/s"),
        CancelTask(task=task.id),
    ]


class Outcome(NamedTuple):
    """Counts the pushes with one outcome, and of these the pushes by reason."""

    name: str
    pushes: int
    reasons: Mapping[str, int]


def _outcomes(task: TaskNow) -> list[Outcome]:
    """Return the ways in which pushes of a task have ended, those that went wrong with reasons."""
    return [
        Outcome("delivered", task.delivered, {}),
        Outcome("dead", task.dead, task.died_of),
        Outcome("expired", task.expired, task.expired_for),
        Outcome("dropped", task.dropped, task.dropped_for),
    ]


TASK = Page("/tasks/{task}", "Task", "task.html", GetTask, _task, query=("quota",))


def part_of_task(
    name: str,
    shows: type[Operation[Any]],
    values: Callable[[Ask, TaskNow], Awaitable[Mapping[str, Any]]],
    query: tuple[str, ...] = (),
) -> Page:
    """Return a page that is a part of a task's: what is wrong with it leaves the rest as it is."""

    async def shown(ask: Ask) -> Mapping[str, Any]:
        task = await the_task(ask, ask.parts["task"])
        if task is None:
            raise NotFound(f"there is no task {ask.parts['task'][:60]!r} that you may see")
        found: Mapping[str, Any] = {}
        error = ""
        try:
            found = await values(ask, task)
        except PushlaneError as problem:
            error = str(problem)
        common = {"title": f"{task.name or task.id}: {name}", "task": task, "error": error}
        return {**found, **common, "may": may_of(ask), "at_ms": now_ms()}

    return Page(f"/{name}/{{task}}", name, f"{name}.html", shows, shown, query, is_live=False)


async def _why(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    return {"why": await ask.do(WhyTask(task=task.id))}


async def _results(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    return {"results": await ask.do(GetResults(task=task.id))}


async def _dead(ask: Ask, task: TaskNow) -> Mapping[str, Any]:
    page = await ask.do(ListDead(task=task.id, limit=_DEAD_SHOWN))
    if ask.may(RetryDead):
        ask.asked.append(RetryDead(task=task.id))
    return {"page": page}


WHY = part_of_task("why", WhyTask, _why)
RESULTS = part_of_task("results", GetResults, _results)
DEAD = part_of_task("dead", ListDead, _dead)


async def _push(ask: Ask) -> Mapping[str, Any]:
    """Return the story of a push by its id, or its task and number, or of all of a trace.

    What a push holds is told if a form asks for it.
    """
    task, seq = ask.query.get("task", ""), ask.query.get("seq", "")
    named = ask.query.get("push", "").strip() or (f"{task}-{seq}" if task or seq else "")
    may_reveal = ask.caller.access.role.may(Role.OPERATOR)
    if not named:
        return {"found": None, "may_reveal": may_reveal, "is_asked": False, "task": None}
    is_asked = bool(ask.query.get("reveal"))
    try:
        found = await ask.do(TracePushes.made(what=named, reveal=is_asked))
    except BadInput:
        if (typed := await the_task(ask, named)) is None:
            raise
        return {"found": None, "may_reveal": may_reveal, "is_asked": False, "task": typed}
    told = {"found": found, "may_reveal": may_reveal, "is_asked": is_asked}
    if found.of == OF_RECIPIENT:
        raise NotFound("no push and no trace has this id")  # who looks for people has a form
    if found.of == OF_TRACE:
        return {"title": "Trace", **told}
    [push] = found.pushes
    if may_reveal and not is_asked:
        ask.asked.append(TracePushes(what=push.push, reveal=True))
    return {"title": f"Push {push.push}", **told}


PUSH = Page(
    "/push", "Push", "push.html", TracePushes, _push, ("push", "task", "seq"), is_live=False
)


async def _recipient(ask: Ask) -> Mapping[str, Any]:
    """Return what one recipient was sent. The commands that are shown do not name it.

    Whom a push was for is asked for by that push: nobody is told who it is.
    """
    if push := ask.query.get("recipient_of", ""):
        found = await ask.do(ListReceipts.made(recipient_of=push))
        return {"found": found, "suppressed": None, "push": push, "names": await _names(ask, found)}
    given = ask.query.get("recipient", "")
    found = await ask.quietly(ListReceipts.made(recipient=given))
    suppressed = await ask.quietly(CheckSuppressed.made(value=given))
    ask.asked += [ListReceipts(recipient="RECIPIENT"), CheckSuppressed(value="RECIPIENT")]
    names = await _names(ask, found)
    return {"found": found, "suppressed": suppressed, "push": "", "names": names}


async def _names(ask: Ask, found: ReceiptsView) -> Mapping[str, str]:
    return await names_of(ask, (one.task_id for one in found.rows))


RECIPIENT = Page(
    "/recipient", "Recipient", "recipient.html", ListReceipts, _recipient, is_live=False
)
"""The answer to a form: whom it is about is in no address."""
