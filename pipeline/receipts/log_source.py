"""The log of receipts as a Spark data source, `pushlane_receipts`: a stream, or a range of it.

Options: `settings`, the path of a file of `worker_settings`; for a stream `initial`, where to
begin, and `most`, the bodies of a batch; for a range `start` and `end`. Positions are JSON lists,
one text a partition of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from pushlane.pipeline.receipts.columns import ROWS, rows_of
from pushlane.pipeline.receipts.sync_log import log_of_process

NAME = "pushlane_receipts"


@dataclass
class LogRange(InputPartition):
    """The input of one Spark task: a stretch of one partition of the log."""

    partition: int
    start: str
    end: str


class ReceiptsSource(DataSource):
    """The data source that Spark makes readers with, in the driver and in workers."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(ROWS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _RangeReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(dict(self.options))


def register_source(spark: SparkSession) -> None:
    spark.dataSource.register(ReceiptsSource)


def read_range(
    spark: SparkSession, settings_path: Path, start: Sequence[str], end: Sequence[str]
) -> DataFrame:
    """Return the rows between two positions, the same as a stream has there."""
    reader = spark.read.format(NAME).option("settings", str(settings_path))
    return reader.option("start", json.dumps(start)).option("end", json.dumps(end)).load()


def as_offset(positions: Sequence[str]) -> dict[str, str]:
    """Return positions in the form in which Spark keeps them."""
    return {str(place): position for place, position in enumerate(positions)}


def as_positions(offset: dict[str, str]) -> list[str]:
    """Return the positions of an offset of Spark."""
    return [offset[str(place)] for place in range(len(offset))]


class _RangeReader(DataSourceReader):
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        start = json.loads(self._options["start"])
        end = json.loads(self._options["end"])
        return _ranges(start, end) or [LogRange(0, start[0], start[0])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRange)
        return _read(self._options["settings"], partition)


class _StreamReader(DataSourceStreamReader):
    """Reads the log as a stream; Spark makes one reader for planning, and one for each task."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, str]:
        return as_offset(json.loads(self._options["initial"]))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(int(self._options["most"]))

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        log = log_of_process(self._options["settings"])
        return as_offset(log.advance(as_positions(start), most))

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return _ranges(as_positions(start), as_positions(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRange)
        return _read(self._options["settings"], partition)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: the store's manifest has noted the end, and its writer tells the log."""

    def stop(self) -> None:
        """Do nothing: the log belongs to the process, and stays open."""


def _ranges(start: Sequence[str], end: Sequence[str]) -> list[InputPartition]:
    """Return a range for each partition that has something to read; they are read in parallel."""
    pairs = enumerate(zip(start, end, strict=True))
    return [LogRange(place, begin, until) for place, (begin, until) in pairs if begin != until]


def _read(settings: str, part: LogRange) -> Iterator[pa.RecordBatch]:
    if part.start == part.end:
        return
    pages = log_of_process(settings).read(part.partition, part.start, part.end)
    yield from rows_of(part.partition, part.start, part.end, pages)
