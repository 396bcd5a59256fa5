"""A range of the log of receipts as rows of a DataFrame, read by Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.pipeline.receipts.columns import ROWS, rows_of
from pushlane.pipeline.receipts.sync_log import log_of_process
from pushlane.settings import Settings


def read_range(
    spark: SparkSession, settings: Settings, start: Sequence[str], end: Sequence[str]
) -> DataFrame:
    """Return the rows between two positions; partitions of the log are read in parallel.

    The settings travel to the workers in the function that they run, so that no plan or log shows
    them.
    """
    pairs = enumerate(zip(start, end, strict=True))
    ranges = [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]
    tasks = max(1, min(len(ranges), spark.sparkContext.defaultParallelism))
    places = spark.range(0, len(ranges), 1, tasks)
    return places.mapInArrow(_reader(settings, ranges), from_arrow_schema(ROWS))


def _reader(
    settings: Settings, ranges: Sequence[tuple[int, str, str]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that reads the ranges at the given places; it runs in a worker."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = log_of_process(settings)
        for batch in batches:
            for place in batch.column("id").to_pylist():
                partition, start, end = ranges[place]
                yield from rows_of(partition, start, log.read(partition, start, end))

    return read
