"""Chooses where a question is answered from: the smallest table that knows all it asks for.

Each source has the same columns: minute_ms, task_id, app, level, sink, outcome, reason, `a0`, `a1`
… for the attributes, and `n` with its `variance`. Rows of one key add up, and may be negative.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.pipeline.reports.answers import EVENTS
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import ATTRIBUTE, TIMES_MS, Condition, Dimension, Query

_LABELS = "minute_ms, task_id, app, level, sink, outcome"
NO_EVENT = f"outcome not in ({', '.join(repr(event) for event in EVENTS)})"
_OF_PUSH = ("task", "app", "level", "attribute")
"""The dimensions that a receipt shares with the events of the same push."""
_WEIGHED = "sample_weight as n, sample_weight * (sample_weight - 1) as variance"


def counted(engine: Engine, query: Query) -> Sql:
    """Return the source to count receipts and events in for this question."""
    if not query.attributes:
        text = (
            f"select {_LABELS}, reason, n, 0 as variance "
            f"from {engine.table(COUNTED)} where {within('minute_ms')}"
        )
        return Sql(text, bound(query))
    if not is_aggregated(engine, query):
        return _in_detail(engine, query, finished=True)
    kept = Sql(_one_attribute(engine), bound(query))
    if not asks_events(query):
        return kept
    events = _in_detail(engine, query, finished=False)
    return Sql(f"{kept.text} union all {events.text}", {**kept.values, **events.values})


def detailed(engine: Engine, query: Query) -> str:
    """Return detail rows of receipts, and of events if asked for, each with its `at_ms`."""
    finished = finished_rows(engine)
    return f"{finished} union all {_events(engine)}" if asks_events(query) else finished


def finished_rows(engine: Engine) -> str:
    """Return detail rows of receipts alone."""
    return (
        f"select *, responded_at_ms as at_ms from {engine.table('detail')} "
        f"where {within('responded_at_ms')}"
    )


def _in_detail(engine: Engine, query: Query, *, finished: bool) -> Sql:
    """Return counts from detail rows: of events, and of receipts if they are wanted too."""
    if asks_events(query) and query.finest_ms >= TIMES_MS["hour"]:
        return _in_one_pass(engine, query, finished=finished)
    rows = detailed(engine, query) if finished else _events(engine)
    columns = f"{_LABELS}, reason{_names(query)}, {_WEIGHED}"
    return Sql(f"select {columns} from ({with_minute(query, rows)})", bound(query))


def _in_one_pass(engine: Engine, query: Query, *, finished: bool) -> Sql:
    """Return counts of receipts and events from one scan, as reading attributes takes longest.

    Rows are first grouped with all of their times, as far as those fall into the period, and each
    group then counts once for each of its times.
    """
    step = min((d.step_ms for d in query.by if d.step_ms), default=0)
    times = {"": "responded_at_ms", **{event: f"{event}_at_ms" for event in EVENTS}}
    wanted = {kind: at for kind, at in times.items() if kind or finished}
    pushes = where_clause(query, _OF_PUSH)
    starts = ", ".join(
        f"case when {within(at)} then {_start(at, step)} end as {at}" for at in wanted.values()
    )
    grouped = (
        f"select {_only_asked(query)}, {starts}{_attributes(query)}, "
        "sum(sample_weight) as n, sum(sample_weight * (sample_weight - 1)) as variance "
        f"from {engine.all_of('detail')} "
        f"where {' or '.join(f'({within(at)})' for at in wanted.values())} group by all"
    )
    parts = " union all ".join(_of_kind(query, kind, at) for kind, at in wanted.items())
    unmerged = with_minute(query, _unmerged(engine, engine.all_of("detail")))
    text = (
        f"from (with grouped as materialized (from ({grouped}) where {pushes.text}) {parts}) "
        f"union all select {_LABELS}, reason{_names(query)}, {_WEIGHED} from ({unmerged})"
    )
    return Sql(text, pushes.values)


def _only_asked(query: Query) -> str:
    """Return the labels, with unused ones emptied, since fewer values are grouped faster."""
    used = {each.word for each in query.used}
    columns = {"task": "task_id", **{word: word for word in ("app", "level", "sink", "reason")}}
    labels = [name if word in used else f"'' as {name}" for word, name in columns.items()]
    return ", ".join([*labels, "outcome"])


def _of_kind(query: Query, kind: str, at: str) -> str:
    """Return groups as receipts, or as events; groups outside of the period have no time."""
    labels = f"'' as sink, '{kind}' as outcome, '' as reason" if kind else "sink, outcome, reason"
    return (
        f"select {at} as minute_ms, task_id, app, level, {labels}{_names(query)}, n, variance "
        f"from grouped where {at} is not null"
    )


def _start(at: str, step: int) -> str:
    return f"{at} - {at} % {step}" if step else "$since_ms"


def _attributes(query: Query) -> str:
    """Return columns `a0` … with a push's values of the wanted attributes; empty if it has none.

    Keys and values are looked up apart, which takes a third less time than the map's own look-up.
    """
    found = "map_values(attributes)[list_position(map_keys(attributes), $name{place})]"
    return "".join(
        f", coalesce({found.format(place=place)}, '') as a{place}"
        for place in range(len(query.attributes))
    )


def with_minute(query: Query, rows: str) -> str:
    """Add to these detail rows their minute and the wanted attributes."""
    return f"select *, at_ms - at_ms % 60000 as minute_ms{_attributes(query)} from ({rows})"


def within(column: str) -> str:
    """Return a condition that a time falls into the period."""
    return f"{column} >= $since_ms and {column} < $until_ms"


def bound(query: Query) -> dict[str, object]:
    """Return the values that these pieces of SQL name."""
    names = {f"name{place}": name for place, name in enumerate(query.attributes)}
    return {"since_ms": query.period.since_ms, "until_ms": query.period.until_ms, **names}


def is_aggregated(engine: Engine, query: Query) -> bool:
    """Return True if the counts of single attributes are enough, and fine enough in time."""
    is_kept = len(query.attributes) == 1 and not query.asks_reason
    return is_kept and query.finest_ms >= engine.coarsest_ms


def asks_events(query: Query) -> bool:
    """Return True if the conditions leave events to count, which have no sink and no reason."""
    left = set(EVENTS)
    for condition in query.where:
        if condition.dimension.word == "outcome":
            left = {each for each in left if _meets(condition, each)}
        elif condition.dimension.word in ("sink", "reason") and not _meets(condition, ""):
            return False
    return bool(left)


def _meets(condition: Condition, value: str) -> bool:
    return (value in condition.values) != condition.negated


def _names(query: Query) -> str:
    return "".join(f", a{place}" for place in range(len(query.attributes)))


def _one_attribute(engine: Engine) -> str:
    """Count all receipts under an empty value, then move those with a value to that value."""
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
    """Return rows of pushes again as events, however long ago the push itself had finished.

    Events have no sink, here as in the counts.
    """
    pushes = engine.all_of("detail")
    merged = (
        f"select * replace ('{event}' as outcome, '' as reason, '' as sink, null as waits), "
        f"{event}_at_ms as at_ms "
        f"from {pushes} where {within(f'{event}_at_ms')}"
        for event in EVENTS
    )
    return " union all ".join([*merged, _unmerged(engine, pushes)])


def _unmerged(engine: Engine, pushes: str) -> str:
    """Return events that compaction has not put into rows, with their push if it has a row."""
    unknown = ", ".join(f"coalesce(push.{name}, '') as {name}" for name in ("app", "level"))
    return (
        "select push.* replace (event.task_id as task_id, event.seq as seq, "
        f"event.outcome as outcome, '' as reason, '' as sink, null as waits, {unknown}, "
        "coalesce(push.attributes, event.attributes) as attributes, "
        "coalesce(push.sample_weight, 1) as sample_weight), event.at_ms as at_ms "
        f"from {engine.table('events')} event left join {pushes} push "
        "on push.task_id = event.task_id and push.seq = event.seq and push.outcome <> 'retry' "
        f"where {within('event.at_ms')}"
    )


def expression(query: Query, dimension: Dimension) -> str:
    """Return the SQL expression of this dimension over a row of a source."""
    if dimension.step_ms:
        return f"minute_ms - minute_ms % {dimension.step_ms}"
    if dimension.word == ATTRIBUTE:
        return f"a{query.attributes.index(dimension.attribute)}"
    return "task_id" if dimension.word == "task" else dimension.word


def key_columns(query: Query) -> list[str]:
    """Return one expression for each dimension of the answer, named `d0`, `d1` …"""
    return [f"{expression(query, each)} as d{place}" for place, each in enumerate(query.by)]


def where_clause(query: Query, words: Sequence[str] = ()) -> Sql:
    """Return a condition for the rows that are asked for; its values include those of `bound`.

    If `words` are given, only the conditions on dimensions of these words are in it.
    """
    texts = ["true"]
    values = bound(query)
    for place, each in enumerate(query.where):
        if words and each.dimension.word not in words:
            continue
        names = [f"value{place}_{number}" for number in range(len(each.values))]
        listed = ", ".join(f"${name}" for name in names)
        is_one = "not in" if each.negated else "in"
        texts.append(f"{expression(query, each.dimension)} {is_one} ({listed})")
        values.update(zip(names, each.values, strict=True))
    return Sql(" and ".join(texts), values)
