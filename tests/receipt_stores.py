"""Stores of made-up receipts, without Spark: what reports and alerts are tried on.

The rows follow from the seed alone; the aggregates are counted from the very detail rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasketches import hll_sketch, tgt_hll_type

from pushlane.model.counted import LATENCY_BASE
from pushlane.pipeline.store import FileCounts, StoreWriter
from pushlane.pipeline.store.schema import DETAIL, EVENTS, MINUTES, SKETCH_LG_K
from pushlane.pipeline.store.writing import open_writer
from pushlane.util.trace_context import trace_hash

NOON_MS = 1_790_000_000_000 // 86_400_000 * 86_400_000 + 12 * 3_600_000
MINUTE_MS = 60_000
_TASKS = [
    ("task-a", "spring", "shop", "high", 6),
    ("task-b", "news", "paper", "medium", 3),
    ("task-c", "digest", "shop", "low", 1),
]
_REASONS = {"dead": "unregistered", "retry": "busy", "dropped": "suppressed"}
_RECEIPT = {
    "task_id": "task-a",
    "task_name": "spring",
    "app": "shop",
    "level": "high",
    "sink": "webhook",
    "outcome": "delivered",
    "reason": "",
    "attempt": 1,
    "recipient": "d***",
    "recipient_hash": 1,
    "quota": 1,
    "weight": 6,
    "submitted_at_ms": NOON_MS,
    "eligible_at_ms": NOON_MS,
    "dispatched_at_ms": NOON_MS,
    "responded_at_ms": NOON_MS,
    "trace_id": "",
    "trace_hash": 0,
    "sample_weight": 1.0,
}
_OUTCOMES = ["delivered", "dead", "retry", "expired", "dropped"]
_SHARES = [0.9, 0.04, 0.03, 0.02, 0.01]
_KEYS = [name for name in MINUTES.names if name not in ("n", "wait_ms_sum", "recipients")]


def make_store(
    root: Path,
    *,
    receipts: int = 1_000,
    seed: int = 1,
    batches: int = 2,
    since_ms: int = NOON_MS,
    span_ms: int = 3_600_000,
) -> Path:
    """A store of so many finishing outcomes and retries; a quarter of the delivered are displayed.

    Times are spread evenly over the span; every task has its seqs from 1 on.
    """
    random = np.random.default_rng(seed)
    each = -(-receipts // batches)
    with open_writer(root) as writer:
        for first in range(0, receipts, each):
            count = min(each, receipts - first)
            times = since_ms + (first + np.arange(count)) * span_ms // receipts
            _write_batch(writer, first, times.astype("int64"), random)
    return root


def store_of(root: Path, receipts: Sequence[Mapping[str, object]]) -> Path:
    """A store of exactly these receipts; what one does not say is that of a delivered push."""
    rows = [_RECEIPT | {"seq": seq} | dict(given) for seq, given in enumerate(receipts, 1)]
    rows = [{**row, "trace_hash": trace_hash(str(row["trace_id"]))} for row in rows]
    with open_writer(root) as writer:
        _publish(writer, pa.Table.from_pylist(rows, schema=DETAIL), DETAIL.empty_table())
    return root


OLDER = (["waits", "trace_hash"], ["trace_hash"])
"""The columns that files of detail lack: those of 0.2, and those of before there were hashes."""


def make_older(root: Path, paths: Iterable[str], lacking: Sequence[str]) -> None:
    """Make files of detail what an older version wrote, whose manifests tell no columns either."""
    for path in map(Path, paths):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(list(lacking)), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    for manifest in root.glob("gen-*/manifests/*.json"):
        manifest.write_text(re.sub(r',"columns":\d+', "", manifest.read_text()))


def _write_batch(
    writer: StoreWriter, first: int, times: np.ndarray, random: np.random.Generator
) -> None:
    detail = _detail(first, times, random)
    _publish(writer, detail, _said(detail), positions=[str(first + len(times))])


def _publish(
    writer: StoreWriter, detail: pa.Table, said: pa.Table, positions: list[str] | None = None
) -> None:
    """One batch of these rows, and of what was said later."""
    name = writer.begin()
    writer.write("detail", detail, name)
    writer.write("events", _events(said), name)
    for table, rows in aggregates(detail, said).items():
        writer.write(table, rows, name)
    counts = FileCounts(bodies=1, receipts=detail.num_rows + said.num_rows)
    writer.publish("batch", name, positions=positions, counts=counts)


def _detail(first: int, times: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(times)
    which = random.choice(len(_TASKS), count, p=[0.6, 0.3, 0.1])
    columns = list(zip(*_TASKS, strict=True))
    outcome = random.choice(_OUTCOMES, count, p=_SHARES)
    dispatched = times - random.integers(1, 200, count)
    eligible = dispatched - random.integers(0, 60_000, count)
    recipient = random.integers(0, max(1, count), count)
    versions = random.integers(1, 4, count)
    values = {
        **{
            name: np.array(column)[which]
            for name, column in zip(
                ("task_id", "task_name", "app", "level", "weight"), columns, strict=True
            )
        },
        "sink": np.where(which == 1, "fcm", "webhook"),
        "seq": first + np.arange(count) + 1,
        "outcome": outcome,
        "reason": [_REASONS.get(each, "") for each in outcome],
        "attempt": np.where(outcome == "retry", 1, 2),
        "recipient": np.full(count, "d***"),
        "recipient_hash": recipient.astype("int64") * 7_919,
        "quota": np.ones(count),
        "submitted_at_ms": eligible - 10,
        "eligible_at_ms": eligible,
        "dispatched_at_ms": dispatched,
        "responded_at_ms": times,
        "trace_id": np.full(count, ""),
        "attributes": [[("version", f"{each}.0")] for each in versions],
        "displayed_at_ms": pa.nulls(count),
        "clicked_at_ms": pa.nulls(count),
        "sample_weight": np.ones(count),
        "waits": _waits(which, dispatched - eligible + 10),
        "trace_hash": np.zeros(count),
    }
    arrays = [
        pa.array(values[field.name]).cast(field.type)
        if field.name not in ("attributes", "waits")
        else pa.array(values[field.name], field.type)
        for field in DETAIL
    ]
    return pa.Table.from_arrays(arrays, schema=DETAIL).sort_by(
        [("task_id", "ascending"), ("seq", "ascending")]
    )


def _waits(which: np.ndarray, took_ms: np.ndarray) -> list[list[tuple[str, int]] | None]:
    """Parts of each wait, of 10 ms or more; of the third task they are not told."""
    found: list[list[tuple[str, int]] | None] = []
    for task, took in zip(which.tolist(), took_ms.tolist(), strict=True):
        share = (took - 10) // 3
        parts = {"delay": 10, "share": share, "slot": took - 10 - share}
        is_told = task < len(_TASKS) - 1
        found.append([(cause, ms) for cause, ms in parts.items() if ms] if is_told else None)
    return found


def _said(detail: pa.Table) -> pa.Table:
    """Every fourth delivered push was displayed, a second later: as its receipts tell it."""
    chosen = pc.and_(
        pc.equal(detail["outcome"], "delivered"),
        pc.equal(pc.bit_wise_and(detail["seq"], 3), 0),
    )
    rows = detail.filter(chosen)
    told = {
        "sink": [""] * rows.num_rows,
        "outcome": ["displayed"] * rows.num_rows,
        "eligible_at_ms": np.zeros(rows.num_rows),
        "dispatched_at_ms": np.zeros(rows.num_rows),
        "responded_at_ms": pc.add(rows["responded_at_ms"], 1_000),
        "attributes": pa.nulls(rows.num_rows, DETAIL.field("attributes").type),
    }
    for name, values in told.items():
        place, field = DETAIL.get_field_index(name), DETAIL.field(name)
        column = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
        rows = rows.set_column(place, field, column.cast(field.type))
    return rows


def _events(said: pa.Table) -> pa.Table:
    return said.rename_columns({"responded_at_ms": "at_ms"}).select(EVENTS.names)


def aggregates(detail: pa.Table, said: pa.Table) -> dict[str, pa.Table]:
    """The additive tables of these detail rows, and of what was said later."""
    rows, later = _with_minute(detail), _with_minute(said)
    return {
        "minutes": _minutes(pa.concat_tables([rows, later])),
        "latency": _latency(rows),
        "attributes": _attributes(rows),
    }


def _with_minute(rows: pa.Table) -> pa.Table:
    minute = pc.multiply(pc.divide(rows["responded_at_ms"], MINUTE_MS), MINUTE_MS)
    return rows.append_column("minute_ms", minute)


def _minutes(rows: pa.Table) -> pa.Table:
    wait = pc.subtract(rows["dispatched_at_ms"], rows["eligible_at_ms"])
    grouped = rows.append_column("wait", wait).group_by(_KEYS)
    table = grouped.aggregate([("wait", "count"), ("wait", "sum"), ("recipient_hash", "list")])
    sketches = [_sketch(hashes.as_py()) for hashes in table["recipient_hash_list"]]
    renamed = table.drop_columns("recipient_hash_list").rename_columns(
        {"wait_count": "n", "wait_sum": "wait_ms_sum"}
    )
    whole = renamed.append_column("recipients", pa.array(sketches, pa.binary()))
    return whole.select(MINUTES.names)


def _sketch(hashes: list[int]) -> bytes:
    sketch = hll_sketch(SKETCH_LG_K, tgt_hll_type.HLL_8)
    for each in hashes:
        sketch.update(each)
    return sketch.serialize_updatable()


def _latency(rows: pa.Table) -> pa.Table:
    stages = {
        "wait": ("eligible_at_ms", "dispatched_at_ms"),
        "delivery": ("dispatched_at_ms", "responded_at_ms"),
        "total": ("submitted_at_ms", "responded_at_ms"),
    }
    keys = ["minute_ms", "task_id", "app", "level", "sink", "outcome", "stage", "bucket"]
    parts = []
    for stage, (start, end) in stages.items():
        bucket = latency_bucket(pc.subtract(rows[end], rows[start]))
        part = rows.append_column("bucket", bucket)
        part = part.append_column("stage", pa.array([stage] * rows.num_rows))
        parts.append(part.group_by(keys).aggregate([([], "count_all")]))
    parts.append(_wait_stages(rows).group_by(keys).aggregate([([], "count_all")]))
    return pa.concat_tables(parts).rename_columns([*keys, "n"])


def _wait_stages(rows: pa.Table) -> pa.Table:
    """A row for each part of each wait that is told, and for the whole of it."""
    found = [
        (place, stage, ms)
        for place, parts in enumerate(rows["waits"].to_pylist())
        if parts is not None
        for stage, ms in (
            ("waited", sum(ms for _, ms in parts)),
            *((f"wait.{cause}", ms) for cause, ms in parts),
        )
    ]
    places, stages, took = zip(*found, strict=True) if found else ((), (), ())
    part = rows.take(pa.array(places, pa.int64()))
    bucket = latency_bucket(pa.chunked_array([pa.array(took, pa.int64())]))
    part = part.append_column("bucket", bucket)
    return part.append_column("stage", pa.array(stages, pa.string()))


def latency_bucket(waits_ms: pa.ChunkedArray) -> pa.ChunkedArray:
    logs = pc.floor(pc.logb(pc.max_element_wise(waits_ms, 1), LATENCY_BASE)).cast(pa.int32())
    return pc.if_else(pc.less(waits_ms, 1), pa.scalar(-1, pa.int32()), logs)


def _attributes(rows: pa.Table) -> pa.Table:
    keys = ["minute_ms", "task_id", "app", "level", "sink", "outcome", "attribute", "value"]
    values = pc.map_lookup(rows["attributes"], pa.scalar("version"), "first")
    named = rows.append_column("value", values)
    named = named.append_column("attribute", pa.array(["version"] * rows.num_rows))
    return named.group_by(keys).aggregate([([], "count_all")]).rename_columns([*keys, "n"])
