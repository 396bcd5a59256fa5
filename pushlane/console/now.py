"""The page of now: who gets what beside what they are entitled to, and what is in the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from pushlane.console.lines import chart, marks_of, spell_of
from pushlane.console.pages import Ask, Page
from pushlane.console.steering import UNDO_MS
from pushlane.core.task import now_ms
from pushlane.operations.hour import By, GetHour, HourView
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.processes import ListAudit
from pushlane.operations.shares import GetLevels, SetLevels

_LOOKED_AT = 5
_MARKS_SHOWN = 10


async def _values(ask: Ask) -> Mapping[str, Any]:
    by = By.APP if ask.query.get("by") == By.APP else By.LEVEL
    now = await ask.do(GetNow())
    hour = await ask.do(GetHour(by=by))
    points = [(one.at_ms, one.per_s) for one in hour.points]
    names = {one.task: one.name for one in now.tasks}
    return {
        "now": now,
        "names": defaultdict(str, names),
        "most": _most(now),
        "by": by,
        "hour": chart(
            points, marks_of(hour.marks), now.at_ms, [spell_of(one, names) for one in hour.spans]
        ),
        "marks": hour.marks[:_MARKS_SHOWN],
        "all_marks": len(hour.marks),
        "is_told": ask.may(ListAudit),
        "is_new": _is_new(hour, now),
        **await _weights(ask),
    }


class WeightsUndo(NamedTuple):
    """The weights before they were changed in the last minutes, by whom, and when (Unix ms)."""

    weights: str
    who: str
    at_ms: int


async def _weights(ask: Ask) -> Mapping[str, Any]:
    """Return the weights of the levels for who may set others, and what they were just now."""
    if not ask.may(SetLevels):
        return {"weights": "", "undo": None}
    now, undo = str((await ask.quietly(GetLevels())).weights), None
    for entry in await ask.quietly(ListAudit(find="levels", limit=_LOOKED_AT)):
        before = str(entry.before.get("weights", ""))
        if entry.subject == "levels" and before and entry.at_ms > now_ms() - UNDO_MS:
            undo = WeightsUndo(before, entry.who, entry.at_ms)
            break
    return {"weights": now, "undo": undo}


def _most(now: NowView) -> dict[str, float]:
    """Return by sink the rate that fills a bar."""
    found: dict[str, float] = {}
    for one in now.shares:
        rates = (one.observed_per_s or 0.0, one.entitled_per_s or 0.0)
        found[one.sink] = max(found.get(one.sink, 0.0), *rates)
    return found


def _is_new(hour: HourView, now: NowView) -> bool:
    """Tell whether nobody looked at this process before the last minute."""
    return hour.since_ms is None or now.at_ms - hour.since_ms < 60_000


NOW = Page("/now", "Now", "now.html", GetNow, _values, query=("by",))
