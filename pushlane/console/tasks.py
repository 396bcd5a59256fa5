"""The page of all tasks: searched, filtered and sorted by the server, at an address to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pushlane.console.naming import the_task
from pushlane.console.pages import Ask, Page
from pushlane.console.steering import may_of, undoable
from pushlane.core.task import MAX_QUOTA, Level
from pushlane.door.batches import KINDS
from pushlane.operations.finding import FindTasks
from pushlane.operations.session import Beside
from pushlane.operations.tasks import (
    STATE_WORDS,
    PauseTask,
    ResumeTask,
    SetQuota,
)

A_PAGE = 50
FILTERS = ("find", "state", "app", "level", "sink", "sort")
_DEFAULT_SORT = "-created"
_CHANGE = "Change"
_COLUMNS = (
    ("name", "Task", False),
    ("", "State", False),
    ("left", "Progress", False),
    ("end", "Ends", False),
    ("-rate", "Rate /s", True),
    ("app", "App", False),
    ("level", "Level", False),
    ("-quota", "Quota", True),
    ("", _CHANGE, False),
    ("-created", "Created", False),
)
"""By what a column is sorted at first, its heading, and whether it has numbers."""


async def _values(ask: Ask) -> Mapping[str, Any]:
    given = {name: ask.query[name] for name in FILTERS if ask.query.get(name)}
    sort = given.get("sort", _DEFAULT_SORT)
    cursor, beside = ask.query.get("cursor", ""), Beside()
    wanted = FindTasks.made(**given, limit=A_PAGE, cursor=cursor)
    found = await ask.do(wanted, beside)
    may = may_of(ask)
    steers = any(may[word] for word in KINDS)
    if may[PauseTask.word()]:  # how rows are steered elsewhere
        ask.asked += [PauseTask(task="TASK"), ResumeTask(task="TASK")]
    if may[SetQuota.word()]:
        ask.asked.append(SetQuota(task="TASK", quota=5))
    return {
        "found": found,
        "may": may,
        "given": {name: given.get(name, "") for name in FILTERS},
        "is_narrowed": bool(given.keys() - {"sort"}),
        "address": address_of(given, cursor),
        "steers": steers,
        "columns": [one for one in _columns(given, sort) if steers or one["heading"] != _CHANGE],
        "states": STATE_WORDS,
        "levels": [*Level],
        "first": address_of(given) if cursor else "",
        "next": address_of(given, beside.next) if beside.next else "",
        "edited": None if ask.is_again else await the_task(ask, ask.query.get("quota", "")),
        "most_quota": MAX_QUOTA,
        "all": urlencode(given),
        "undo": () if ask.is_again else await undoable(ask),
    }


def address_of(given: Mapping[str, str], cursor: str = "") -> str:
    """Return the address of a view, seen from the root."""
    more = {**given, **({"cursor": cursor} if cursor else {})}
    return f"tasks?{urlencode(more)}" if more else "tasks"


def _columns(given: Mapping[str, str], sort: str) -> list[dict[str, Any]]:
    """Return the headings: each leads to the view that is sorted by it, the other way if it is."""
    found = []
    for by, heading, is_number in _COLUMNS:
        word = by.lstrip("-")
        is_sorted = bool(by) and sort.lstrip("-") == word
        to = by if not is_sorted else word if sort.startswith("-") else f"-{word}"
        found.append(
            {
                "heading": heading,
                "is_number": is_number,
                "address": address_of({**given, "sort": to}) if by else "",
                "sorted": ("descending" if sort.startswith("-") else "ascending")
                if is_sorted
                else "",
            }
        )
    return found


TASKS = Page(
    "/tasks", "Tasks", "tasks.html", FindTasks, _values, query=(*FILTERS, "cursor", "quota")
)
