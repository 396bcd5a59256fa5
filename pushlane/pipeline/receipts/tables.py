"""The tables of a batch as Spark expressions over rows of `log_source.ROWS`, and what of it is new.

Counts and latencies are additive: rows of several batches, or hours, are summed. None of it runs
Python code in workers.

Each push finishes once, however often it is reported: for every task, kind and 32,768 seqs there is
a bitmap of what was seen. Each batch adds a file with its new bits to the table `seen`. Only the
bitmaps that batches need are kept in memory, up to a bound. Bitmaps end at their last set bit, so
that small tasks cost little.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pushlane.model.counted import (
    CAUSE_STAGE,
    CLICKED,
    DISPLAYED,
    FINISHED,
    LATENCY_BASE,
    RETRIED,
    STAGES,
)
from pushlane.model.wait_words import WAITED
from pushlane.pipeline.store.manifest import column_range, read_footer, read_parquet
from pushlane.pipeline.store.schema import (
    ATTRIBUTES,
    DETAIL,
    EVENTS,
    LATENCY,
    MINUTES,
    SEEN,
    SKETCH_LG_K,
)
from pushlane.util.trace_context import TRACEPARENT_LIKE

MINUTE_MS = 60_000
_SAMPLE_STEPS = 1_000_000


def new_receipts(rows: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """Return the receipts among the rows, without the repeats."""
    receipts = rows.filter(F.col("kind") >= FINISHED)
    if repeats is None:
        return receipts
    return receipts.join(F.broadcast(repeats), "row_id", "left_anti")


def detail(receipts: DataFrame, rate: float, batch: str) -> DataFrame:
    """Return a row for each attempt; below a rate of 1 only a sample of the delivered ones.

    The sample depends on the push alone, so that it is the same in each run. Everything rarer than
    a delivery is always in it.
    """
    dispatched = receipts.filter((F.col("kind") == FINISHED) | (F.col("kind") >= RETRIED))
    weight = F.lit(1.0)
    if rate < 1.0:
        is_sampled = F.col("outcome") == "delivered"
        chosen = F.pmod(F.xxhash64("task_id", "seq"), F.lit(_SAMPLE_STEPS))
        dispatched = dispatched.filter(~is_sampled | (chosen < int(rate * _SAMPLE_STEPS)))
        weight = F.when(is_sampled, F.lit(1.0 / rate)).otherwise(F.lit(1.0))
    events = dict.fromkeys(("displayed_at_ms", "clicked_at_ms"), F.lit(None).cast("bigint"))
    return partitioned(dispatched.withColumns({**events, "sample_weight": weight}), batch)


def partitioned(rows: DataFrame, batch: str) -> DataFrame:
    """Return detail rows as a file has them, with the columns that name their folders."""
    at = F.timestamp_millis("responded_at_ms")
    placed = rows.withColumn("trace_hash", _trace_hash()).select(
        *DETAIL.names,
        F.date_format(at, "yyyy-MM-dd").alias("day"),
        F.date_format(at, "HH").alias("hour"),
        F.lit(batch).alias("batch"),
    )
    return placed.sortWithinPartitions("day", "hour", "task_id", "seq")


def _trace_hash() -> Column:
    """Return `util.trace_context.trace_hash` of a row's trace id."""
    text = F.coalesce("trace_id", F.lit(""))
    of_traceparent = F.when(text.like(TRACEPARENT_LIKE), F.substring(text, 4, 32))
    key = of_traceparent.otherwise(text)
    first = F.substring(F.sha2(key, 256), 1, 16)
    return F.when(text == "", F.lit(0)).otherwise(F.conv(first, 16, -10).cast("bigint"))


def events(receipts: DataFrame) -> DataFrame:
    """Return what devices reported later: pushes displayed and clicked."""
    said = receipts.filter(F.col("kind").isin(DISPLAYED, CLICKED))
    return said.withColumnRenamed("responded_at_ms", "at_ms").select(*EVENTS.names)


def minutes(receipts: DataFrame) -> DataFrame:
    """Count receipts, waits and distinct recipients by minute and every label that reports use."""
    wait, _ = _elapsed("wait")
    return receipts.groupBy(_minute_ms(), *MINUTES.names[1:-3]).agg(
        F.count(F.lit(1)).alias("n"),
        F.coalesce(F.sum(wait), F.lit(0)).alias("wait_ms_sum"),
        F.hll_sketch_agg("recipient_hash", SKETCH_LG_K).alias("recipients"),
    )


def latency(receipts: DataFrame) -> DataFrame:
    """Count receipts by latency and the parts of their waits, in buckets that grow by a tenth."""
    dispatched = receipts.filter(~F.col("kind").isin(DISPLAYED, CLICKED))
    stages = F.array_compact(F.array(*(_stage(name) for name in STAGES)))
    rows = dispatched.select(
        _minute_ms(), *LATENCY.names[1:6], F.explode(F.concat(stages, _wait_stages())).alias("of")
    ).select("*", "of.stage", "of.bucket")
    return rows.groupBy(*LATENCY.names[:-1]).agg(F.count(F.lit(1)).alias("n"))


