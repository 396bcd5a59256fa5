"""Runs Spark's streaming query over the log, whose batches `pipeline.receipts.batch` publishes.

A stop waits for the running batch and lets no other begin, so that the store is never left in the
middle of one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pushlane.pipeline.receipts.batch import BatchDone, Batches
from pushlane.pipeline.receipts.log_source import NAME
from pushlane.pipeline.store.layout import local_uri

OnBatch = Callable[[BatchDone], None]


class Stopped(Exception):
    """The stream takes no more batches."""


class BatchGate:
    """Lets one batch at a time through, and none once it is shut."""

    def __init__(self, batches: Batches, on_batch: OnBatch) -> None:
        self._failure: Exception | None = None
        self.done = 0
        self._batches = batches
        self._on_batch = on_batch
        self._lock = threading.Lock()
        self._is_shut = False

    def __call__(self, rows: DataFrame, _: int) -> None:
        with self._lock:
            if self._is_shut:
                raise Stopped
            try:
                done = self._batches.process(rows)
            except Exception as error:
                self._failure = error
                raise
            if done is not None:
                self.done += 1
                self._on_batch(done)

    @property
    def is_busy(self) -> bool:
        """Return True while a batch runs."""
        return self._lock.locked()

    def check(self) -> None:
        """Raise the error of a batch that has failed."""
        if self._failure:
            raise self._failure

    def shut(self) -> None:
        """Let no more batches through, and return once none runs."""
        with self._lock:
            self._is_shut = True

    def run_between(self, work: Callable[[], None]) -> None:
        """Do work on the store while no batch runs."""
        with self._lock:
            work()


def start_stream(
    spark: SparkSession,
    gate: BatchGate,
    *,
    settings_path: Path,
    initial: list[str],
    checkpoint: Path,
    most_bodies: int,
    every: str,
) -> StreamingQuery:
    """Start the query; `every` is Spark's text of an interval, like `5 seconds`."""
    rows = (
        spark.readStream.format(NAME)
        .option("settings", str(settings_path))
        .option("initial", json.dumps(initial))
        .option("most", str(most_bodies))
        .load()
    )
    writer = rows.writeStream.foreachBatch(gate).trigger(processingTime=every)
    return writer.option("checkpointLocation", local_uri(checkpoint)).start()


def stop_stream(query: StreamingQuery, gate: BatchGate) -> None:
    """Stop the query after the running batch."""
    gate.shut()
    with suppress(PySparkException):  # a batch that was refused at the gate
        query.stop()
