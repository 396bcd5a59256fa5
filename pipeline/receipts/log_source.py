"""A range of the log of receipts as rows of a DataFrame, read by Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.lanes.settings import Settings
from pushlane.pipeline.receipts.columns import ROWS, rows_of
from pushlane.pipeline.receipts.sync_log import log_of_process

_RANGES = pa.schema([("partition", pa.int32()), ("start", pa.string()), ("end", pa.string())])


def read_range(
    spark: SparkSession, settings: Settings, start: Sequence[str], end: Sequence[str]
) -> DataFrame:
    """Return the rows between two positions, of which one must be behind the other.

    Partitions of the log are read in parallel. The settings travel to the workers in the function
    that they run, so that no plan or log shows them.
    """
    pairs = enumerate(zip(start, end, strict=True))
    ranges = [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]
    columns = [pa.array(values) for values in zip(*ranges, strict=True)]
    table = pa.table(columns, names=_RANGES.names).cast(_RANGES)
    return spark.createDataFrame(table).mapInArrow(_reader(settings), from_arrow_schema(ROWS))


def _reader(settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = log_of_process(settings)
        for batch in batches:
            for partition, start, end in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                yield from rows_of(partition, start, log.read(partition, start, end))

    return read
