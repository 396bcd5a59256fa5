"""Makes a whole report: the breakdown that was asked for, and the sections of every report.

Its notes say what of the period is sampled, no longer kept, or cut by its ends. All times are Unix
milliseconds, all days and hours those of UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pushlane.pipeline.reports import sections
from pushlane.pipeline.reports.answers import (
    MOST_REASONS,
    Count,
    Names,
    Report,
    Share,
    by_id,
    funnel,
    title_of,
)
from pushlane.pipeline.reports.engine import COUNTED, ROLLED_UP_MS, Engine, Sql
from pushlane.pipeline.reports.query import Condition, Dimension, Period, Query, utc_text
from pushlane.pipeline.reports.sections import count, lateness, recipients, wait_parts
from pushlane.pipeline.reports.sources import where_clause, within
from pushlane.pipeline.store import SampledBatch, Store
from pushlane.pipeline.store.reading import ADDITIVE


def names(engine: Engine, query: Query) -> Names:
    """Return the names by id of all tasks of the period; empty for a task without a name.

    A query of some apps knows those of these alone.
    """
    of_apps = tuple(one for one in query.where if one.dimension.word == "app")
    wanted = where_clause(Query(query.period, where=of_apps))
    text = (
        f"select task_id, max(task_name) from {engine.table(COUNTED)} "
        f"where {wanted.text} group by all"
    )
    used = {name: one for name, one in wanted.values.items() if name.startswith("value")}
    return dict(engine.rows(Sql(text, used)))


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
    details = kept_since_ms(store)
    if details is not None and period.since_ms < details:
        yield (
            f"detail rows are kept from {utc_text(details)} on: --rows, and counts by several "
            "attributes, by attribute and reason, or of events by attribute, know none before"
        )


def kept_since_ms(store: Store) -> int | None:
    """Return since when detail rows are kept (Unix ms); None where no day of them was removed."""
    details, counts = (_first_ms(store, tables) for tables in (("detail",), ADDITIVE))
    if details is None or counts is None or counts // DAY_MS >= details // DAY_MS:
        return None
    return details


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


_MOST_TASKS = 8
_LEVEL, _TASK, _REASON, _HOUR = map(Dimension, ("level", "task", "reason", "hour"))
_DEAD = Condition(Dimension("outcome"), ("dead",))
_DELIVERED = Condition(Dimension("outcome"), ("delivered",))
_MOST_HOURS = 24 * 366


def build_report(
    store: Store, engine: Engine, query: Query, *, limit: int, submitted: int | None = None
) -> Report:
    """Make the report; `submitted` is what the registry knows, None if it was not asked.

    Raises what `by_id` does, and CorruptStore if a file cannot be read.
    """
    known = names(engine, query)
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
    delivered = bare.broken_down_by(_LEVEL).filtered(_DELIVERED)
    return Report(
        title=title_of(query, known),
        query=query,
        span=span,
        names=known,
        counts=count(engine, query, limit),
        total=total,
        levels=count(engine, bare.broken_down_by(_LEVEL), len(known) + 10).rows,
        recipients=min(found, steps.submitted) if steps.submitted_is_known else found,
        funnel=steps,
        latency=lateness(engine, delivered),
        waits=wait_parts(engine, delivered),
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


def _largest(found: Sequence[Share]) -> list[Share]:
    """Return the shares of the tasks that sent most: a picture cannot tell more of them apart."""
    sent: Counter[str] = Counter()
    for share in found:
        sent[share.name] += share.n
    largest = {name for name, _ in sent.most_common(_MOST_TASKS)}
    return [share for share in found if share.name in largest]
