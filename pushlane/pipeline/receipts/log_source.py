"""A range of the log of receipts as rows of a DataFrame, read by Spark's workers.

Bodies become Arrow columns, and no row is touched in Python. Besides receipts there are two other
kinds of rows: a body that cannot be used, and a mark at the end of each range that was read, which
says how many bodies that had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.model.counted import (
    CLICKED,
    DISPLAYED,
    FINISHED,
    KINDS,
    MOST_ATTEMPTS,
    RETRIED,
    read_receipts,
)
from pushlane.model.receipt import Event, ReceiptBatch
from pushlane.pipeline.receipts.sync_log import log_of_process
from pushlane.pipeline.store.schema import RECEIPT_COLUMNS, WAITS
from pushlane.settings import Settings
from pushlane.util.errors import MalformedReceipts

QUARANTINED = -1
MARK = -2

KEY_COLUMNS = ["row_id", "task_id", "kind", "seq", "responded_at_ms"]
"""The columns that tell receipts apart, and which of two is the first."""
_SHIFT = 40

ROWS = pa.schema(
    [
        ("row_id", pa.int64()),
        ("kind", pa.int32()),
        *RECEIPT_COLUMNS,
        WAITS,
        ("partition", pa.int32()),
        ("position", pa.string()),
        ("bytes", pa.int32()),
        ("why", pa.string()),
    ]
)
"""The columns of a row; `row_id` orders the rows of a batch in the same way at each reading.

Receipts of a push that differ in `kind` are counted apart. A quarantined body has `position` (the
start of its range, and its place after it), `bytes` and `why`. A mark has in `bytes` how many
bodies its range had.
"""


def rows_of(
    partition: int, start: str, pages: Iterable[Sequence[bytes]]
) -> Iterator[pa.RecordBatch]:
    """Yield all bodies of a range as rows, one batch a page, and then the mark at its end."""
    bodies = 0
    row = partition << _SHIFT
    for page in pages:
        batch = _rows_of_page(page, partition, start, bodies, row)
        bodies += len(page)
        row += batch.num_rows
        yield batch
    yield _sparse(kind=MARK, partition=partition, bytes=bodies)


def dedup_keys_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the deduplication keys of rows of `detail` or `events`, as `find_new` takes them."""
    attempts = rows["attempt"] if "attempt" in rows.column_names else pa.scalar(0, pa.int32())
    attempts = pc.min_element_wise(attempts, pa.scalar(MOST_ATTEMPTS, pa.int32()))
    kinds = pa.scalar(FINISHED, pa.int32())
    for outcome, kind in KINDS.items():
        of_it = pc.add(pa.scalar(kind, pa.int32()), attempts if kind == RETRIED else 0)
        kinds = pc.if_else(pc.equal(rows["outcome"], outcome), of_it.cast(pa.int32()), kinds)
    yield _dedup_keys(rows, kinds)
    for event, kind in ((Event.DISPLAYED, DISPLAYED), (Event.CLICKED, CLICKED)):
        if f"{event.value}_at_ms" in rows.column_names:
            said = rows.filter(pc.is_valid(rows[f"{event.value}_at_ms"]))
            yield _dedup_keys(said, pa.scalar(kind, pa.int32()))


def _dedup_keys(rows: pa.Table, kinds: Any) -> pa.Table:
    count = rows.num_rows
    numbers, times = pa.array(np.arange(count)), pa.array(np.zeros(count, "int64"))
    kind = pa.repeat(kinds, count) if isinstance(kinds, pa.Scalar) else kinds
    return pa.table([numbers, rows["task_id"], kind, rows["seq"], times], names=KEY_COLUMNS)


def _rows_of_page(
    page: Sequence[bytes], partition: int, start: str, first: int, row: int
) -> pa.RecordBatch:
    parts = []
    for place, body in enumerate(page, first):
        try:
            parts.append(_receipts(read_receipts(body)))
        except (MalformedReceipts, pa.ArrowException, OverflowError) as error:
            why = str(error) if isinstance(error, MalformedReceipts) else "a value out of range"
            at = {"partition": partition, "position": f"{start}+{place}", "bytes": len(body)}
            parts.append(_sparse(kind=QUARANTINED, **at, why=why))
    table = pa.Table.from_batches(parts).combine_chunks()
    numbered = pa.array(np.arange(row, row + table.num_rows))
    [batch] = table.set_column(0, ROWS.field("row_id"), numbered).to_batches() or [_EMPTY]
    return batch


