"""`ingest` makes a push of each record of a source elsewhere, beside the backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pushlane.backends.backend import Backend, connect
from pushlane.backends.contact import BROKER, REGISTRY, Contact, in_contact
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import (
    Flags,
    Group,
    JsonFlag,
    LogFormat,
    YesFlag,
    argument,
    on_backend,
    option,
    switch,
)
from pushlane.cli.health import Health, HealthFlags, loop_patience_s
from pushlane.cli.logs import set_up_logs
from pushlane.cli.render import Column, age_text, print_json, print_rows
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.core.errors import BadInput
from pushlane.core.task import Level, now_ms
from pushlane.model.streams import Stream, list_streams, only_stream
from pushlane.model.times import parse_since
from pushlane.settings import Settings
from pushlane.util.errors import NotFound
from pushlane.util.extras import needs_extra

if TYPE_CHECKING:
    from pushlane.ingest.ingest import Ingest
    from pushlane.ingest.mapping import Made
    from pushlane.ingest.position import Position, Positions
    from pushlane.ingest.source import RecordSource

    Opener = Callable[[Backend, Stream], RecordSource]

App = Annotated[
    str, option("NAME", "The stream's app, if several apps have a stream of that name.")
]


def run(
    flags: Flags,
    source: Annotated[
        str, argument("SOURCE", "kafka://HOST:PORT/TOPIC, or a folder: its *.jsonl may grow.")
    ],
    stream: Annotated[str, option("NAME", "The stream to send the pushes in.")],
    mapping: Annotated[Path, option("FILE", "TOML file: how to make a push of a record.")],
    app: App = "",
    bad: Annotated[
        Path | None, option("FILE", "Keeps records that cannot be a push; else one stops it.")
    ] = None,
    on_gap: Annotated[
        Literal["stop", "go"], option("stop|go", "Where records are gone that were not read.")
    ] = "stop",
    first: Annotated[
        Literal["first", "end"],
        option("first|end", "Where a partition begins that was never read.", "--from"),
    ] = "first",
    map_timeout: Annotated[
        float, option("S", "How long a mapping's function may take for a record.", min=0.1)
    ] = 5.0,
    change: Annotated[
        bool, switch("--change", "The mapping is another one than the stream had: new tasks.")
    ] = False,
    kafka: Annotated[
        list[str] | None,
        option("NAME=VALUE", "A setting of librdkafka; @FILE for what a file holds. Repeat it."),
    ] = None,
    log_format: LogFormat = None,
    *,
    metrics: HealthFlags,
) -> None:
    """Make a push of each record of a source, once, until stopped.

    Run as many as you like: each reads partitions (of a folder: files) that no other reads, and
    goes on where that one ended.
    SIGTERM or Ctrl-C ends it once what is in progress is on its lane.
    """
    from pushlane.ingest.ingest import OnGap, Start
    from pushlane.ingest.mapping import load_mapping

    settings = flags.also(log_format=log_format).settings()
    set_up_logs(settings.log_format)
    made = load_mapping(mapping)
    opened = _opener(source, kafka or [])
    options: dict[str, Any] = {"on_gap": OnGap(on_gap), "start": Start(first)}
    options |= {"map_timeout_s": map_timeout, "change": change}
    with metrics.serving() as health, ended_if_hung(health, loop_patience_s(settings)):
        asyncio.run(_run(settings, opened, (stream, app), made, bad, options, health))


def _opener(source: str, kafka: list[str]) -> Opener:
    """Return what opens a source for a stream. Raises BadInput for what is none."""
    if source.startswith("kafka:"):
        with needs_extra("kafka", "Kafka as a source"):
            from pushlane.ingest.kafka import KafkaSource
            from pushlane.ingest.kafka_topic import client_settings, place_of
        place, given = place_of(source), client_settings(kafka)
        return lambda _, stream: KafkaSource(place, f"pushlane-{stream.app}-{stream.name}", given)
    scheme, is_url, _ = source.partition("://")  # behind which may be a password
    if is_url:
        raise BadInput(
            f"{scheme[:20]}:// is not a source; give kafka://HOST:PORT/TOPIC, or a folder with "
            "files that end in .jsonl"
        )
    if kafka:
        raise BadInput("--kafka goes with a source kafka://HOST:PORT/TOPIC alone")
    from pushlane.ingest.folder import FolderSource

    return lambda backend, stream: FolderSource(Path(source), backend.lease, stream.place)


async def _run(
    settings: Settings,
    opened: Opener,
    named: tuple[str, str],
    made: Made,
    bad: Path | None,
    options: dict[str, Any],
    health: Health,
) -> None:
    from pushlane.ingest.bad_records import BadRecordFile
    from pushlane.ingest.ingest import Ingest
    from pushlane.ingest.metrics import INGEST_METRICS

    contact = Contact(BROKER, REGISTRY)
    health.missing = contact.missing
    async with connect(settings, create=False) as backend, in_contact(contact, backend):
        stream = await _stream(backend, *named)
        source = opened(backend, stream)
        kept = BadRecordFile(source.name, bad)
        ingest = Ingest(backend, settings, stream, source, made, kept, **options)
        stop_on_signals(
            ingest.stop,
            stopping="stopping once what is in progress is on its lane",
            left="what was in progress is read again by the next one; nothing is sent twice",
        )
        health.show(INGEST_METRICS, ingest, settings)
        health.remarks = ingest.troubles
        async with health.beating():
            contact.started()
            note(f"reading {source.name} for stream {stream.name} of app {stream.app}")
            try:
                await ingest.run()
            finally:
                contact.stopping()
                note(_told(ingest))


def _told(ingest: Ingest) -> str:
    counted = ingest.counted
    parts = [f"{counted.pushes:,} pushes on their lane", f"{counted.skipped:,} left out"]
    if counted.repeated:
        parts.append(f"{counted.repeated:,} there before")
    if counted.bad:
        parts.append(f"{counted.bad:,} bad records")
    return ", ".join(parts)


async def _stream(backend: Backend, name: str, app: str) -> Stream:
    """Return the stream of this name. Raises NotFound, and BadInput for several."""
    there = await list_streams(backend.documents)
    return only_stream([s for s in there if s.name == name and app in ("", s.app)], name)


def status(
    flags: Flags,
    stream: Annotated[str, argument("STREAM", "The stream to send the pushes in.")],
    app: App = "",
    as_json: JsonFlag = False,
) -> None:
    """Show how far each partition of a stream has been read, and what is behind.

    A partition that was not looked at for a minute is read by no process.
    """
    from pushlane.ingest.position import all_positions

    logging.getLogger("pushlane").setLevel(logging.WARNING)
    settings = flags.settings()

    async def look(backend: Backend) -> list[dict[str, Any]]:
        found = await _stream(backend, stream, app)
        there = await all_positions(backend.documents, found)
        return [
            _shown(name, one, found.level)
            for name, one in sorted(there.items(), key=_by_number)
            if one.main.source_id
        ]

    begin = f"pushlane ingest SOURCE --stream {stream} --mapping FILE"
    nothing = f"nothing was ingested for stream {stream}; begin with: {begin}"
    print_rows(_COLUMNS, on_backend(settings, look), dict, as_json=as_json, nothing=nothing)


def _by_number(one: tuple[str, object]) -> tuple[int, str]:
    return (len(one[0]) if one[0].isdecimal() else 0, one[0])


def _shown(name: str, positions: Positions, level: Level) -> dict[str, Any]:
    """Return a partition as it is shown; `level` is that of records that name none."""
    seen, at = positions.main.seen, positions.lowest
    tasks = [_task(level, positions.main), *starmap(_task, positions.by_level.items())]
    return {
        "partition": name,
        "read_up_to": at,
        "lag": None if seen is None else max(0, seen.end - at),
        "in_progress": None if seen is None else seen.in_progress,
        "per_s": None if seen is None else seen.per_s,
        "bad": None if seen is None else seen.bad,
        "seen_at_ms": None if seen is None else seen.at_ms,
        "pushes": sum(one.pushes for one in positions.all),
        "tasks": [one for one in tasks if one["task"]],
    }


def _task(level: Level, position: Position) -> dict[str, Any]:
    return {
        "task": position.task_id,
        "level": level,
        "read_up_to": position.at,
        "pushes": position.pushes,
    }


def _figure(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda one: "-" if one[name] is None else f"{one[name]:,}"


def _age(one: dict[str, Any]) -> str:
    at_ms = one["seen_at_ms"]
    return "-" if at_ms is None else f"{age_text(at_ms, now_ms())} ago"


def _task_text(one: dict[str, Any]) -> str:
    tasks = [str(each["task"]) for each in one["tasks"]]
    return f"{len(tasks)} tasks" if len(tasks) > 1 else "".join(tasks) or "-"


_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("PARTITION", lambda one: str(one["partition"]), elastic=True),
    Column("READ UP TO", _figure("read_up_to"), number=True),
    Column("LAG", _figure("lag"), number=True),
    Column("IN PROGRESS", _figure("in_progress"), number=True),
    Column("PER S", _figure("per_s"), number=True),
    Column("BAD", _figure("bad"), number=True),
    Column("TASK", _task_text),
    Column("PUSHES", _figure("pushes"), number=True),
    Column("SEEN", _age),
)


def seek(
    flags: Flags,
    stream: Annotated[str, argument("STREAM", "The stream to send the pushes in.")],
    to: Annotated[str, option("OFFSET|2h|TIME", "An offset, a time, or this long ago.")],
    partition: Annotated[
        list[str] | None, option("NAME", "This partition alone; repeat it for more.")
    ] = None,
    again: Annotated[bool, switch("--again", "Send what was sent from there once more.")] = False,
    app: App = "",
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Have the processes go on elsewhere. Nothing is sent twice, unless you say --again.

    Whoever has a partition does so within seconds; without a process, the next one does.
    """
    from pushlane.ingest.position import all_positions
    from pushlane.ingest.steering import Seek, ask_for

    settings = flags.settings()
    offset = int(to) if to.isdecimal() else None
    at_ms = parse_since(to, now_ms()) if offset is None else 0

    async def ask(backend: Backend) -> None:
        found = await _stream(backend, stream, app)
        there = await all_positions(backend.documents, found)
        names = partition or sorted(there)
        unknown = [name for name in names if name not in there]
        if unknown or not names:
            raise NotFound(
                f"nothing was ingested for partition {unknown[0] if unknown else '-'} of stream "
                f"{stream}; see: pushlane ingest status {stream}"
            )
        told = _sought([there[name] for name in names], offset, to, again=again)
        if told and not yes:
            confirm(
                f"going to {to} ({told})",
                f"{told[0].upper()}{told[1:]}. Go there?",
                "nothing is changed",
            )
        await ask_for(
            backend.documents, found, names, Seek(offset=offset, at_ms=at_ms, again=again)
        )
        if as_json:
            print_json({"partitions": names, "offset": offset, "at_ms": at_ms, "again": again})
        note(f"asked for; see: pushlane ingest status {stream}")

    on_backend(settings, ask)