def attributes(receipts: DataFrame) -> DataFrame:
    """Count receipts by the value of each attribute."""
    rows = receipts.select(
        _minute_ms(), *ATTRIBUTES.names[1:6], F.explode("attributes").alias("attribute", "value")
    )
    return rows.groupBy(*ATTRIBUTES.names[:-1]).agg(F.count(F.lit(1)).alias("n"))


def _minute_ms() -> Column:
    at = F.col("responded_at_ms")
    return (at - F.pmod(at, F.lit(MINUTE_MS))).alias("minute_ms")


def _elapsed(stage: str) -> tuple[Column, Column]:
    """Return a stage's milliseconds, null for a push that was not in it, and if it was."""
    start, end = (F.col(name) for name in STAGES[stage])
    was = (start > 0) & (end > 0)
    return F.when(was, F.greatest(end - start, F.lit(0))), was


def _stage(name: str) -> Column:
    elapsed, was = _elapsed(name)
    return F.when(was, _took(F.lit(name), elapsed))


def _wait_stages() -> Column:
    """Return a stage for each part of a wait, and one for all of it; none where it is not told."""
    waits = F.col("waits")
    whole = F.aggregate(F.map_values(waits), F.lit(0).cast("bigint"), lambda one, more: one + more)
    parts = F.transform(
        F.map_entries(waits),
        lambda one: _took(F.concat(F.lit(CAUSE_STAGE), one["key"]), one["value"]),
    )
    told = F.concat(F.array(_took(F.lit(WAITED), whole)), parts)
    return F.coalesce(told, F.array().cast("array<struct<stage:string,bucket:int>>"))


def _took(stage: Column, elapsed: Column) -> Column:
    logarithm = F.log(F.greatest(elapsed, F.lit(1))) / F.log(F.lit(LATENCY_BASE))
    bucket = F.when(elapsed < 1, F.lit(-1)).otherwise(F.floor(logarithm)).cast("int")
    return F.struct(stage.alias("stage"), bucket.alias("bucket"))


SEQ_BITS = 15
_IN_BUCKET = (1 << SEQ_BITS) - 1
_KIND_BITS = 12
_BUCKET_BITS = 17
_KEPT_BYTES = 64 * 1024 * 1024
_ENTRY_BYTES = 200

Bits = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
NO_BITS: Bits = np.empty(0, "uint8")


class DedupGroup(NamedTuple):
    """The receipts that share a bitmap."""

    task_id: str
    kind: int
    bucket: int


class FoundReceipts(NamedTuple):
    """The ids of repeated rows in a batch, the bits that are new, and those with all old ones."""

    repeats: Numbers
    fresh: dict[DedupGroup, Bits]
    whole: dict[DedupGroup, Bits]


OldBits = Callable[[Sequence[DedupGroup]], Mapping[DedupGroup, Bits]]
"""A function that returns, for each of these groups, the bits that were seen before a batch."""