def _receipts(batch: ReceiptBatch) -> pa.RecordBatch:
    """Return the receipts as rows; columns that need no work have the same name in both."""
    count = len(batch)
    task = pa.array(batch.task, pa.int32())
    worked = {
        "row_id": pa.array(np.zeros(count, "int64")),
        "kind": _kinds(batch),
        "task_id": _labels([label.task_id for label in batch.tasks], task),
        "task_name": _labels([label.name for label in batch.tasks], task),
        "app": _labels([label.app for label in batch.tasks], task),
        "sink": pa.repeat(pa.scalar(batch.sink), count),
        "trace_id": pa.array(batch.trace_ids or [""] * count, pa.string()),
        "attributes": _attributes(batch.attributes, count),
        "waits": _waits(batch),
    }
    for name, kind in RECEIPT_COLUMNS:
        if name not in worked:
            worked[name] = pa.array(getattr(batch, name), kind)
    columns = [worked[f.name] if f.name in worked else pa.nulls(count, f.type) for f in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def _kinds(batch: ReceiptBatch) -> pa.Array:
    if not any(outcome in KINDS for outcome in set(batch.outcome)):
        return pa.array(np.zeros(len(batch), "int32"))
    kinds = np.fromiter((KINDS.get(each, FINISHED) for each in batch.outcome), "int32")
    attempts = np.minimum(np.array(batch.attempt, "int32"), MOST_ATTEMPTS)
    return pa.array(np.where(kinds == RETRIED, RETRIED + attempts, kinds))


def _labels(texts: list[str], index: pa.Array) -> pa.Array:
    return pa.array(texts, pa.string()).take(index)


def _attributes(attributes: Sequence[dict[str, str] | None], count: int) -> pa.Array:
    kind = ROWS.field("attributes").type
    if not attributes:
        return pa.nulls(count, kind)
    maps = [each or {} for each in attributes]
    offsets = np.concatenate(([0], np.cumsum([len(each) for each in maps]))).astype("int32")
    keys = pa.array(list(chain.from_iterable(maps)), pa.string())
    values = pa.array(list(chain.from_iterable(each.values() for each in maps)), pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values).cast(kind)


def _waits(batch: ReceiptBatch) -> pa.Array:
    """Return the parts of waits as `model.receipt.waits_of` has them, for all rows at once."""
    count, kind = len(batch), ROWS.field("waits").type
    if batch.waits is None:
        return pa.nulls(count, kind)
    columns = [np.array(column, "int64") for column in batch.waits.values()]
    parts = np.array(columns, "int64").reshape(len(columns), count).T
    has = parts > 0
    sent, submitted = np.array(batch.dispatched_at_ms), np.array(batch.submitted_at_ms)
    is_told = has.any(axis=1) | ((sent > 0) & (sent <= submitted))
    ends = np.cumsum(has.sum(axis=1)).astype("int32")
    offsets = np.concatenate((np.zeros(1, "int32"), ends))
    causes = pa.array(list(batch.waits), pa.string()).take(pa.array(np.nonzero(has)[1]))
    found = pa.MapArray.from_arrays(pa.array(offsets), causes, pa.array(parts[has])).cast(kind)
    return pc.if_else(pa.array(is_told), found, pa.scalar(None, kind))


def _sparse(**given: object) -> pa.RecordBatch:
    """Return one row that has nothing but these values."""
    given = {"row_id": -1, **given}
    columns = [pa.array([given.get(field.name)], field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


_EMPTY = pa.RecordBatch.from_pylist([], schema=ROWS)


def read_range(
    spark: SparkSession, settings: Settings, start: Sequence[str], end: Sequence[str]
) -> DataFrame:
    """Return the rows between two positions; partitions of the log are read in parallel.

    The settings travel to the workers in the function that they run, so that no plan or log shows
    them.
    """
    pairs = enumerate(zip(start, end, strict=True))
    ranges = [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = log_of_process(settings)
        for batch in batches:
            for place in batch.column("id").to_pylist():
                partition, start, end = ranges[place]
                yield from rows_of(partition, start, log.read(partition, start, end))

    tasks = max(1, min(len(ranges), spark.sparkContext.defaultParallelism))
    return spark.range(0, len(ranges), 1, tasks).mapInArrow(read, from_arrow_schema(ROWS))
