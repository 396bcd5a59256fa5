"""Writes a store of many made-up receipts, fast: DuckDB makes the rows, an hour of them at a time.

A day of twenty tasks of three levels, two apps and three sinks; each push has three attributes.
Every row follows from its number alone.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from datasketches import hll_sketch, tgt_hll_type

from bench.figures import say
from pipeline.store import Counts, StoreWriter
from pipeline.store.schema import LATENCY_BASE, SKETCH_LG_K
from pipeline.store.writing import writing

HOURS = 24
HOUR_MS = 3_600_000
_RECEIPTS = """
create table receipts as
with numbered as (
    select range as i, (hash(range) >> 1)::bigint as h, (hash(range + 7919) >> 1)::bigint as g
    from range($first, $last)
), placed as (
    select *, (h // 1000 % 20)::int as t,
        $since_ms + ((i - $first) * 3600000 / ($last - $first))::bigint as at_ms
    from numbered
)
select
    'task' || lpad(t::varchar, 10, '0') as task_id, 'campaign ' || t as task_name,
    ['shop', 'news'][t % 2 + 1] as app, ['high', 'medium', 'low'][t % 3 + 1] as level,
    ['webhook', 'fcm', 'apns'][g % 3 + 1] as sink, i + 1 as seq,
    case when h % 100 < 93 then 'delivered' when h % 100 < 96 then 'retry'
         when h % 100 < 98 then 'dead' when h % 100 < 99 then 'expired' else 'dropped' end
        as outcome,
    case when h % 100 < 93 then '' when h % 100 < 96 then ['HTTP 503', 'HTTP 429'][g % 2 + 1]
         when h % 100 < 98 then ['HTTP 404', 'HTTP 410', 'tries used up'][g % 5 % 3 + 1]
         when h % 100 < 99 then '' else ['cancelled', 'suppressed'][g % 2 + 1] end as reason,
    1::int as attempt, 'us***' || h % 100 as recipient, h as recipient_hash,
    (1 + t % 3)::int as quota, [6, 3, 1][t % 3 + 1]::int as weight,
    at_ms - 60000 as submitted_at_ms, at_ms - g % 20000 - 50 as eligible_at_ms,
    at_ms - 50 - h % 400 as dispatched_at_ms, at_ms as responded_at_ms, '' as trace_id,
    map {'app_version': ['5.1.0', '5.1.1', '5.2.0', '5.3.0', '6.0.0'][g % 5 + 1],
         'region': ['eu', 'us', 'apac', 'latam'][g % 17 % 4 + 1],
         'experiment': ['a', 'b'][g % 19 % 2 + 1]} as attributes,
    case when h % 100 < 93 and g % 100 < 60 then at_ms + g % 3600000 end as displayed_at_ms,
    case when h % 100 < 93 and g % 100 < 10 then at_ms + g % 3600000 + 5000 end as clicked_at_ms,
    1.0::double as sample_weight, at_ms - at_ms % 60000 as minute_ms
from placed order by task_id, seq
"""
_DETAIL = "select * exclude (minute_ms) from receipts"
_MINUTES = """
select minute_ms, task_id, task_name, app, level, sink, outcome, reason, quota, weight,
    count(*) as n, sum(greatest(dispatched_at_ms - eligible_at_ms, 0))::bigint as wait_ms_sum,
    list(recipient_hash) as hashes
from receipts group by all
union all
select {event}_at_ms - {event}_at_ms % 60000, task_id, task_name, app, level, '', '{event}', '',
    quota, weight, count(*), 0, [] from receipts where {event}_at_ms is not null group by all
"""
_STAGE = """
select minute_ms, task_id, app, level, sink, outcome, '{stage}' as stage,
    case when {took} < 1 then -1 else floor(ln({took}) / ln({base}))::int end as bucket,
    count(*) as n
from receipts group by all
"""
_STAGES = {
    "wait": "(dispatched_at_ms - eligible_at_ms)",
    "delivery": "(responded_at_ms - dispatched_at_ms)",
    "total": "(responded_at_ms - submitted_at_ms)",
}
_ATTRIBUTES = """
select minute_ms, task_id, app, level, sink, outcome, entry.key as attribute,
    entry.value as value, count(*) as n
from (select *, unnest(map_entries(attributes)) as entry from receipts) group by all
"""


def write_store(root: Path, receipts: int, since_ms: int) -> None:
    """So many receipts over a day from `since_ms` on, which must be the start of an hour."""
    with writing(root) as writer:
        for hour in range(HOURS):
            first, last = receipts * hour // HOURS, receipts * (hour + 1) // HOURS
            _write_hour(writer, first, last, since_ms + hour * HOUR_MS)
            say(f"{last:,} of {receipts:,} receipts written")


def _write_hour(writer: StoreWriter, first: int, last: int, since_ms: int) -> None:
    name = writer.begin()
    with duckdb.connect(config={"threads": 2}) as made:
        made.execute(_RECEIPTS, {"first": first, "last": last, "since_ms": since_ms})
        writer.write("detail", _table(made, _DETAIL), name)
        writer.write("minutes", _with_sketches(_table(made, _minutes())), name)
        writer.write("latency", _table(made, _latency()), name)
        writer.write("attributes", _table(made, _ATTRIBUTES), name)
    writer.publish("batch", name, positions=[str(last)], counts=Counts(receipts=last - first))


def _table(made: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    return made.execute(text).to_arrow_table()


def _minutes() -> str:
    finished, events = _MINUTES.split("union all")
    parts = [finished, *(events.format(event=event) for event in ("displayed", "clicked"))]
    return " union all ".join(parts)


def _latency() -> str:
    parts = (_STAGE.format(stage=s, took=took, base=LATENCY_BASE) for s, took in _STAGES.items())
    return " union all ".join(parts)


def _with_sketches(rows: pa.Table) -> pa.Table:
    sketches = [_sketch(hashes.values.to_numpy().tolist()) for hashes in rows["hashes"]]
    return rows.drop_columns("hashes").append_column("recipients", pa.array(sketches, pa.binary()))


def _sketch(hashes: list[int]) -> bytes:
    sketch = hll_sketch(SKETCH_LG_K, tgt_hll_type.HLL_8)
    for each in hashes:
        sketch.update(each)
    return sketch.serialize_updatable()
