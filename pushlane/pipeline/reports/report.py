"""Makes a whole report: the breakdown that was asked for, and the sections of every report.

Its notes say what of the period is sampled, no longer kept, or cut by its ends. All times are Unix
milliseconds, all days and hours those of UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pushlane.pipeline.reports import sections
from pushlane.pipeline.reports.engine import COUNTED, ROLLED_UP_MS, Engine, Sql
from pushlane.pipeline.reports.query import Condition, Dimension, Period, Query, utc_text
from pushlane.pipeline.reports.sections import (
    Count,
    CountRows,
    Lateness,
    Share,
    count,
    lateness,
    recipients,
)
from pushlane.pipeline.reports.sources import where_clause, within
from pushlane.pipeline.store import SampledBatch, Store
from pushlane.pipeline.store.reading import ADDITIVE
from pushlane.util.errors import UnknownTask
from pushlane.util.texts import ambiguous_task, did_you_mean

Names = dict[str, str]


def names(engine: Engine) -> Names:
    """Return the names by id of all tasks of the period; empty for a task without a name."""
    text = f"select task_id, max(task_name) from {engine.table(COUNTED)} group by all"
    return dict(engine.rows(Sql(text)))


def by_id(query: Query, known: Names) -> Query:
    """Return the question with ids in place of the names of tasks.

    Raises UnknownTask if no task in the store, or several, have such an id or name.
    """
    where = (
        replace(each, values=tuple(_id_of(value, known) for value in each.values))
        if each.dimension.word == "task"
        else each
        for each in query.where
    )
    return replace(query, where=tuple(where))


def _id_of(word: str, known: Names) -> str:
    if word in known:
        return word
    ids = [task_id for task_id, name in known.items() if name == word]
    if not ids:
        hint = did_you_mean(word, {*known, *known.values()} - {""})
        raise UnknownTask(f"no receipts of a task {word!r} in this period{hint}")
    if len(ids) > 1:
        raise ambiguous_task(word, ids)
    return ids[0]


DAY_MS = 86_400_000
_MOST_SHOWN = 5


def sampled(store: Store, period: Period) -> list[SampledBatch]:
    """Return the batches of the period whose detail rows are a sample, oldest first."""
    return [
        each
        for each in store.snapshot().intervals
        if each.state != "restored"
        and each.max_ms >= period.since_ms
        and each.min_ms < period.until_ms
    ]


def notes(store: Store, period: Period) -> list[str]:
    """Return what a reader of this period has to know, one line each."""
    return [*_cut_steps(store, period), *_gone(store, period), *_sampled(sampled(store, period))]


def _gone(store: Store, period: Period) -> Iterator[str]:
    """Note if the period has counts whose detail rows are no longer kept."""
    details, counts = (_first_ms(store, tables) for tables in (("detail",), ADDITIVE))
    if details is None or counts is None or counts // DAY_MS >= details // DAY_MS:
        return
    if period.since_ms < details:
        yield (
            f"detail rows are kept from {utc_text(details)} on: --rows, and counts by several "
            "attributes, by attribute and reason, or of events by attribute, know none before"
        )


def _first_ms(store: Store, tables: Iterable[str]) -> int | None:
    return min((each.min_ms for table in tables for each in store.entries(table)), default=None)


def _sampled(intervals: list[SampledBatch]) -> Iterator[str]:
    for each in intervals[:_MOST_SHOWN]:
        yield (
            f"{utc_text(each.min_ms)} to {utc_text(each.max_ms)}: detail rows hold "
            f"{each.rate:.0%} of the delivered ({each.why})"
        )
    if (more := len(intervals) - _MOST_SHOWN) > 0:
        yield f"and {more} more such stretches"
    if intervals:
        yield (
            "counts by attributes in these stretches are estimated from the sample; all others are "
            "exact"
        )


def _cut_steps(store: Store, period: Period) -> Iterator[str]:
    """Note each end of the period that cuts an hour or day by which counts are kept.

    The first instant of such a step decides for all of it.
    """
    ends = {period.since_ms: "is left out", period.until_ms: "is counted as a whole"}
    for end_ms, what in ends.items():
        for table, step_ms in reversed(ROLLED_UP_MS.items()):
            start_ms = end_ms - end_ms % step_ms
            if start_ms < end_ms and store.files(table, start_ms, start_ms + 1):
                word = table.removesuffix("s")
                yield f"counts are kept by the {word} there: that of {utc_text(start_ms)} {what}"
                break


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
    names: Names
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
    store: Store, engine: Engine, query: Query, *, limit: int, submitted: int | None = None
) -> Report:
    """Make the report; `submitted` is what the registry knows, None if it was not asked.

    Raises what `by_id` does, and CorruptStore if a file cannot be read.
    """
    known = names(engine)
    query = by_id(query, known)
    bare = query.broken_down_by()
    total = next(iter(count(engine, bare, 1).rows), Count((), 0, {}))
    steps = funnel(total.by_outcome, submitted)
    span = extent(engine, query)
    step = sections.step_ms(span) if span else 0
    # Of sinks alone, since other conditions would hide competing tasks.
    of_sinks = tuple(each for each in query.where if each.dimension.word == "sink")
    sent = sections.sent(engine, Query(span, where=of_sinks)) if span else []
    found = recipients(engine, bare).get((), 0)
    return Report(
        title=_title(query, known),
        query=query,
        span=span,
        names=known,
        counts=count(engine, query, limit),
        total=total,
        levels=count(engine, bare.broken_down_by(_LEVEL), len(known) + 10).rows,
        recipients=min(found, steps.submitted) if steps.submitted_is_known else found,
        funnel=steps,
        latency=lateness(engine, bare.broken_down_by(_LEVEL).filtered(_DELIVERED)),
        deaths=count(engine, bare.broken_down_by(_REASON).filtered(_DEAD), MOST_REASONS).rows,
        step_ms=step,
        level_shares=sections.by_level(sent, step) if step else [],
        task_shares=_largest(sections.by_task(sent, step)) if step else [],
        hours=count(engine, bare.broken_down_by(_HOUR).filtered(_DELIVERED), _MOST_HOURS).rows,
        notes=notes(store, engine.period),
    )


def extent(engine: Engine, query: Query) -> Period | None:
    """Return the period from the first to the last minute with receipts; None if there are none."""
    kept = tuple(each for each in query.where if not each.dimension.attribute)
    wanted = where_clause(Query(query.period, where=kept))
    text = (
        f"select min(minute_ms), max(minute_ms) from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and {wanted.text}"
    )
    [(first, last)] = engine.rows(Sql(text, wanted.values))
    return None if first is None else Period.of(first, last + 1)


def _title(query: Query, names: Names) -> str:
    """Return a title: the one task that is asked for, or all of them."""
    asked = [each for each in query.where if each.dimension == _TASK and not each.negated]
    if len(asked) != 1 or len(asked[0].values) != 1:
        return "All tasks"
    [task_id] = asked[0].values
    name = names.get(task_id)
    return f"Task {name} ({task_id})" if name else f"Task {task_id}"


def _largest(found: Sequence[Share]) -> list[Share]:
    """Return the shares of the tasks that sent most: a picture cannot tell more of them apart."""
    sent: Counter[str] = Counter()
    for share in found:
        sent[share.name] += share.n
    largest = {name for name, _ in sent.most_common(_MOST_TASKS)}
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
    of = Counter(by_outcome)
    sent = of["delivered"] + of["dead"]
    displayed = min(of["displayed"], of["delivered"])
    return Funnel(
        submitted=max(sent + of["expired"] + of["dropped"], submitted or 0),
        sent=sent,
        delivered=of["delivered"],
        displayed=displayed,
        clicked=min(of["clicked"], displayed),
        submitted_is_known=submitted is not None,
    )
