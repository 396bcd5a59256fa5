"""Publishes frozen bundles on Spark's workers, each file with its own producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow.parquet as pq
from msgspec import msgpack
from pyspark.sql import SparkSession

from pushlane.pipeline.errors import spark_errors
from pushlane.pipeline.fanout.stage import FrozenRows, Part, StageManifest
from pushlane.pipeline.fanout.writer import PartWriter
from pushlane.settings import Settings
from pushlane.wire import Packed, numbered, open_bundle

_ROWS_AT_ONCE = 1_024


def publish(
    spark: SparkSession,
    settings: Settings,
    frozen: FrozenRows,
    manifest: StageManifest,
    parts: Sequence[Part],
) -> None:
    """Publish these parts, and return when all of their rows are durable.

    The settings travel to the workers in the function that they run, so that no plan shows them.

    Raises:
        PipelineFailed: a part could not be published; it can be tried again.
    """
    starts = frozen.starts(parts)
    work = [(part, starts[part.first_seq]) for part in parts]
    task_id, head, collapses = manifest.task.id, manifest.head, manifest.collapses
    publish_one = partial(publish_part, settings, frozen, task_id, head, collapses)
    with spark_errors(f"publishing for task {manifest.task.id}"):
        spark.sparkContext.parallelize(work, len(work)).foreach(publish_one)


def publish_part(
    settings: Settings,
    frozen: FrozenRows,
    task_id: str,
    head: bytes,
    collapses: bool,
    work: tuple[Part, int],
) -> None:
    """Publish one part from the seq on at which it starts, and return when it is durable."""
    part, start = work
    bundles = bundles_of(frozen, task_id, head, part)
    rest = (one for one in bundles if one.last_seq - one.pushes >= start - 1)
    asyncio.run(PartWriter(settings, task_id, collapses, frozen.progress).run(rest))


def bundles_of(frozen: FrozenRows, task_id: str, head: bytes, part: Part) -> Iterator[Packed]:
    """Yield the bundles of a part with their seqs.

    With a `head`, each row is one push without it and its seq: such is a freeze of format 1.
    """
    columns = ["packed"] if head else ["packed", "pushes"]
    seq = part.first_seq
    with pq.ParquetFile(frozen.rows / part.file) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            for row in batch.to_pylist():
                pushes = row.get("pushes", 1)
                yield Packed(
                    _message(task_id, head, seq, pushes, row["packed"]), seq + pushes - 1, pushes
                )
                seq += pushes


def _message(task_id: str, head: bytes, seq: int, pushes: int, rest: bytes) -> bytes:
    if head:
        return head + msgpack.encode(seq) + rest
    message = numbered(task_id, seq, rest)
    if pushes == 1:  # as single pushes go, which older versions read too
        return open_bundle(message).body(0)
    return message
