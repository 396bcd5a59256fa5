"""Changes of many tasks at once: of just those that a view had when they were counted.

Their ids come with the form, so what begins to fit later is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from pushlane.console.pages import Ask, Page, elsewhere
from pushlane.console.tasks import FILTERS, address_of
from pushlane.core.task import Level, State
from pushlane.door.batches import MOST, Batches, kind_of
from pushlane.operations.finding import SHOWN_PAUSED, SHOWN_UNFINISHED, FindTasks
from pushlane.operations.session import Beside
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import (
    ANY_STATE,
    CancelTask,
    DemoteTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
)

_A_PAGE = 1_000
_NAMED = 20


class _Fitting(NamedTuple):
    """To which tasks a change can be done: those in `states`, but not at `level`.

    The others have ended, or are what `otherwise` says.
    """

    states: frozenset[str] = SHOWN_UNFINISHED
    level: Level | None = None
    otherwise: str = ""


_FITTING = {
    PauseTask.word(): _Fitting(SHOWN_UNFINISHED - {State.PAUSED}, None, "paused already"),
    ResumeTask.word(): _Fitting(SHOWN_PAUSED, None, "not paused"),
    PromoteTask.word(): _Fitting(level=Level.HIGH, otherwise="of level high already"),
    DemoteTask.word(): _Fitting(level=Level.LOW, otherwise="of level low already"),
    CancelTask.word(): _Fitting(),
}


def page_of(batches: Batches) -> Page:
    """Return the page of how far a change is."""

    async def values(ask: Ask) -> Mapping[str, Any]:
        batch, is_gone = await batches.of(ask.parts["batch"], ask.caller)
        title = f"{verb(batch.word)} {batch.count:,} tasks"
        return {"title": title, "batch": batch, "is_gone": is_gone}

    return Page("/batches/{batch}", "Batch", "batch.html", FindTasks, values, is_own=True)


def verb(word: str) -> str:
    """Return what an operation on tasks is called: `Pause`."""
    return word.partition("-")[0].capitalize()


async def _counted(ask: Ask) -> Mapping[str, Any]:
    """Count what fits now and can be changed so, and name it: just these are changed."""
    kind = kind_of(ask.query.get("action", ""))
    fitting = _FITTING[kind.word()]
    given = {name: ask.query[name] for name in FILTERS if ask.query.get(name)}
    wanted = FindTasks.made(**{**given, "sort": "created"}, limit=_A_PAGE)
    ask.asked.append(wanted)
    matching = (await ask.quietly(replace(wanted, limit=1))).in_all
    found, in_all = await _found(ask, fitting, wanted)
    named = kind.made(task="TASK")
    return {
        "title": f"{verb(kind.word())} {len(found):,} {'task' if len(found) == 1 else 'tasks'}",
        "action": kind.word(),
        "tasks": found[:_NAMED],
        "more": max(0, len(found) - _NAMED),
        "ids": " ".join(one.id for one in found),
        "in_all": len(found),
        "left_out": max(0, matching - len(found)),
        "otherwise": fitting.otherwise,
        "is_too_many": in_all > MOST,
        "most": MOST,
        "may": ask.may(kind),
        "destroys": kind.destroys,
        "return_to": address_of(given),
        "how": elsewhere(named),
    }


async def _found(ask: Ask, fitting: _Fitting, view: FindTasks) -> tuple[list[TaskNow], int]:
    """Return the tasks of a view that can be changed so, and how many were looked at for it.

    Of more than can be changed at once none is looked at.
    """
    named = {*view.state} - {ANY_STATE}
    if not named <= fitting.states:
        return [], 0
    states = named or (() if fitting.states == SHOWN_UNFINISHED else fitting.states)
    wanted = replace(view, state=tuple(sorted(states)))
    beside = Beside()
    page = await ask.quietly(wanted, beside)
    found, in_all = page.tasks, page.in_all
    while beside.next and in_all <= MOST:
        following, beside = replace(wanted, cursor=beside.next), Beside()
        found += (await ask.quietly(following, beside)).tasks
    return [one for one in found if one.level != fitting.level], in_all


COUNTED = Page(
    "/all",
    "All that fit",
    "all.html",
    FindTasks,
    _counted,
    query=(*FILTERS, "action"),
    is_live=False,
)