def _sought(read: Sequence[Positions], offset: int | None, to: str, *, again: bool) -> str:
    """Return what cannot be undone of a seek; by a time, which only a source knows, what may be.

    Empty when nothing is.
    """
    if offset is None:
        parts = [f"all records from {to} on are sent once more"] if again else []
        return " and ".join([*parts, f"records from before {to} are passed over if unsent"])
    passed = sum(max(0, offset - one.lowest) for one in read)
    sent = sum(max(0, one.highest - offset) for one in read) if again else 0
    parts = [f"{sent:,} records are sent once more"] if sent else []
    return ", ".join([*parts, *([f"{passed:,} offsets are passed over unsent"] if passed else [])])


def reset(
    flags: Flags,
    stream: Annotated[str, argument("STREAM", "The stream to send the pushes in.")],
    app: App = "",
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Forget how far a source was read, as for a topic that was recreated.

    Stop its processes first. Pushes on the lanes are still sent. The next process begins with the
    first record, or with --from end behind the last.
    """
    from pushlane.ingest.steering import reset as begin_anew

    settings = flags.settings()

    async def forget(backend: Backend) -> int:
        found = await _stream(backend, stream, app)
        if not yes:
            question = (
                f"Forget how far stream {stream} was read? What the source has is sent again."
            )
            confirm(f"resetting stream {stream}", question, "nothing is changed")
        return await begin_anew(backend, settings, found)

    count = on_backend(settings, forget)
    if as_json:
        print_json({"partitions": count})
    note(f"{count:,} partitions of stream {stream} start over")


ingest = Group(
    "Make a push of each record of a source elsewhere, once.",
    (run, status, seek, reset),
    has_default=True,
)
