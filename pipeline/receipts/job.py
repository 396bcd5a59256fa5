"""The job: reads the log of receipts into the store until it is told to stop, or nothing is left.

It may be killed at any moment, and started again by anybody, one at a time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lanes.errors import PushlaneError
from lanes.settings import Settings
from pipeline.errors import PipelineFailed
from pipeline.receipts.batch import BatchDone, Batches
from pipeline.receipts.checkpoint import set_aside_if_unfit
from pipeline.receipts.handover import handed_over
from pipeline.receipts.idle import Idle
from pipeline.receipts.opened import OpenedLog
from pipeline.receipts.source import register_source
from pipeline.receipts.stream import Gate, start_stream, stop_stream
from pipeline.session import MASTER, spark_session
from pipeline.store import StoreWriter, store_root
from pipeline.store.writing import writing

MOST_BODIES = 4_000
_LOOK_EVERY_S = 0.2
DRIVER_MEMORY = "2g"
_SPARK = {
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_SQL = {
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.stopTimeout": "30000",
}


@dataclass(frozen=True)
class RunOptions:
    """`once` ends after one batch, `until_idle` when nothing is left; else it goes on."""

    once: bool = False
    until_idle: bool = False
    every_s: float = 5.0
    master: str = MASTER
    driver_memory: str = DRIVER_MEMORY
    most_bodies: int = MOST_BODIES
    on_batch: Callable[[BatchDone], None] = field(default=lambda _: None)
    on_note: Callable[[str], None] = field(default=lambda _: None)


def run(settings: Settings, options: RunOptions, stop: threading.Event) -> None:
    """Read until `stop` is set, or as the options say.

    Raises:
        StoreBusy: another job writes this store.
        CorruptStore: the store is damaged; names the file and the command that mends it.
        PipelineFailed, Unreachable, ReceiptsGone: what ended it; it can be run again.
    """
    with (
        writing(store_root(settings)) as writer,
        spark_session(
            "pushlane receipts", options.master, _SPARK, driver_memory=options.driver_memory
        ) as spark,
    ):
        run_on(spark, writer, settings, options, stop)


def run_on(
    spark: SparkSession,
    writer: StoreWriter,
    settings: Settings,
    options: RunOptions,
    stop: threading.Event,
) -> None:
    """The same on a session and a store that are open."""
    prepare(spark)
    with (
        OpenedLog(settings) as log,
        handed_over(settings, writer.generation.folder) as settings_path,
        told_errors(),
    ):
        initial = writer.state.positions or log.first()
        note = set_aside_if_unfit(writer.generation.checkpoint, initial)
        if note:
            options.on_note(note)
        batches = Batches(spark, writer, log, settings, initial)
        idle = Idle(spark, writer, log, settings, settings_path, options.on_note)
        gate = Gate(batches, options.on_batch)
        query = start_stream(
            spark,
            gate,
            settings_path=settings_path,
            initial=initial,
            checkpoint=writer.generation.checkpoint,
            most_bodies=options.most_bodies,
            every=f"{0 if options.until_idle or options.once else options.every_s} seconds",
        )
        try:
            watched = Watched(query, gate, lambda: log.lag(batches.positions), idle)
            _watch(watched, options, stop)
        finally:
            stop_stream(query, gate)
        gate.check()


def prepare(spark: SparkSession) -> None:
    """Give a session what work on the store needs."""
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    for name, value in _SQL.items():
        spark.conf.set(name, value)
    register_source(spark)


class Watched(NamedTuple):
    query: StreamingQuery
    gate: Gate
    lag: Callable[[], int]
    idle: Idle


def _watch(watched: Watched, options: RunOptions, stop: threading.Event) -> None:
    """Until there is a reason to end. When nothing is left there is time for other work."""
    query, gate, lag, idle = watched
    while not stop.is_set():
        gate.check()
        if not query.isActive:
            raise PipelineFailed(_said_by(query.exception()))
        if options.once and gate.done:
            return
        if not lag():
            if options.once or (not idle.is_waiting and options.until_idle):
                return
            gate.between(idle.work)
        stop.wait(_LOOK_EVERY_S)


@contextmanager
def told_errors() -> Iterator[None]:
    """What Spark says of an error of ours, in our words again."""
    try:
        yield
    except PushlaneError:
        raise
    except Exception as error:  # py4j's errors and Spark's have no common base
        raise PipelineFailed(_said_by(error)) from error


_OURS = re.compile(r"^(?:lanes|pipeline)\.[\w.]*?(\w+): (.+)$", re.MULTILINE)


def _said_by(error: BaseException | None) -> str:
    """The message of an error of ours that was raised in a worker; else only Spark's name for it:
    its text could quote rows.
    """
    found = _OURS.search(str(error))
    if found:
        return found[2]
    return f"Spark stopped with {type(error).__name__}; run it again, or with --debug to see why"
