"""`submit`: makes a task of a file's rows, and prints its id."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from pushlane.cli.backend_run import on_backend
from pushlane.cli.completion import complete_delivery, complete_level
from pushlane.cli.errors import INTERRUPTED, note
from pushlane.cli.flags import Flags, JsonFlag, with_flags
from pushlane.cli.parsing import (
    parse_dedupe,
    parse_delivery,
    parse_level,
    parse_on_unknown,
    pushes_text,
)
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import print_json
from pushlane.cli.task_view import task_fields
from pushlane.cli.times import time_text
from pushlane.lanes.errors import Unreachable
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import DeliveryMode, Task
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.offline_submit import hand_in
from pushlane.producers.request import SubmitRequest, SubmitResult
from pushlane.producers.submit import submit as submit_rows
from pushlane.producers.times import parse_expiry, parse_retention, parse_start

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV, JSON Lines or Parquet; - for stdin.")
]
LevelWord = Annotated[
    str,
    typer.Option(
        "--level", metavar="high|medium|low", autocompletion=complete_level, help="Level."
    ),
]
Recipient = Annotated[str, typer.Option(metavar="COLUMN", help="Column of recipients.")]
Title = Annotated[str, typer.Option(help="Template like 'Hi {name}'.")]
Body = Annotated[str, typer.Option(help="Template like 'Order {id} is on its way'.")]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to send along as data (repeatable)."),
]
OrderedBy = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="Rows with the same value here go one after another, in order."
    ),
]
Dedupe = Annotated[
    str,
    typer.Option(metavar="recipient", help="Send only the first of a recipient's pushes."),
]
Collapse = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        help="Template; of an app's waiting pushes to a recipient with the same key, send only the "
        "newest.",
    ),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="COLUMN",
        help="Column to tell pushes apart by in reports, not sent along (repeatable).",
    ),
]
TraceId = Annotated[
    str, typer.Option(metavar="COLUMN", help="Column of trace ids, for reports and the webhook.")
]
Quota = Annotated[int, typer.Option(help="Pushes a turn.")]
Name = Annotated[str, typer.Option(help="For people to know it by.")]
Key = Annotated[str, typer.Option(help="The same key makes one task, not two.")]
App = Annotated[str, typer.Option(help="Who sends.")]
NotBefore = Annotated[
    str, typer.Option(metavar="HH:MM|TIME", help="Start at the next HH:MM (local), or ISO time.")
]
Delay = Annotated[str, typer.Option(metavar="10m", help="Start after this duration.")]
NotBeforeColumn = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="Column of when each push may go: ISO times or Unix seconds. Without a zone of its "
        "own a time is in that of --zone-column, else --zone.",
    ),
]
ExpiresColumn = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="Column of when each push expires: likewise."),
]
Quiet = Annotated[
    str,
    typer.Option(
        metavar="HH:MM-HH:MM",
        help="Send nothing in these hours, by the recipient's clock; what comes then waits for "
        "their end.",
    ),
]
Zone = Annotated[
    str,
    typer.Option(
        metavar="ZONE", help="Zone of recipients without one, like Europe/Berlin; UTC unless given."
    ),
]
ZoneColumn = Annotated[
    str, typer.Option(metavar="COLUMN", help="Column of recipients' zones (IANA names).")
]
Expires = Annotated[
    str, typer.Option(metavar="2h|TIME", help="Send nothing after this duration or ISO time.")
]
Retention = Annotated[
    str,
    typer.Option(
        metavar="2h",
        help="How long its lane is kept after its end for a replay, or 0; on Pulsar at most "
        "retention_s.",
    ),
]
MaxAttempts = Annotated[int | None, typer.Option(help="Deliveries tried before a push is dead.")]
Delivery = Annotated[
    str,
    typer.Option(
        metavar="at_least_once|at_most_once|once",
        autocompletion=complete_delivery,
        help="What holds when a process dies (docs/guarantees.md).",
    ),
]
UnknownWord = Annotated[
    str,
    typer.Option(
        "--on-unknown",
        metavar="resend|bury",
        help="With once: what becomes of a push whose dispatcher died; resend unless given.",
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="csv|jsonl|parquet", help="Format of FILE.")
]
BadRows = Annotated[
    Literal["stop", "skip"], typer.Option(help="What a row that cannot be used does.")
]
Rejects = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Where skipped rows are listed.")
]
SpoolDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="If a service does not answer, keep it all in this folder, for `pushlane spool send`.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(with_flags(submit))


def submit(
    flags: Flags,
    file: File,
    level: LevelWord,
    recipient: Recipient = "recipient",
    title: Title = "",
    body: Body = "",
    data: Data = None,
    ordered_by: OrderedBy = "",
    dedupe: Dedupe = "",
    collapse: Collapse = "",
    attribute: Attributes = None,
    trace_id: TraceId = "",
    quota: Quota = 1,
    name: Name = "",
    key: Key = "",
    app: App = "default",
    not_before: NotBefore = "",
    delay: Delay = "",
    expires: Expires = "",
    not_before_column: NotBeforeColumn = "",
    expires_column: ExpiresColumn = "",
    quiet: Quiet = "",
    zone: Zone = "",
    zone_column: ZoneColumn = "",
    retention: Retention = "",
    max_attempts: MaxAttempts = None,
    delivery: Delivery = DeliveryMode.AT_LEAST_ONCE.value,
    on_unknown: UnknownWord = "",
    format_: Format = None,
    bad_rows: BadRows = "stop",
    rejects: Rejects = None,
    spool: SpoolDir = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a file of pushes on the lanes, and print the task's id.

    Run again with the same --key, it goes on where it stopped, or does nothing more.
    """
    now = now_ms()
    request = SubmitRequest(
        source=file,
        level=parse_level(level),
        recipient=recipient,
        title=title,
        body=body,
        data=tuple(data or ()),
        format=format_,
        ordered_by=ordered_by,
        dedupe=parse_dedupe(dedupe) if dedupe else "",
        collapse=collapse,
        attributes=tuple(attribute or ()),
        trace_id=trace_id,
        quota=quota,
        name=name,
        key=key,
        app=app,
        not_before_ms=parse_start(not_before, delay, now),
        expires_at_ms=parse_expiry(expires, now) if expires else 0,
        not_before_column=not_before_column,
        expires_column=expires_column,
        quiet=quiet,
        zone=zone,
        zone_column=zone_column,
        retention_s=parse_retention(retention) if retention else None,
        max_attempts=max_attempts,
        delivery=parse_delivery(delivery),
        on_unknown=parse_on_unknown(on_unknown) if on_unknown else None,
        bad_rows=bad_rows,
        rejects=rejects,
    )
    result = _run(flags.settings(), request, spool)
    _remark(result, spool)
    if as_json:
        task = task_fields(result.task)
        print_json({"task_id": result.task.id, **asdict(result), "task": task})
    else:
        typer.echo(result.task.id)


