"""Writes a store of many made-up receipts, fast: DuckDB makes the rows, an hour of them at a time.

A day of two dozen tasks, few by night and many by day: high, medium and low share 6:3:1, and before
four nobody sends anything high. Two apps, three sinks, and three attributes on each push. Every row
follows from its number alone.
"""

from __future__ import annotations

import math
from hashlib import md5
from pathlib import Path

import duckdb
import pyarrow as pa
from datasketches import hll_sketch, tgt_hll_type

from bench.figures import say
from pushlane.model.counted import CAUSE_STAGE, LATENCY_BASE
from pushlane.model.wait_words import WAITED
from pushlane.pipeline.store import FileCounts, StoreWriter
from pushlane.pipeline.store.schema import SKETCH_LG_K
from pushlane.pipeline.store.writing import open_writer

HOURS = 24
HOUR_MS = 3_600_000
_RECEIPTS = """
create table receipts as
with numbered as (
    select range as i, (hash(range) >> 1)::bigint as h, (hash(range + 7919) >> 1)::bigint as g
    from range($first, $last)
), placed as (
    select *, (i - $first) * 3600000.0 / ($last - $first) as offset_ms,
        (h % 999983 + 1) / 999984.0 as u, (g % 999961 + 1) / 999962.0 as v
    from numbered
), chosen as (
    select *, ($since_ms + offset_ms)::bigint as at_ms,
        case when h // 100 % 100 < 60 + 4 * sin(offset_ms / 400000) and $hour >= 4 then 0
             when h // 100 % 100 < if($hour >= 4, 90, 75) + 3 * cos(offset_ms / 300000) then 1
             else 2 end as l,
        ($hour // 3 + 8 - g // 1000 % 2) % 8 as k
    from placed
), waited as (
    select *, l * 8 + k as t, (-ln(u) * [300, 3000, 30000][l + 1])::bigint as wait_ms,
        (20 - ln(v) * 60)::bigint as delivery_ms
    from chosen
), traced as ({traced})
select
    'task' || lpad(t::varchar, 10, '0') as task_id,
    ['spring', 'digest', 'news', 'offers', 'match day', 'reminder', 'weather', 'survey'][k + 1]
        || ' ' || ['now', 'today', 'later'][l + 1] as task_name,
    ['shop', 'news'][t % 2 + 1] as app, ['high', 'medium', 'low'][l + 1] as level,
    ['webhook', 'fcm', 'apns'][g % 3 + 1] as sink, i + 1 as seq,
    case when h % 100 < 93 then 'delivered' when h % 100 < 96 then 'retry'
         when h % 100 < 98 then 'dead' when h % 100 < 99 then 'expired' else 'dropped' end
        as outcome,
    case when h % 100 < 93 then '' when h % 100 < 96 then ['HTTP 503', 'HTTP 429'][g % 2 + 1]
         when h % 100 < 98 then ['HTTP 404', 'HTTP 410', 'tries used up'][g % 5 % 3 + 1]
         when h % 100 < 99 then '' else ['cancelled', 'suppressed'][g % 2 + 1] end as reason,
    1::int as attempt, 'us***' || h % 100 as recipient, h as recipient_hash,
    1::int as quota, [6, 3, 1][l + 1]::int as weight,
    at_ms - delivery_ms - wait_ms - 1000 as submitted_at_ms,
    at_ms - delivery_ms - wait_ms as eligible_at_ms, at_ms - delivery_ms as dispatched_at_ms,
    at_ms as responded_at_ms, trace_id,
    map {'app_version': ['5.1.0', '5.1.1', '5.2.0', '5.3.0', '6.0.0'][g % 5 + 1],
         'region': ['eu', 'us', 'apac', 'latam'][g % 17 % 4 + 1],
         'experiment': ['a', 'b'][g % 19 % 2 + 1]} as attributes,
    case when h % 100 < 93 and g % 100 < 60 then at_ms + g % 3600000 end as displayed_at_ms,
    case when h % 100 < 93 and g % 100 < 10 then at_ms + g % 3600000 + 5000 end as clicked_at_ms,
    1.0::double as sample_weight,
    map {'delay': 1000, 'share': wait_ms // 2, 'slot': wait_ms - wait_ms // 2}::map(varchar, bigint)
        as waits, trace_hash, at_ms - at_ms % 60000 as minute_ms
from traced order by task_id, seq
"""
_UNTRACED = "select *, '' as trace_id, 0::bigint as trace_hash from waited"
_TRACED = """
    select * replace (if(i % 50021 = 5, {whom}, h) as h),
        '00-' || md5(i::varchar) || '-' || left(md5(i || 's'), 16) || '-01' as trace_id,
        ('0x' || left(sha256(md5(i::varchar)), 16))::ubigint as u64,
        if(u64 >= 1::hugeint << 63, u64::hugeint - (1::hugeint << 64), u64)::bigint as trace_hash
    from waited
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
    with open_writer(root) as writer:
        for hour in range(HOURS):
            first, last = (round(receipts * _part(at)) for at in (hour, hour + 1))
            _write_hour(writer, first, last, hour, since_ms + hour * HOUR_MS)
            say(f"{last:,} of {receipts:,} receipts written")


def write_detail(
    root: Path, receipts: int, since_ms: int, days: int, whom: int, positions: list[str]
) -> None:
    """So many receipts over days, an hour a file as after a compaction; no counts, nothing else.

    Each is of a trace of its own: that of push number i is `trace_of(i)`. One of 50,000
    is to the recipient of the hash `whom`. The log was read up to `positions`.
    """
    hours, traced = days * HOURS, _TRACED.format(whom=whom)
    with open_writer(root) as writer, duckdb.connect(config={"threads": 2}) as made:
        for at in range(hours):
            first, last = receipts * at // hours, receipts * (at + 1) // hours
            _make(made, first, last, at % HOURS, since_ms + at * HOUR_MS, traced)
            name = writer.begin()
            writer.write("detail", _table(made, _DETAIL), name)
            made.execute("drop table receipts")
            counts = FileCounts(receipts=last - first)
            writer.publish("batch", name, positions=positions, counts=counts)
    say(f"{receipts:,} receipts of {days} days written")


def trace_of(number: int) -> str:
    """The trace id of a receipt that `write_detail` has made, by the number of its push from 1."""
    return md5(str(number - 1).encode(), usedforsecurity=False).hexdigest()


def _part(hour: int) -> float:
    """What part of the day's receipts there is before an hour of it."""
    turn = 2 * math.pi * hour / HOURS
    return (turn - 0.8 * math.sin(turn)) / (2 * math.pi)


