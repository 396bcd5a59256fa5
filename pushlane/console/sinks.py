"""The page of sinks: how each stands and what rests, what is limited, and what is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pushlane.console.pages import Ask, Page
from pushlane.console.steering import undoable_limits
from pushlane.core.errors import PushlaneError
from pushlane.core.turns import EVERY_APP
from pushlane.operations.processes import ListProcesses, Process
from pushlane.operations.session import Beside
from pushlane.operations.shares import ClearLimit, GetLimit, LimitView, ListLimits, SetLimit
from pushlane.operations.sinks import AcceptSink, GetAccepted, ListSinks, SinkView
from pushlane.util.errors import Unauthorized
from pushlane.util.texts import rate_text

_LIMITS_SHOWN = 200
_TOTALS = {
    "in_flight": "in flight",
    "total": "in all",
    "total_cost": "of cost in all",
    "a_day": "a day",
    "cost_a_day": "of cost a day",
}


class SinkRow(NamedTuple):
    """A sink, what live processes say of it together, and its limits.

    `slots`, `in_flight` and `per_s` (deliveries a second) are None where nobody serves it.
    `resting` are the processes in which it rests; `is_unproven` if in one of them it does so as it
    has never delivered.
    """

    view: SinkView
    slots: int | None
    in_flight: int | None
    per_s: float | None
    resting: Sequence[Process]
    is_unproven: bool
    limits: Sequence[str]


async def _values(ask: Ask) -> Mapping[str, Any]:
    sinks = await ask.do(ListSinks())
    limits = await ask.do(ListLimits())
    processes = await ask.quietly(ListProcesses())
    by_subject = {one.subject: one for one in limits}
    may = {"limit": ask.may(SetLimit), "accept": ask.may(AcceptSink)}
    if may["limit"]:  # how they are steered elsewhere
        ask.asked += [
            SetLimit(subject="sink/NAME", rate_per_s="100/s"),
            ClearLimit(subject="sink/NAME"),
        ]
    if may["accept"]:
        ask.asked.append(AcceptSink(sink="NAME"))
    return {
        "sinks": [_row(one, processes, by_subject.get(f"sink/{one.sink}")) for one in sinks],
        "limits": [(one, limit_texts(one)) for one in limits[:_LIMITS_SHOWN]],
        "all_limits": len(limits),
        "may": may,
        **({"undo": (), "limited": None, "believed": None} if ask.is_again else await _asked(ask)),
    }


def _row(view: SinkView, processes: Sequence[Process], limit: LimitView | None) -> SinkRow:
    name = view.sink
    serving = [one for one in processes if name in one.sink_names and not one.is_starting]
    stands = [one.at(name) for one in serving]
    is_served = bool(stands)
    return SinkRow(
        view,
        sum(one.slots for one in stands) if is_served else None,
        sum(one.in_flight for one in stands) if is_served else None,
        sum(sum(one.delivered_per_s.values()) for one in stands) if is_served else None,
        [one for one in serving if one.at(name).resting is not None],
        any(one.resting is not None and one.resting.is_unproven for one in stands),
        limit_texts(limit) if limit else (),
    )


def limit_texts(view: LimitView) -> list[str]:
    """Return what is limited, for people, each with what is used of it."""
    limit = view.limit
    found = [] if limit.rate_per_s is None else [rate_text(limit.rate_per_s)]
    for name, words in _TOTALS.items():
        most = getattr(limit, name)
        if most is None:
            continue
        if view.subject == f"app/{EVERY_APP}":
            found.append(f"{most:,.10g} {words} each")
        else:
            found.append(f"{view.used.get(name, 0):,.10g} of {most:,.10g} {words}")
    for level, count in limit.recipient_a_day.items():
        found.append(f"{count:,} a recipient a day, {level}")
    return found


class Limited(NamedTuple):
    """The subject whose limits are being changed, as they are; `error` says why they cannot be."""

    subject: str
    limits: Sequence[str] = ()
    remark: str = ""
    error: str = ""


class Believed(NamedTuple):
    """The sink of which it is asked whether its final answers are believed, with its tag."""

    sink: str
    is_accepted: bool = False
    targets: Sequence[str] = ()
    seen: str = ""
    error: str = ""


async def _asked(ask: Ask) -> Mapping[str, Any]:
    """Return what is asked for beside the page: it stays while that changes."""
    subject, sink = ask.query.get("limit", ""), ask.query.get("accept", "")
    return {
        "undo": await undoable_limits(ask, "sinks"),
        "limited": await _limited(ask, subject) if subject and ask.may(SetLimit) else None,
        "believed": await _believed(ask, sink) if sink and ask.may(AcceptSink) else None,
    }


async def _limited(ask: Ask, subject: str) -> Limited:
    try:
        found = await ask.quietly(GetLimit.made(subject=subject))
    except Unauthorized:
        raise
    except PushlaneError as error:
        return Limited(subject, error=str(error))
    return Limited(found.subject, limit_texts(found), found.remark or "")


async def _believed(ask: Ask, sink: str) -> Believed:
    beside = Beside()
    try:
        found = await ask.quietly(GetAccepted(sink=sink), beside)
    except Unauthorized:
        raise
    except PushlaneError as error:
        return Believed(sink, error=str(error))
    targets = [str(one) for one in found.targets]
    return Believed(found.sink, found.accepted, targets, beside.tag or "")


SINKS = Page("/sinks", "Sinks", "sinks.html", ListSinks, _values, query=("limit", "accept"))
