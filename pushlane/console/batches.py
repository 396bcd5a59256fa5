"""Changes of many tasks at once: of just those that a view had when they were counted.

Their ids come with the form, so what begins to fit later is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pushlane.console.pages import Ask, Page, elsewhere
from pushlane.console.tasks import FILTERS, address_of
from pushlane.door.batches import MOST, Batches, kind_of
from pushlane.operations.finding import FindTasks
from pushlane.operations.session import Beside

_A_PAGE = 1_000
_NAMED = 20


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
    """Count what fits now, and name it: just these are changed."""
    kind = kind_of(ask.query.get("action", ""))
    given = {name: ask.query[name] for name in FILTERS if ask.query.get(name)}
    wanted = FindTasks.made(**{**given, "sort": "created"}, limit=_A_PAGE)
    beside = Beside()
    found = (await ask.do(wanted, beside)).tasks
    while beside.next and len(found) <= MOST:
        following, beside = replace(wanted, cursor=beside.next), Beside()
        found += (await ask.quietly(following, beside)).tasks
    named = kind.made(task="TASK")
    return {
        "title": f"{verb(kind.word())} {len(found):,} {'task' if len(found) == 1 else 'tasks'}",
        "action": kind.word(),
        "tasks": found[:_NAMED],
        "more": max(0, len(found) - _NAMED),
        "ids": " ".join(one.id for one in found),
        "in_all": len(found),
        "is_too_many": len(found) > MOST,
        "most": MOST,
        "may": ask.may(kind),
        "destroys": kind.destroys,
        "return_to": address_of(given),
        "how": elsewhere(named),
    }


COUNTED = Page(
    "/all",
    "All that fit",
    "all.html",
    FindTasks,
    _counted,
    query=(*FILTERS, "action"),
    is_live=False,
)