class Seen:
    """All bits of the store, which are read from its files when they are needed."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept: OrderedDict[DedupGroup, Bits] = OrderedDict()
        self._kept_bytes = 0
        self._most_bytes = kept_bytes
        self._files: dict[str, tuple[str, str]] = {}

    def of(self, groups: Sequence[DedupGroup], files: Sequence[str]) -> dict[DedupGroup, Bits]:
        """Return the bits of each group; `files` are the current files of the table `seen`."""
        missing = [group for group in groups if group not in self._kept]
        found = self._loaded(missing, files) if missing else {}
        kept = {group: self._kept[group] for group in groups if group in self._kept}
        return kept | found

    def add(self, groups: dict[DedupGroup, Bits]) -> None:
        """Keep in memory all bits of these groups, after the new ones were published."""
        for group, bits in groups.items():
            old = self._kept.pop(group, None)
            self._kept_bytes += bits.size + _ENTRY_BYTES
            self._kept_bytes -= 0 if old is None else old.size + _ENTRY_BYTES
            self._kept[group] = bits
        while self._kept_bytes > self._most_bytes:
            _, bits = self._kept.popitem(last=False)
            self._kept_bytes -= bits.size + _ENTRY_BYTES

    def _loaded(
        self, missing: Sequence[DedupGroup], files: Sequence[str]
    ) -> dict[DedupGroup, Bits]:
        tasks = {group.task_id for group in missing}
        found: dict[DedupGroup, Bits] = dict.fromkeys(missing, NO_BITS)
        self._files = {  # with the least and the greatest task of each, by its footer
            path: self._files.get(path) or column_range(read_footer(Path(path)), "task_id")
            for path in files
        }
        for path, (low, high) in self._files.items():
            if any(low <= task <= high for task in tasks):
                wanted = pc.field("task_id").isin(sorted(tasks))
                rows = read_parquet(Path(path), wanted=wanted)
                add_bits(found, ((g, bits) for g, bits in bitmaps(rows) if g in found))
        return found


def nothing_seen(groups: Sequence[DedupGroup]) -> dict[DedupGroup, Bits]:
    """Return no bits for each group, to find what is new in a batch by itself."""
    return dict.fromkeys(groups, NO_BITS)


def all_seen_but(fresh: Mapping[DedupGroup, Bits]) -> OldBits:
    """Return all bits but these as seen, to read a batch again in which these were new."""
    full = np.full((1 << SEQ_BITS) // 8, 255, "uint8")
    return lambda groups: {group: without(full, fresh.get(group, NO_BITS)) for group in groups}


def find_new(rows: pa.Table, seen: OldBits) -> FoundReceipts:
    """Find the new receipts of a batch, of which `rows` has the `KEY_COLUMNS`.

    Of several rows with one key the earliest wins, and of those the first row.
    """
    if not rows.num_rows:
        return FoundReceipts(np.empty(0, "int64"), {}, {})
    row_ids = rows["row_id"].to_numpy()
    order = np.lexsort((row_ids, rows["responded_at_ms"].to_numpy()))
    groups, keys = _grouped(rows, order)
    distinct, firsts = np.unique(keys, return_index=True)
    bounds = np.searchsorted(distinct, np.arange(len(groups) + 1) << SEQ_BITS)
    old = seen(groups)
    is_new = np.zeros(len(keys), dtype=bool)
    fresh: dict[DedupGroup, Bits] = {}
    whole: dict[DedupGroup, Bits] = {}
    for place, group in enumerate(groups):
        inside = slice(bounds[place], bounds[place + 1])
        bits = distinct[inside] & _IN_BUCKET
        unseen = ~_has(old[group], bits)
        is_new[firsts[inside][unseen]] = True
        if unseen.any():
            fresh[group] = _packed(bits[unseen])
            whole[group] = united(old[group], fresh[group])
    return FoundReceipts(row_ids[order][~is_new], fresh, whole)


def seen_rows(groups: dict[DedupGroup, Bits]) -> pa.Table:
    """Return the bits as sorted rows of the table `seen`."""
    ordered = sorted(groups)
    columns = list(zip(*ordered, strict=True)) if ordered else [(), (), ()]
    bits = [groups[group].tobytes() for group in ordered]
    return pa.table([*map(list, columns), bits], schema=SEEN)


def bitmaps(rows: pa.Table) -> Iterator[tuple[DedupGroup, Bits]]:
    """Yield the rows of the table `seen` as groups with their bits."""
    columns = (rows[name].to_pylist() for name in ("task_id", "kind", "bucket"))
    for group, bits in zip(zip(*columns, strict=True), rows["bits"].to_pylist(), strict=True):
        yield DedupGroup(*group), np.frombuffer(bits, "uint8")


def seen_in(paths: Iterable[str]) -> dict[DedupGroup, Bits]:
    """Return all bits in these files of the table `seen`."""
    groups: dict[DedupGroup, Bits] = {}
    for path in paths:
        add_bits(groups, bitmaps(read_parquet(Path(path))))
    return groups


def add_bits(groups: dict[DedupGroup, Bits], found: Iterable[tuple[DedupGroup, Bits]]) -> None:
    """Add the found bits to those of the groups."""
    for group, bits in found:
        groups[group] = united(groups[group], bits) if group in groups else bits


def united(one: Bits, other: Bits) -> Bits:
    """Return all bits of both."""
    short, long = sorted((one, other), key=len)
    both = long.copy()
    both[: len(short)] |= short
    return both


def _grouped(rows: pa.Table, order: Numbers) -> tuple[list[DedupGroup], Numbers]:
    """Return the groups of a batch, and for each row in order its group and bit as one number."""
    encoded = rows["task_id"].combine_chunks().dictionary_encode()
    tasks = encoded.dictionary.to_pylist()
    task = encoded.indices.to_numpy().astype("int64")[order]
    kind = rows["kind"].to_numpy().astype("int64")[order]
    seq = rows["seq"].to_numpy()[order]
    packed = (task << _KIND_BITS | kind) << _BUCKET_BITS | seq >> SEQ_BITS
    distinct, inverse = np.unique(packed, return_inverse=True)
    groups = [
        DedupGroup(
            tasks[each >> (_KIND_BITS + _BUCKET_BITS)],
            each >> _BUCKET_BITS & (1 << _KIND_BITS) - 1,
            each & (1 << _BUCKET_BITS) - 1,
        )
        for each in distinct.tolist()
    ]
    return groups, inverse.astype("int64") << SEQ_BITS | seq & _IN_BUCKET


def without(bits: Bits, gone: Bits) -> Bits:
    """Return the bits of the first that are not set in the second."""
    left = bits.copy()
    both = min(len(bits), len(gone))
    left[:both] &= ~gone[:both]
    return left


def _has(bits: Bits, places: Numbers) -> npt.NDArray[np.bool_]:
    byte = places >> 3
    inside = byte < len(bits)
    found = np.zeros(len(places), dtype=bool)
    found[inside] = bits[byte[inside]] >> (places[inside] & 7).astype("uint8") & 1 == 1
    return found


def _packed(places: Numbers) -> Bits:
    flags = np.zeros(int(places[-1]) + 1, dtype="uint8")
    flags[places] = 1
    return np.packbits(flags, bitorder="little")
