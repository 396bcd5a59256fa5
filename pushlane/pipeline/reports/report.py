"""Makes a whole report: the breakdown that was asked for, and the sections of every report.

All times are Unix milliseconds, all days and hours those of UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pushlane.pipeline.reports import caveats, sections, tasks
from pushlane.pipeline.reports.conditions import Condition
from pushlane.pipeline.reports.counts import Count, CountRows, count
from pushlane.pipeline.reports.dimensions import Dimension
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.latency import Lateness, lateness
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.recipients import recipients
from pushlane.pipeline.reports.sections import Share
from pushlane.pipeline.reports.sources import where_clause, within
from pushlane.pipeline.store import Store

MOST_REASONS = 12
_MOST_TASKS = 8
_LEVEL, _TASK, _REASON, _HOUR = map(Dimension, ("level", "task", "reason", "hour"))
_DEAD = Condition(Dimension("outcome"), ("dead",))
_DELIVERED = Condition(Dimension("outcome"), ("delivered",))
_MOST_HOURS = 24 * 366


@dataclass(frozen=True)
class Report:
    """The sections of a report; `counts` is the breakdown, and the rest is of the same receipts.

    `span` is the part of the period that has any receipts. `names` maps ids of tasks to their
    names.
    """

    title: str
    query: Query
    span: Period | None
    names: tasks.Names
    counts: CountRows
    total: Count
    levels: list[Count]
    recipients: int
    funnel: Funnel
    latency: list[Lateness]
    deaths: list[Count]
    step_ms: int
    level_shares: list[Share]
    task_shares: list[Share]
    hours: list[Count]
    notes: list[str]


def build_report(
    store: Store,
    engine: Engine,
    query: Query,
    *,
    limit: int,
    submitted: int | None = None,
) -> Report:
    """Make the report; `submitted` is what the registry knows, None if it was not asked.

    Raises:
        UnknownTask: the question names a task without receipts.
        CorruptStore: a file cannot be read.
    """
    known = tasks.names(engine)
    query = tasks.by_id(query, known)
    bare = query.broken_down_by()
    total = next(iter(count(engine, bare, 1).rows), Count((), 0, {}))
    steps = funnel(total.by_outcome, submitted)
    span = extent(engine, query)
    step = sections.step_ms(span) if span else 0
    sent = sections.sent(engine, Query(span, (), _of_sinks(bare))) if span else []
    return Report(
        title=_title(query, known),
        query=query,
        span=span,
        names=known,
        counts=count(engine, query, limit),
        total=total,
        levels=count(engine, bare.broken_down_by(_LEVEL), len(known) + 10).rows,
        recipients=_recipients(recipients(engine, bare).get((), 0), steps),
        funnel=steps,
        latency=lateness(engine, bare.broken_down_by(_LEVEL).filtered(_DELIVERED)),
        deaths=count(engine, bare.broken_down_by(_REASON).filtered(_DEAD), MOST_REASONS).rows,
        step_ms=step,
        level_shares=sections.by_level(sent, step) if step else [],
        task_shares=_largest(sections.by_task(sent, step)) if step else [],
        hours=count(engine, bare.broken_down_by(_HOUR).filtered(_DELIVERED), _MOST_HOURS).rows,
        notes=caveats.notes(store, engine.period),
    )


def extent(engine: Engine, query: Query) -> Period | None:
    """Return the period from the first to the last minute with receipts; None if there are none."""
    kept = tuple(each for each in query.where if not each.dimension.attribute)
    wanted = where_clause(Query(query.period, (), kept))
    text = (
        f"select min(minute_ms), max(minute_ms) from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and {wanted.text}"
    )
    period = {"since_ms": query.period.since_ms, "until_ms": query.period.until_ms}
    [(first, last)] = engine.rows(Sql(text, {**period, **wanted.values}))
    return None if first is None else Period.of(first, last + 1)


def _recipients(estimate: int, steps: Funnel) -> int:
    """Return the estimate, cut to the pushes that were submitted where that is known."""
    return min(estimate, steps.submitted) if steps.submitted_is_known else estimate


def _title(query: Query, names: tasks.Names) -> str:
    """Return a title: the one task that is asked for, or all of them."""
    asked = [each for each in query.where if each.dimension == _TASK and not each.negated]
    if len(asked) != 1 or len(asked[0].values) != 1:
        return "All tasks"
    [task_id] = asked[0].values
    name = names.get(task_id)
    return f"Task {name} ({task_id})" if name else f"Task {task_id}"


def _of_sinks(query: Query) -> tuple[Condition, ...]:
    """Return the conditions on sinks alone, since others would hide competing tasks."""
    return tuple(each for each in query.where if each.dimension.word == "sink")


def _largest(found: Sequence[Share]) -> list[Share]:
    """Return the shares of the tasks that sent most: a picture cannot tell more of them apart."""
    sent: dict[str, int] = {}
    for share in found:
        sent[share.name] = sent.get(share.name, 0) + share.n
    largest = set(sorted(sent, key=lambda name: -sent[name])[:_MOST_TASKS])
    return [share for share in found if share.name in largest]


@dataclass(frozen=True)
class Funnel:
    """The steps from submitted to clicked; each counts pushes, none more than the one before.

    `submitted` are the totals of the tasks if the registry knows them, else the pushes that have
    finished. `sent` are pushes whose delivery ended at the sink: delivered, or dead.
    """

    submitted: int
    sent: int
    delivered: int
    displayed: int
    clicked: int
    submitted_is_known: bool = False

    def steps(self) -> list[tuple[str, int]]:
        names = ("submitted", "sent", "delivered", "displayed", "clicked")
        return [(name, getattr(self, name)) for name in names]


def funnel(by_outcome: Mapping[str, int], submitted: int | None = None) -> Funnel:
    """Return the steps of these counts; `submitted` of None is not known.

    Pushes that finished before the period began can be displayed in it, so each step is cut to the
    one before.
    """
    delivered = by_outcome.get("delivered", 0)
    sent = delivered + by_outcome.get("dead", 0)
    finished = sent + by_outcome.get("expired", 0) + by_outcome.get("dropped", 0)
    displayed = min(by_outcome.get("displayed", 0), delivered)
    return Funnel(
        submitted=max(finished, submitted or 0),
        sent=sent,
        delivered=delivered,
        displayed=displayed,
        clicked=min(by_outcome.get("clicked", 0), displayed),
        submitted_is_known=submitted is not None,
    )
