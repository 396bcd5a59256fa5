"""The job that reads the log of receipts into the store, and the metrics that it shows.

It may be killed at any moment, and started again by anybody, one at a time. The manifests alone say
how far the store is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from pushlane.backends.contact import RECEIPTS, Contact, keep_asking
from pushlane.backends.ports import ReceiptLog
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.task import now_ms
from pushlane.pipeline.receipts.batch import BatchDone, Batches
from pushlane.pipeline.receipts.job_context import (
    JobContext,
    SessionOptions,
    open_job_context,
    translated,
)
from pushlane.pipeline.receipts.maintenance import StoreMaintenance
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import Gap, StoreWriter
from pushlane.settings import Settings
from pushlane.util.buckets import Buckets
from pushlane.util.errors import ReceiptsGone
from pushlane.util.metrics import Exporter, MetricMaker, ReadMetric


@dataclass(eq=False)
class JobStats:
    """The counts of one job since it started, and how far behind the log it is."""

    clock_s: Callable[[], float] = time.monotonic
    lag: int = 0
    stored: int = 0
    batches: Buckets = field(default_factory=Buckets)

    def __post_init__(self) -> None:
        self._caught_up_s = self.clock_s()

    def looked(self, lag: int) -> None:
        """Note how many bodies of the log are not read."""
        self.lag = lag
        if not lag:
            self._caught_up_s = self.clock_s()

    def stored_batch(self, receipts: int, seconds: float, *, took_all: bool) -> None:
        """Note a batch that was published; `took_all` if it read all there was when it began."""
        self.stored += receipts
        self.batches.add(seconds)
        if took_all:
            self._caught_up_s = self.clock_s() - seconds

    def lag_s(self) -> float:
        """Return for how long the oldest body that is not read may be there, 0 if there is none."""
        return self.clock_s() - self._caught_up_s if self.lag else 0.0


_make: MetricMaker[JobStats] = MetricMaker(Exporter.PIPELINE)

JOB_METRICS: tuple[ReadMetric[JobStats], ...] = (
    _make.gauge(
        "receipts_lag",
        "bodies",
        "Bodies of the log of receipts that are not in the store yet",
        lambda stats: stats.lag,
    ),
    _make.gauge(
        "receipts_lag_seconds",
        "seconds",
        "For how long the oldest of them may have been in the log, 0 while nothing is left",
        lambda stats: stats.lag_s(),
    ),
    _make.counter(
        "receipts_stored_total",
        "receipts",
        "Receipts put into the store",
        lambda stats: stats.stored,
    ),
    _make.histogram(
        "pipeline_batch_seconds",
        "One batch, from the log to its manifest",
        lambda stats: stats.batches,
    ),
)
"""All metrics of the receipts job, in the order in which they are shown."""

MOST_BODIES = 4_000
_LOOK_EVERY_S = 0.2
_AWAY_S = 2.0


@dataclass(frozen=True)
class RunOptions:
    """Options of a job: `once` ends it after one batch, `until_idle` when nothing is left.

    `contact` is told of its start and when the log answers; `beside` runs in the log's event loop.
    """

    once: bool = False
    until_idle: bool = False
    every_s: float = 5.0
    session: SessionOptions = field(default_factory=SessionOptions)
    most_bodies: int = MOST_BODIES
    on_batch: Callable[[BatchDone], None] = field(default=lambda _: None)
    on_note: Callable[[str], None] = field(default=lambda _: None)
    stats: JobStats = field(default_factory=JobStats)
    contact: Contact = field(default_factory=lambda: Contact(RECEIPTS))
    beside: Sequence[Callable[[ReceiptLog], Coroutine[Any, Any, None]]] = ()


def run(settings: Settings, options: RunOptions, stop: threading.Event) -> None:
    """Read the log until `stop` is set, or as the options say.

    Raises StoreBusy if another job writes this store, CorruptStore if it is damaged, with the file
    and the command that mends it; PipelineFailed, Unreachable or ReceiptsGone can be run again.
    """
    try:
        with open_job_context(settings, options.session) as work:
            run_on(work, options, stop)
    except ReceiptsGone as error:
        again = "run the command again, which goes on with what the log has"
        raise ReceiptsGone(f"{error}; {again}") from error


def run_on(work: JobContext, options: RunOptions, stop: threading.Event) -> None:
    """Read the log with a store, session and log that are open already.

    A stop waits for the batch that runs. While nothing is left to read, the store is maintained. A
    log that does not answer is waited for, unless the job is to end by itself.
    """
    for each in options.beside:
        work.log.run_beside(each)
    work.log.run_beside(lambda log: keep_asking(options.contact[RECEIPTS], log.first))
    job = _Job(work, options)
    options.contact.started()
    is_away = False
    while not stop.is_set():
        try:
            wait_s = job.turn()
        except Exception as error:  # noqa: BLE001 - what does not pass by itself is raised again
            why = _passing(error, options)
            if not is_away:
                options.on_note(f"waiting for the log of receipts: {why}")
            is_away = True
            stop.wait(_AWAY_S)
            continue
        if is_away:
            options.on_note("the log of receipts is back")
        is_away = False
        if wait_s is None:
            return
        stop.wait(wait_s)


def _passing(error: Exception, options: RunOptions) -> Unreachable:
    """Return the error if it passes by itself, and somebody waits for that; else raise it.

    A batch that failed by it is read again: nothing of it counts yet.
    """
    ours = error if isinstance(error, PushlaneError) else translated(error)
    if not isinstance(ours, Unreachable) or options.once or options.until_idle:
        raise error
    return ours


class _Job:
    """The turns of a job: each reads a batch, or looks after the store while nothing is left."""

    def __init__(self, work: JobContext, options: RunOptions) -> None:
        initial, missing = resume_positions(work.writer, work.log)
        if missing:
            options.on_note(missing)
        self._log = work.log
        self._options = options
        self._batches = Batches(work, initial)
        self._idle = StoreMaintenance(work, options.on_note)
        self._due_s = time.monotonic()

    def turn(self) -> float | None:
        """Do what there is to do now; return how long to wait then, None when that was all."""
        options = self._options
        if self._idle.is_overdue:
            self._idle.work()
        options.stats.looked(lag := self._log.lag(self._batches.positions))
        if not lag:
            if options.once or (options.until_idle and not self._idle.is_waiting):
                return None
            self._idle.work()
        elif time.monotonic() >= self._due_s:
            is_paced = not (options.until_idle or options.once)
            self._due_s = time.monotonic() + (options.every_s if is_paced else 0.0)
            if self._read():
                return None if options.once else 0.0
        return _LOOK_EVERY_S

    def _read(self) -> bool:
        options = self._options
        done = self._batches.read_next(options.most_bodies)
        if done is None:
            return False
        took_all = done.bodies < options.most_bodies
        stored = done.receipts - done.duplicates
        options.stats.stored_batch(stored, done.seconds, took_all=took_all)
        options.stats.looked(done.lag)
        options.on_batch(done)
        return True


def resume_positions(writer: StoreWriter, log: SyncReceiptLog) -> tuple[list[str], str]:
    """Return the positions to begin at, and a note on missing receipts; empty if none are missing.

    Receipts that the log dropped unread, as it does at its bound with `receipts=on`, are noted as a
    gap in a manifest, so that a report of that time can be told from a whole one.
    """
    positions = writer.state.positions
    if positions is None:
        return log.first(), ""
    kept = log.kept(positions)
    if kept == positions:
        return positions, ""
    since_ms, at_ms = writer.state.last_batch_at_ms, now_ms()
    gaps = [
        Gap(place, start, end, since_ms, at_ms)
        for place, (start, end) in enumerate(zip_longest(positions, kept, fillvalue=""))
        if start != end
    ]
    writer.publish("gap", writer.begin(), positions=kept, gaps=gaps)
    partitions = "a partition" if len(gaps) == 1 else f"{len(gaps)} partitions"
    return kept, (
        f"the log has dropped receipts of {partitions} that were not read yet, and goes on with "
        "its oldest; `pushlane pipeline status` shows where. Raise receipts_max_bytes, set "
        "receipts=required, or keep `pushlane pipeline run` going"
    )