def _run(settings: Settings, request: SubmitRequest, spool: Path | None) -> SubmitResult:
    with SubmitBar() as bar:
        try:
            if spool and _is_away(settings):
                return asyncio.run(hand_in(settings, request, spool, bar))
            return on_backend(
                settings, lambda backend: submit_rows(backend, settings, request, bar)
            )
        except KeyboardInterrupt:
            stopped = bar.task_id
    note(_way_on(request.key, stopped))
    raise typer.Exit(INTERRUPTED)


def _is_away(settings: Settings) -> bool:
    """Whether a service does not answer."""
    try:
        on_backend(settings, lambda backend: backend.registry.weights())
    except Unreachable as error:
        note(f"keeping it in the spool: {error}")
        return True
    return False


def _way_on(key: str, task_id: str) -> str:
    if not task_id:
        return "interrupted; nothing was submitted"
    if key:
        return (
            f"interrupted; task {task_id} is not complete. "
            f"The same command, with --key {key}, goes on where it stopped"
        )
    return (
        f"interrupted; task {task_id} is not complete and goes on sending what it has. Without "
        f"a --key it cannot be continued: pushlane cancel {task_id}, and submit again with a --key"
    )


def _start(task: Task) -> str:
    return f", to start at {time_text(task.not_before_ms)}" if task.not_before_ms else ""


def _remark(result: SubmitResult, spool: Path | None) -> None:
    task = result.task
    if result.spooled:
        waits = "waits in the spool already" if result.resumed else "waits in the spool"
        note(f"{pushes_text(result.spooled)}: it {waits}; to send it: pushlane spool send {spool}")
    elif result.already_done:
        total = pushes_text(task.total or 0)
        note(f"the key's task is complete already: {total}, nothing submitted now")
    elif result.resumed:
        note(f"went on with an earlier submit: {result.published:,} of {task.total:,} sent now")
    else:
        note(f"{pushes_text(result.published)} on the lane, level {task.level}{_start(task)}")
    if result.rejected:
        note(f"{result.rejected:,} bad rows left out; see {result.rejects}")
