"""The page of alerts: what fires, what it means and who knows of it, and what is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pushlane.console.pages import Ask, Page
from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.operations.alerts import (
    AcknowledgeAlert,
    AlertGroupView,
    AlertListed,
    AlertNow,
    GetAlert,
    ListAlerts,
    MeasureAlert,
    PutAlert,
    RemoveAlert,
)
from pushlane.util.errors import NotFound, Unauthorized

_SHOWN = 200
_OVER = 10
_GROUPS = 20
"""The page shows the groups of this many alerts, and this many groups of each."""


class GroupRow(NamedTuple):
    """A group of an alert, by the name that it has there."""

    name: str
    group: AlertGroupView

    @property
    def state(self) -> str:
        """Return its state: alarming, firing, acknowledged or recovered."""
        if self.group.pending == "recovered":
            return "recovered"
        if not self.group.told:
            return "alarming"
        return "acknowledged" if self.group.acknowledged_by else "firing"

    @property
    def text(self) -> str:
        """The values of the group, for people."""
        return (
            ", ".join(f"{by} {value or '(none)'}" for by, value in self.group.of.items()) or "all"
        )


class Over(NamedTuple):
    """An alert of which something is over its threshold: `rows` of them, `left` more."""

    alert: AlertNow
    rows: Sequence[GroupRow]
    left: int


async def _values(ask: Ask) -> Mapping[str, Any]:
    found = await ask.do(ListAlerts())
    over = sorted((one for one in found if one.firing or one.alarming), key=_place)
    may = {"acknowledge": ask.may(AcknowledgeAlert), "put": ask.may(PutAlert)}
    if may["acknowledge"]:  # how it is done elsewhere
        ask.asked.append(AcknowledgeAlert(name="NAME", reason="we know"))
    if may["put"]:
        ask.asked += _EXAMPLES
    return {
        "alerts": [*over, *(one for one in found if one not in over)][:_SHOWN],
        "all_alerts": len(found),
        "looked_at_ms": found[0].looked_at_ms if found else None,
        "overdue": any(one.overdue for one in found),
        "firing": sum(one.firing for one in found),
        "unknown": sum(one.firing - one.acknowledged for one in found),
        "over": [shown for one in over[:_OVER] if (shown := await _over(ask, one.name))],
        "left": max(0, len(over) - _OVER),
        "may": may,
        "wanted": None if ask.is_again or not may["acknowledge"] else await _wanted(ask),
    }


_EXAMPLES = (
    PutAlert.made(
        name="failing",
        metric="failure_rate",
        when="> 5%",
        to="https://hooks.example.com/alerts",
        by="sink,app",
        at_least=200,
    ),
    RemoveAlert(name="NAME"),
)


def _place(one: AlertListed) -> tuple[bool, int, str]:
    """Return the place of an alert: first those that nobody knows of, the latest to fire first."""
    return one.firing <= one.acknowledged, -(one.firing_since_ms or 0), one.name


async def _over(ask: Ask, name: str) -> Over | None:
    """Return what of an alert is over its threshold; None if it was removed meanwhile."""
    try:
        alert = await ask.quietly(GetAlert(name=name))
    except NotFound:
        return None
    rows = sorted(_rows(alert), key=lambda one: (_STATES.index(one.state), -one.group.since_ms))
    return Over(alert, rows[:_GROUPS], max(0, len(rows) - _GROUPS))


_STATES = ("firing", "acknowledged", "alarming", "recovered")


def _rows(alert: AlertNow) -> list[GroupRow]:
    return [GroupRow(*one) for one in alert.groups.items()]


class Wanted(NamedTuple):
    """An acknowledgement that is being typed: of a group, or of all that fires of an alert.

    `error` says why that cannot be.
    """

    alert: str
    group: str
    text: str = ""
    error: str = ""


async def _wanted(ask: Ask) -> Wanted | None:
    name, group = ask.query.get("acknowledge", ""), ask.query.get("group", "")
    if not name:
        return None
    try:
        alert = await ask.quietly(GetAlert.made(name=name))
    except Unauthorized:
        raise
    except PushlaneError as error:
        return Wanted(name, group, error=str(error))
    firing = [one for one in _rows(alert) if one.state == "firing" and group in ("", one.name)]
    if not firing:
        return Wanted(name, group, error="It does not fire any longer, or is acknowledged already.")
    return Wanted(name, group, firing[0].text if group else "all that fires")


ALERTS = Page(
    "/alerts", "Alerts", "alerts.html", ListAlerts, _values, query=("acknowledge", "group")
)


async def _figures(ask: Ask) -> Mapping[str, Any]:
    """Measure an alert: it reads the store of reports, so nobody is shown it unless they ask."""
    name = ask.parts["alert"]
    figures, error = [], ""
    try:
        figures = await ask.do(MeasureAlert(name=name))
    except (NotFound, Unauthorized):
        raise
    except PushlaneError as problem:
        error = str(problem)
    return {
        "title": f"Alert {name}, measured",
        "alert": await ask.quietly(GetAlert(name=name)),
        "figures": sorted(figures, key=lambda one: not one.alarming)[:_SHOWN],
        "all_figures": len(figures),
        "error": error,
        "at_ms": now_ms(),
    }


FIGURES = Page("/alerts/{alert}", "Figures", "figures.html", MeasureAlert, _figures, is_live=False)
