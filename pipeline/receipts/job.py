"""The job that reads the log of receipts into the store until it is stopped or nothing is left.

It may be killed at any moment, and started again by anybody, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from pushlane.lanes.errors import ReceiptsGone
from pushlane.lanes.settings import Settings
from pushlane.pipeline.receipts.batch import BatchDone, Batches
from pushlane.pipeline.receipts.job_context import (
    JobContext,
    SessionOptions,
    open_job_context,
    translated,
)
from pushlane.pipeline.receipts.maintenance import StoreMaintenance
from pushlane.pipeline.receipts.resume import resume_positions, set_aside_unfit_checkpoint
from pushlane.pipeline.receipts.stream import BatchGate, start_stream, stop_stream

MOST_BODIES = 4_000
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class RunOptions:
    """Options of a job: `once` ends it after one batch, `until_idle` when nothing is left."""

    once: bool = False
    until_idle: bool = False
    every_s: float = 5.0
    session: SessionOptions = field(default_factory=SessionOptions)
    most_bodies: int = MOST_BODIES
    on_batch: Callable[[BatchDone], None] = field(default=lambda _: None)
    on_note: Callable[[str], None] = field(default=lambda _: None)


def run(settings: Settings, options: RunOptions, stop: threading.Event) -> None:
    """Read the log until `stop` is set, or as the options say.

    Raises:
        StoreBusy: another job writes this store.
        CorruptStore: the store is damaged; names the file and the command that mends it.
        PipelineFailed, Unreachable, ReceiptsGone: what ended it; it can be run again.
    """
    try:
        with open_job_context(settings, options.session) as work:
            run_on(work, options, stop)
    except ReceiptsGone as error:
        raise ReceiptsGone(
            f"{error}; run the command again, which goes on with what the log has"
        ) from error


def run_on(work: JobContext, options: RunOptions, stop: threading.Event) -> None:
    """Read the log with a store, session and log that are open already."""
    spark, writer, log, settings, settings_path = work
    initial, missing = resume_positions(writer, log)
    unfit = set_aside_unfit_checkpoint(writer.generation.checkpoint, initial)
    for note in filter(None, (missing, unfit)):
        options.on_note(note)
    batches = Batches(spark, writer, log, settings, initial)
    gate = BatchGate(batches, options.on_batch)
    query = start_stream(
        spark,
        gate,
        settings_path=settings_path,
        initial=initial,
        checkpoint=writer.generation.checkpoint,
        most_bodies=options.most_bodies,
        every=f"{0 if options.until_idle or options.once else options.every_s} seconds",
    )
    idle = StoreMaintenance(*work, options.on_note)
    try:
        watched = RunningJob(query, gate, lambda: log.lag(batches.positions), idle)
        _watch(watched, options, stop)
    finally:
        stop_stream(query, gate)
    gate.check()


class RunningJob(NamedTuple):
    """The parts of a running job that are watched for a reason to end."""

    query: StreamingQuery
    gate: BatchGate
    lag: Callable[[], int]
    idle: StoreMaintenance


def _watch(watched: RunningJob, options: RunOptions, stop: threading.Event) -> None:
    """Return when there is a reason to end, and do maintenance while nothing is left to read."""
    query, gate, lag, idle = watched
    while not stop.is_set():
        gate.check()
        if not query.isActive:
            raise translated(query.exception())
        if options.once and gate.done:
            return
        if gate.is_busy:
            stop.wait(_LOOK_EVERY_S)
            continue
        if not lag():
            if options.once or (not idle.is_waiting and options.until_idle):
                return
            gate.run_between(idle.work)
        elif idle.is_overdue:
            gate.run_between(idle.work)
        stop.wait(_LOOK_EVERY_S)
