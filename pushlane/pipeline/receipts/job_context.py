"""Opens what all work on the store needs: the right to write it, a Spark session, the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.pipeline.errors import OURS, PipelineFailed, cause_of, trace_of
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.session import MASTER, spark_session
from pushlane.pipeline.store import CorruptStore, StoreWriter
from pushlane.pipeline.store.writing import open_writer
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone

DRIVER_MEMORY = "2g"
_SPARK = {
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# A batch is kept for seconds: packing it costs more than its room, and its plans are small enough
# not to be planned again half-way.
_SQL = {
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
    "spark.sql.parquet.compression.codec": "zstd",
}


@dataclass(frozen=True)
class SessionOptions:
    """Spark's master, the memory of its driver, and Spark settings, which win."""

    master: str = MASTER
    driver_memory: str = DRIVER_MEMORY
    spark_options: Mapping[str, str] = field(default_factory=dict)


class JobContext(NamedTuple):
    """All that work on a store needs, open for as long as the work lasts."""

    spark: SparkSession
    writer: StoreWriter
    log: SyncReceiptLog
    settings: Settings


@contextmanager
def open_job_context(settings: Settings, options: SessionOptions) -> Iterator[JobContext]:
    """Open everything with the right to write the store, which is made if there is none."""
    with (
        open_writer(settings.reports_root) as writer,
        open_log_session(settings, options) as (spark, log),
    ):
        yield JobContext(spark, writer, log, settings)


@contextmanager
def open_log_session(
    settings: Settings, options: SessionOptions
) -> Iterator[tuple[SparkSession, SyncReceiptLog]]:
    """Open a Spark session and the log of receipts; the caller holds the store's lock."""
    with (
        spark_session(
            "pushlane receipts",
            options.master,
            {**_SPARK, **options.spark_options},
            driver_memory=options.driver_memory,
        ) as spark,
        SyncReceiptLog(settings) as log,
    ):
        partitions = str(spark.sparkContext.defaultParallelism)
        wanted = {**_SQL, "spark.sql.shuffle.partitions": partitions}
        for setting in wanted.keys() - options.spark_options.keys():  # those of the user stay
            spark.conf.set(setting, wanted[setting])
        try:
            yield spark, log
        except PushlaneError:
            raise
        except Exception as error:  # py4j's errors and Spark's have no common base
            raise translated(error) from error


_UNREADABLE = re.compile(
    r"\[(?:FAILED_READ_FILE|PATH_NOT_FOUND)\b.*?file:(?://)?(/\S+?\.parquet)\b"
)


_NAMED = {error.__name__: error for error in (ReceiptsGone, Unreachable)}


def translated(error: Exception) -> PushlaneError:
    """Return the error of pushlane for an error of Spark.

    It names a file of the store that Spark could not read. Otherwise it has the message of a
    pushlane error that was raised in a worker, or the name of another error, whose text could quote
    rows.
    """
    text = trace_of(error)
    damaged = _UNREADABLE.search(text)
    if damaged:
        return CorruptStore.of(Path(unquote(damaged[1])), "this file cannot be read")
    found = OURS.search(text)
    if found and found[1] in _NAMED:
        return _NAMED[found[1]](found[2])
    why = found[2] if found else f"Spark stopped with {cause_of(error)}; run it again"
    return PipelineFailed(why)
