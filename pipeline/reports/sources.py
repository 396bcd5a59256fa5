"""Where a question is answered from: the smallest table that knows all it asks for.

Each source has the same columns: minute_ms, task_id, app, level, sink, outcome, reason, `a0`, `a1`
… for the attributes, and `n` with its `variance`. Rows of one key add up, and may be negative.
"""

from __future__ import annotations

from typing import NamedTuple

from lanes.push import Kind
from lanes.receipt import Event
from pipeline.reports.engine import COUNTED, Engine, Sql
from pipeline.reports.query import Query

EVENTS = tuple(event.value for event in Event)
OUTCOMES = (*(kind.value for kind in Kind), *EVENTS)
_LABELS = "minute_ms, task_id, app, level, sink, outcome"
NO_EVENT = f"outcome not in ({', '.join(repr(event) for event in EVENTS)})"
_WEIGHED = "sample_weight as n, sample_weight * (sample_weight - 1) as variance"


class Source(NamedTuple):
    """A subquery, and whether it reads detail rows, which may be a sample."""

    sql: Sql
    reads_detail: bool


def counted(engine: Engine, query: Query) -> Source:
    """Where to count receipts and events for this question."""
    if not query.attributes:
        return Source(Sql(_minutes(engine), bound(query)), reads_detail=False)
    parts = []
    if is_aggregated(engine, query):
        parts = [_one_attribute(engine)]
        in_detail = _events(engine) if asks_events(query) else ""
    else:
        in_detail = detailed(engine, query)
    if in_detail:
        columns = f"{_LABELS}, reason{_names(query)}, {_WEIGHED}"
        parts.append(f"select {columns} from ({with_minute(query, in_detail)})")
    return Source(Sql(" union all ".join(parts), bound(query)), reads_detail=bool(in_detail))


def detailed(engine: Engine, query: Query) -> str:
    """Detail rows of receipts, and of events when they are asked for; `at_ms` is when each was."""
    finished = finished_rows(engine)
    return f"{finished} union all {_events(engine)}" if asks_events(query) else finished


def finished_rows(engine: Engine) -> str:
    """Detail rows of receipts alone."""
    return (
        f"select *, responded_at_ms as at_ms from {engine.table('detail')} "
        f"where {within('responded_at_ms')}"
    )


def with_minute(query: Query, rows: str) -> str:
    """These detail rows with their minute, and the attributes that are asked for."""
    attributes = "".join(
        f", coalesce(attributes[$name{place}], '') as a{place}"
        for place in range(len(query.attributes))
    )
    return f"select *, at_ms - at_ms % 60000 as minute_ms{attributes} from ({rows})"


def within(column: str) -> str:
    """Whether a time falls into the period."""
    return f"{column} >= $since_ms and {column} < $until_ms"


def bound(query: Query) -> dict[str, object]:
    """The values that these pieces of SQL name."""
    names = {f"name{place}": name for place, name in enumerate(query.attributes)}
    return {"since_ms": query.period.since_ms, "until_ms": query.period.until_ms, **names}


def is_aggregated(engine: Engine, query: Query) -> bool:
    """Whether the counts of single attributes are enough, as finely as time is asked for."""
    is_kept = len(query.attributes) == 1 and not query.asks_reason
    return is_kept and query.finest_ms >= engine.coarsest_ms


def asks_events(query: Query) -> bool:
    """Whether the conditions on the outcome leave any event to count."""
    left = set(EVENTS)
    for condition in query.where:
        if condition.dimension.word == "outcome":
            named = left & set(condition.values)
            left = left - named if condition.negated else named
    return bool(left)


def _names(query: Query) -> str:
    return "".join(f", a{place}" for place in range(len(query.attributes)))


def _minutes(engine: Engine) -> str:
    return (
        f"select {_LABELS}, reason, n, 0 as variance "
        f"from {engine.table(COUNTED)} where {within('minute_ms')}"
    )


def _one_attribute(engine: Engine) -> str:
    """All receipts as if they had no value, and then each value, taken away from those."""
    values = (
        f"from {engine.table('attributes')} "
        f"where attribute = $name0 and {within('minute_ms')} and {NO_EVENT}"
    )
    return (
        f"select {_LABELS}, '' as reason, '' as a0, n, 0 as variance "
        f"from {engine.table(COUNTED)} where {within('minute_ms')} and {NO_EVENT} "
        f"union all select {_LABELS}, '', value, n, 0 {values} "
        f"union all select {_LABELS}, '', '', -n, 0 {values}"
    )


def _events(engine: Engine) -> str:
    """Rows of pushes again, as events, whenever the push itself had finished.

    What a device says comes from no sink, here as in the aggregates.
    """
    pushes = engine.all_of("detail")
    merged = (
        f"select * replace ('{event}' as outcome, '' as reason, '' as sink), "
        f"{event}_at_ms as at_ms "
        f"from {pushes} where {within(f'{event}_at_ms')}"
        for event in EVENTS
    )
    return " union all ".join([*merged, _unmerged(engine, pushes)])


def _unmerged(engine: Engine, pushes: str) -> str:
    """Events that no row tells yet; of a push without a row, with what they tell themselves."""
    unknown = ", ".join(f"coalesce(push.{name}, '') as {name}" for name in ("app", "level"))
    return (
        "select push.* replace (event.task_id as task_id, event.seq as seq, "
        f"event.outcome as outcome, '' as reason, '' as sink, {unknown}, "
        "coalesce(push.attributes, event.attributes) as attributes, "
        "coalesce(push.sample_weight, 1) as sample_weight), event.at_ms as at_ms "
        f"from {engine.table('events')} event left join {pushes} push "
        "on push.task_id = event.task_id and push.seq = event.seq and push.outcome <> 'retry' "
        f"where {within('event.at_ms')}"
    )
