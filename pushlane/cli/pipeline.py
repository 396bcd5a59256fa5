"""Commands on the receipts pipeline: run it, mend and tidy up its store, add what devices report.

Spark is loaded only when a command needs it.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import msgspec
import typer

from pushlane.backends.contact import RECEIPTS, Contact
from pushlane.cli.doing import on_client
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, option, switch
from pushlane.cli.health import HealthFlags, loop_patience_s
from pushlane.cli.render import age_text, picked, print_fields, print_json, time_text
from pushlane.cli.signals import ended_if_hung
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.client.connection import Connection
from pushlane.core.errors import BadInput, UserError
from pushlane.core.task import now_ms
from pushlane.model.times import parse_age, parse_since
from pushlane.operations.events import BadEvents, DeviceEvent, RecordEvents
from pushlane.producers.device_events import MOST_A_BODY, parse_event
from pushlane.producers.text_file import bounded_lines

if TYPE_CHECKING:
    from pushlane.pipeline.receipts.batch import BatchDone
    from pushlane.pipeline.receipts.status import Status
    from pushlane.pipeline.store import Gap

_GAPS = 8
MaxBodies = Annotated[int, option("N", "Most bodies of the log in one batch.", min=1)]


def run(
    flags: Flags,
    once: Annotated[bool, switch("--once", "End after one batch.")] = False,
    until_idle: Annotated[bool, switch("--until-idle", "End when nothing is left.")] = False,
    every: Annotated[str, option("5s", "Longest wait between batches.")] = "5s",
    spark: SparkFlags = DEFAULT_SPARK,
    max_bodies: MaxBodies = 4_000,
    *,
    metrics: HealthFlags,
) -> None:
    """Read the log of receipts into the store, batch by batch, each of them exactly once.

    Ctrl-C or SIGTERM ends it after the batch that runs. It may be killed at any moment: the next
    run goes on where the store's last manifest ends.
    """
    settings = flags.settings()
    with pipeline_extra():
        from pushlane.pipeline.receipts.job import JOB_METRICS, JobStats, RunOptions, run
    contact, stats = Contact(RECEIPTS), JobStats()
    with (
        metrics.serving() as health,
        ended_if_hung(health, loop_patience_s(settings)),
        stopped_by_signals(contact.stopping) as stop,
    ):
        health.missing = contact.missing
        health.show(JOB_METRICS, stats, settings)
        options = RunOptions(
            once=once,
            until_idle=until_idle,
            every_s=parse_age(every) / 1000,
            session=spark.session(),
            most_bodies=max_bodies,
            on_batch=lambda done: note(_batch_line(done)),
            on_note=note,
            stats=stats,
            contact=contact,
            beside=(lambda _: health.beat(),),
        )
        run(settings, options, stop)


def compact(flags: Flags, spark: SparkFlags = DEFAULT_SPARK, as_json: JsonFlag = False) -> None:
    """Merge small files, roll up old counts, amend rows by clicks, remove what is too old.

    Sampled batches get all their rows back first. A job that runs does all this when it is idle.
    """
    with pipeline_extra():
        from pushlane.pipeline.receipts.maintenance import maintain
    done = maintain(flags.settings(), spark.session(), note)
    if as_json:
        print_json(asdict(done))
    else:
        note(f"{done.before:,} files became {done.after:,}; {done.removed:,} were removed for good")


def replay(
    flags: Flags,
    since: Annotated[str, option("2h|TIME", "From when on: a duration ago, or an ISO time.")],
    spark: SparkFlags = DEFAULT_SPARK,
    max_bodies: MaxBodies = 4_000,
    as_json: JsonFlag = False,
) -> None:
    """Rebuild the store from a time on, from the log of receipts, and swap it in as a whole.

    What is older stays as it is. The time is rounded down to the hour. Stop the job first; when
    this is interrupted, the old store is still there, untouched.
    """
    settings = flags.settings()
    with pipeline_extra():
        from pushlane.pipeline.receipts.rebuild import ReplayOptions, replay
    options = ReplayOptions(
        since_ms=parse_since(since, now_ms()),
        session=spark.session(),
        most_bodies=max_bodies,
        on_batch=lambda done: note(_batch_line(done)),
        on_note=note,
    )
    done = replay(settings, options)
    if as_json:
        print_json(asdict(done))
    else:
        note(
            f"{done.generation} counts now: {done.receipts:,} receipts read again, "
            f"since {time_text(done.since_ms)}"
        )


def status(flags: Flags, as_json: JsonFlag = False) -> None:
    """Show how far the log of receipts was read, what is left, and what the store holds."""
    with pipeline_extra():
        from pushlane.pipeline.receipts.status import status
    found = status(flags.settings())
    if as_json:
        print_json(_status_json(found))
    else:
        print_fields(_status_fields(found))


@contextmanager
def stopped_by_signals(on_stop: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Give an event that SIGTERM and Ctrl-C set; a second Ctrl-C interrupts."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        on_stop()
        note("stopping after the batch that runs; Ctrl-C again leaves at once")

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _batch_line(done: BatchDone) -> str:
    rate = done.receipts / max(done.seconds, 1e-3)
    parts = [
        f"batch {done.number}: {done.receipts:,} receipts in {done.seconds:.1f} s ({rate:,.0f}/s)",
        f"{done.lag:,} bodies left",
    ]
    if done.duplicates:
        parts.append(f"{done.duplicates:,} repeats dropped")
    if done.quarantined:
        parts.append(f"{done.quarantined:,} bodies set aside")
    if not done.mode.is_full:
        parts.append(f"detail rows: {done.mode.rate:.1%} sample, since {done.mode.why}")
    return ", ".join(parts)


def _status_fields(status: Status) -> list[tuple[str, str]]:
    snapshot = status.snapshot
    counts = snapshot.counts
    sampled = [each for each in snapshot.intervals if each.state == "sampled"]
    gone = [each for each in snapshot.intervals if each.state == "gone"]
    lost = ", and the log has dropped some that were not read"
    at_ms = snapshot.last_batch_at_ms
    ago = f"{time_text(at_ms)}, {age_text(at_ms, now_ms())} ago" if at_ms else "none yet"
    fields = [
        ("job", "running" if status.is_running else "not running"),
        ("generation", snapshot.generation),
        ("last batch", f"{snapshot.last_batch} ({ago})"),
        ("lag", f"{status.lag:,} bodies{lost if status.is_missing else ''}"),
        ("mode", status.mode),
        ("receipts", f"{counts.receipts:,} in {counts.bodies:,} bodies"),
        ("repeats", f"{counts.duplicates:,}"),
        ("quarantined", f"{counts.quarantined:,} bodies"),
        ("sampled", f"{len(sampled)} batches to be filled up, {len(gone)} not kept by the log"),
        ("positions", " ".join(snapshot.positions or ["-"])),
        *(("missing", _missing(gap)) for gap in snapshot.gaps[-_GAPS:]),
    ]
    tables = [
        (table, f"{size.rows:,} rows in {size.files:,} files, {size.bytes:,} bytes")
        for table, size in snapshot.tables.items()
        if size.files
    ]
    return fields + tables


def _status_json(status: Status) -> dict[str, Any]:
    snapshot = status.snapshot
    return {
        "running": status.is_running,
        **picked(snapshot, "generation", "manifest", "last_batch", "last_batch_at_ms"),
        "lag": status.lag,
        "missing": status.is_missing,
        "mode": status.mode,
        "positions": snapshot.positions,
        "counts": msgspec.to_builtins(snapshot.counts),
        "gaps": msgspec.to_builtins(snapshot.gaps),
        "intervals": msgspec.to_builtins(snapshot.intervals),
        "tables": {table: asdict(size) for table, size in snapshot.tables.items()},
    }


def _missing(gap: Gap) -> str:
    return (
        f"partition {gap.partition} from {gap.start} to {gap.end}, dropped by the log between "
        f"{time_text(gap.since_ms)} and {time_text(gap.at_ms)}"
    )


_SHOWN = 10

File = Annotated[Path, argument("FILE", "JSON Lines; - for stdin.")]
BadRows = Annotated[
    Literal["stop", "skip"], typer.Option(help="At a line that cannot be used: stop, or skip it.")
]


def add(flags: Flags, file: File, bad_rows: BadRows = "stop", as_json: JsonFlag = False) -> None:
    """Record events of pushes, one JSON object a line, for reports.

    {"push_id": "TASK-7", "event": "clicked", "at": "2030-01-31T18:00Z", "attributes": {...}}

    `task_id` and `seq` may stand for push_id; events are displayed and clicked; `at` is an ISO
    time, or Unix seconds or milliseconds. The same event again counts once.
    """
    settings = flags.settings()
    refused = _tell_skipped(str(file)) if bad_rows == "skip" else None
    with _opened(file) as stream:
        result = on_client(settings, lambda client: _Lines(client, str(file), refused).add(stream))
    if as_json:
        print_json(asdict(result))
    else:
        typer.echo(f"{result.recorded:,} events recorded")
    if result.rejected:
        note(f"{result.rejected:,} lines left out")


@dataclass(frozen=True)
class _Recorded:
    """The numbers of events that were recorded and of lines that were left out."""

    recorded: int
    rejected: int


class _Lines:
    """Records the lines of a file, some hundred at a time: memory is flat in their number.

    A bad one ends it, unless `refused` is given to be told of it.
    """

    def __init__(
        self, client: Connection, name: str, refused: Callable[[int, str], None] | None
    ) -> None:
        self._client = client
        self._name = name
        self._refused = refused
        self._waiting: list[tuple[int, DeviceEvent]] = []
        self._recorded = self._rejected = 0

    async def add(self, stream: BinaryIO) -> _Recorded:
        """Record every line. Raises BadInput for a bad one, which says which line, and why."""
        for number, line in enumerate(bounded_lines(stream.readline, self._name), start=1):
            if not line.strip():
                continue
            try:
                self._waiting.append((number, DeviceEvent.of(parse_event(line))))
            except UserError as error:
                await self._send()
                self._refuse(number, str(error))
            if len(self._waiting) >= MOST_A_BODY:
                await self._send()
        await self._send()
        return _Recorded(self._recorded, self._rejected)

    async def _send(self) -> None:
        numbers, events = [n for n, _ in self._waiting], tuple(one for _, one in self._waiting)
        self._waiting = []
        if not events:
            return
        bad = BadEvents.SKIP if self._refused else BadEvents.STOP
        done = await self._client.do(RecordEvents(events=events, bad=bad))
        self._recorded += done.recorded
        for one in done.rejected:
            self._refuse(numbers[one.place - 1], one.why)

    def _refuse(self, number: int, why: str) -> None:
        if self._refused is None:
            raise BadInput(
                f"{self._name}:{number}: {why}. Recorded before it: {self._recorded:,}, which "
                "count once if they are sent again; correct the line, or leave bad ones out "
                "with --bad-rows skip"
            )
        self._rejected += 1
        self._refused(number, why)


def _tell_skipped(name: str) -> Callable[[int, str], None]:
    """Return what shows the first lines that were left out."""
    shown = itertools.count()

    def tell(number: int, why: str) -> None:
        if next(shown) < _SHOWN:
            note(f"{name}:{number}: {why}")

    return tell


def _opened(file: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if str(file) == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error


pipeline = Group(
    "Read receipts into the store of reports, and look after it.", (run, replay, compact, status)
)
receipts = Group("Add what devices say of pushes later to their receipts.", (add,))