def _write_hour(writer: StoreWriter, first: int, last: int, hour: int, since_ms: int) -> None:
    name = writer.begin()
    with duckdb.connect(config={"threads": 2}) as made:
        _make(made, first, last, hour, since_ms, _UNTRACED)
        writer.write("detail", _table(made, _DETAIL), name)
        writer.write("minutes", _with_sketches(_table(made, _minutes())), name)
        writer.write("latency", _table(made, _latency()), name)
        writer.write("attributes", _table(made, _ATTRIBUTES), name)
    writer.publish("batch", name, positions=[str(last)], counts=FileCounts(receipts=last - first))


def _make(
    made: duckdb.DuckDBPyConnection,
    first: int,
    last: int,
    hour: int,
    since_ms: int,
    traced: str,
) -> None:
    values = {"first": first, "last": last, "hour": hour, "since_ms": since_ms}
    made.execute(_RECEIPTS.replace("{traced}", traced), values)


def _table(made: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    return made.sql(text).to_arrow_table()


def _minutes() -> str:
    finished, events = _MINUTES.split("union all")
    parts = [finished, *(events.format(event=event) for event in ("displayed", "clicked"))]
    return " union all ".join(parts)


def _latency() -> str:
    waits = {f"{CAUSE_STAGE}{cause}": f"waits['{cause}']" for cause in ("delay", "share", "slot")}
    stages = {**_STAGES, **waits, WAITED: "(dispatched_at_ms - submitted_at_ms)"}
    parts = (_STAGE.format(stage=s, took=took, base=LATENCY_BASE) for s, took in stages.items())
    return " union all ".join(parts)


def _with_sketches(rows: pa.Table) -> pa.Table:
    sketches = [_sketch(hashes.values.to_numpy().tolist()) for hashes in rows["hashes"]]
    return rows.drop_columns("hashes").append_column("recipients", pa.array(sketches, pa.binary()))


def _sketch(hashes: list[int]) -> bytes:
    sketch = hll_sketch(SKETCH_LG_K, tgt_hll_type.HLL_8)
    for each in hashes:
        sketch.update(each)
    return bytes(sketch.serialize_updatable())
