"""The page of now: who gets what beside what they are entitled to, and what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pushlane.console.lines import HEIGHT, WIDTH, chart
from pushlane.console.pages import Ask, Page
from pushlane.operations.now import By, GetHour, GetNow, HourView, NowView


async def _values(ask: Ask) -> Mapping[str, Any]:
    by = By.APP if ask.query.get("by") == By.APP else By.LEVEL
    now = await ask.do(GetNow())
    hour = await ask.do(GetHour(by=by))
    marks = [(one.at_ms, f"{one.operation} of {one.subject} by {one.who}") for one in hour.marks]
    return {
        "now": now,
        "most": _most(now),
        "by": by,
        "hour": chart([(one.at_ms, one.per_s) for one in hour.points], marks, now.at_ms),
        "is_new": _is_new(hour, now),
        "width": WIDTH,
        "height": HEIGHT,
    }


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
