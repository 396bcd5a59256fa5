"""`submit` makes a task of a file's rows, and prints its id."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pushlane.backends.backend import connect
from pushlane.cli.doing import on_client
from pushlane.cli.errors import INTERRUPTED, note
from pushlane.cli.flags import FileFlags, Flags, JsonFlag, argument, on_backend, option, switch
from pushlane.cli.limits import limit_text
from pushlane.cli.parsing import (
    complete_delivery,
    complete_level,
    parse_key,
    parse_level,
    parse_word,
    pushes_text,
    rows_text,
)
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import print_json, seconds_text, time_text
from pushlane.cli.task_texts import already_text
from pushlane.client.submitting import submitted
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import DeliveryMode, OnUnknown, State, now_ms
from pushlane.model.limits import Limit, parse_rate
from pushlane.model.receipt import masked_recipients
from pushlane.operations.submitting import SubmitResult, result_view
from pushlane.operations.views import plain
from pushlane.producers.check import refuse_at_once
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import refuse_spooling, submit_offline
from pushlane.producers.task_options import read_options, sink_names
from pushlane.settings import Settings
from pushlane.util import trace_context

if TYPE_CHECKING:
    from pushlane.cli.dry_run import Tried


@dataclass(frozen=True, kw_only=True)
class TaskFlags:
    """The options of a task (`producers.task_options`) as flags, each as it was written."""

    level: Annotated[str, option("high|medium|low", "Its priority.", autocompletion=complete_level)]
    recipient: Annotated[str, option("COLUMN", "Column with the recipients.")] = "recipient"
    title: Annotated[str, typer.Option(help="Template like 'Hi {name}'.")] = ""
    body: Annotated[str, typer.Option(help="Template like 'Order {id} is on its way'.")] = ""
    data: Annotated[
        list[str] | None, option("COLUMN", "Column to send along as data (repeatable).")
    ] = None
    ordered_by: Annotated[
        str, option("COLUMN", "Rows with the same value here go one after another, in order.")
    ] = ""
    dedupe: Annotated[str, option("recipient", "Send only the first of a recipient's pushes.")] = ""
    collapse: Annotated[
        str,
        option(
            "KEY",
            "Template; of an app's waiting pushes to a recipient with the same key, send only "
            "the newest.",
        ),
    ] = ""
    attribute: Annotated[
        list[str] | None,
        option("COLUMN", "Column to tell pushes apart by in reports, not sent along (repeatable)."),
    ] = None
    trace_id: Annotated[
        str, option("COLUMN", "Column of trace ids, for reports and the webhook.")
    ] = ""
    quota: Annotated[int, option("N", "Its weight among its app's tasks of that level.")] = 1
    name: Annotated[str, typer.Option(help="Name to show; the file's name unless given.")] = ""
    key: Annotated[
        str | None,
        option("KEY", "Idempotency key: run again with it, and no row is submitted twice."),
    ] = None
    app: Annotated[str, option("NAME", "The app (tenant) that sends.")] = "default"
    not_before: Annotated[
        str, option("HH:MM|TIME", "Start at the next HH:MM (local), or ISO time.")
    ] = ""
    delay: Annotated[str, option("10m", "Start after this duration.")] = ""
    expires: Annotated[str, option("2h|TIME", "Send nothing after this duration or ISO time.")] = ""
    not_before_column: Annotated[
        str,
        option(
            "COLUMN",
            "Column with the earliest time of each push: ISO times or Unix seconds. A time "
            "without a zone is in that of --zone-column, else --zone.",
        ),
    ] = ""
    expires_column: Annotated[
        str, option("COLUMN", "Column with the expiry of each push, written alike.")
    ] = ""
    quiet: Annotated[
        str,
        option(
            "HH:MM-HH:MM",
            "Send nothing in these hours of the recipient's local time; pushes wait until they "
            "end.",
        ),
    ] = ""
    zone: Annotated[
        str,
        option(
            "ZONE", "Time zone of recipients that have none, like Europe/Berlin; UTC unless given."
        ),
    ] = ""
    zone_column: Annotated[
        str, option("COLUMN", "Column with the recipients' time zones (IANA names).")
    ] = ""
    retention: Annotated[
        str,
        option(
            "2h",
            "How long to keep its pushes for a replay after it has finished, or 0; on Pulsar at "
            "most retention_s.",
        ),
    ] = ""
    max_attempts: Annotated[int | None, option("N", "Attempts before a push is dead.")] = None
    delivery: Annotated[
        str,
        option(
            "at_least_once|at_most_once|once",
            "The guarantee when a process dies (docs/guarantees.md).",
            autocompletion=complete_delivery,
        ),
    ] = DeliveryMode.AT_LEAST_ONCE.value
    on_unknown: Annotated[
        str,
        option(
            "resend|bury",
            "With `once`: what to do with a push whose dispatcher died; resend unless given.",
        ),
    ] = ""
    bad_rows: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="At a row that cannot be used: stop, or skip it."),
    ] = "stop"
    sink: Annotated[
        str | None,
        option("NAME[,NAME]", "The sink to send through; after it, those to fall back on."),
    ] = None
    address: Annotated[
        list[str] | None,
        option(
            "COLUMN|SINK=COLUMN",
            "Column with the address, for one sink or for all; the recipient unless given "
            "(repeatable).",
        ),
    ] = None
    payload: Annotated[
        str,
        option(
            "FILE",
            "JSON file with each provider's own payload, by sink or *; {field} is a column.",
        ),
    ] = ""
    stop_if_dead: Annotated[
        str,
        option(
            "5%|off", "Pause it when more of its pushes fail; 50% of the first 1000 unless given."
        ),
    ] = ""
    silent: Annotated[
        bool, switch("--silent", "Allow pushes without title, body, data and payload.")
    ] = False
    literal_braces: Annotated[
        bool, switch("--literal-braces", "Send {{name}} as the text {name}, though it is a column.")
    ] = False

    def read(self, now_ms: int) -> dict[str, Any]:
        """Return the fields of TaskOptions that the flags stand for.

        Raises:
            BadInput: a word, time or duration that cannot be read, or a time that has passed.
        """
        read = {
            "level": parse_level(self.level),
            "key": parse_key(self.key),
            "data": tuple(self.data or ()),
            "attribute": tuple(self.attribute or ()),
            "sink": () if self.sink is None else sink_names(self.sink.strip() or ","),
            "address": tuple(self.address or ()),
            "dedupe": parse_word(self.dedupe, "dedupe", ["recipient"]) if self.dedupe else "",
            "delivery": DeliveryMode(parse_word(self.delivery, "delivery", tuple(DeliveryMode))),
            "on_unknown": None,
        }
        if self.on_unknown:
            word = parse_word(self.on_unknown, "on-unknown", tuple(OnUnknown))
            read["on_unknown"] = OnUnknown(word)
        return read_options({**vars(self), **read}, now_ms)


@dataclass(frozen=True, kw_only=True)
class StartFlags:
    """How a submit is begun, as flags: what limits it, how much of it goes, and to whom."""

    rate: Annotated[
        str | None,
        option(
            "N/s|N/min|N/h|N/day",
            "Its highest rate, in cost (a push costs 1 unless its sink says otherwise).",
        ),
    ] = None
    in_flight: Annotated[int | None, option("N", "How many of its deliveries may run at once.")] = (
        None
    )
    paused: Annotated[bool, switch("--paused", "Send nothing until `pushlane resume TASK`.")] = (
        False
    )
    first: Annotated[
        int | None,
        option(
            "N",
            "Submit only the first N rows. To send the rest, run the same command with the same "
            "--key and without --first.",
        ),
    ] = None
    test_to: Annotated[
        list[str] | None,
        option(
            "ADDRESS[,ADDRESS]",
            "Send a test: the first row (a row for each address) goes at once to these addresses "
            "only, as a task of its own (repeatable).",
        ),
    ] = None

    def read(self) -> dict[str, Any]:
        """Return the fields of SubmitRequest that the flags stand for. Raises BadInput."""
        return {
            "rate_per_s": None if self.rate is None else _read_rate(self.rate),
            "in_flight": self.in_flight,
            "paused": self.paused,
            "first": self.first,
            "test_to": _addresses(self.test_to or ()),
        }


_SpoolFlag = Annotated[
    Path | None,
    option("DIR", "If a service does not answer, keep the pushes here, for `pushlane spool send`."),
]
_DryRunFlag = Annotated[
    bool,
    switch(
        "--dry-run", "Submit nothing: check the rows, show samples and estimate when it would end."
    ),
]


def submit(
    flags: Flags,
    file: Annotated[Path, argument("FILE", "CSV, JSON Lines or Parquet; - for stdin.")],
    options: TaskFlags,
    start: StartFlags,
    written: FileFlags,
    rejects: Annotated[Path | None, option("PATH", "File to list skipped rows in.")] = None,
    spool: _SpoolFlag = None,
    dry_run: _DryRunFlag = False,
    reveal: Annotated[
        bool, switch("--reveal", "With --dry-run: show recipients unmasked.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send a campaign: make a task with a push for each row of a file, and print its id.

    All rows are checked first. Running dispatchers begin to send at once: `pushlane dispatch`.
    With a --key you can run it again: it continues where it stopped, and submits no row twice.
    """
    if reveal and not dry_run:
        raise typer.BadParameter("--reveal shows the recipients of a dry run; add --dry-run")
    request = SubmitRequest(
        source=file,
        rejects=rejects,
        traceparent=os.environ.get(trace_context.VARIABLE, ""),
        **vars(written),
        **start.read(),
        **options.read(now_ms()),
    )
    if spool:
        refuse_spooling(request)
    settings = flags.settings()
    _warn(settings, request.sink)
    if dry_run:
        _try(settings, request, reveal=reveal, as_json=as_json)
        return
    refuse_at_once(request, settings)
    result = _run(settings, request, spool)
    _remark(result, request, settings, spool)
    if as_json:
        print_json(plain(result))
    else:
        typer.echo(result.task_id)


def _warn(settings: Settings, sinks: Iterable[str]) -> None:
    """Say of which sinks these settings have no dispatcher could be started with them."""
    from pushlane.dispatcher.sinks.named import misspelt

    for name in sinks:
        if told := misspelt(settings, name):
            note(f"warning: {told}; no dispatcher starts with these settings")


def _read_rate(given: str) -> float:
    """Raises BadInput for what is no rate."""
    if given.strip() == "0":
        return 0.0
    try:
        return parse_rate(given)
    except ValueError as error:
        raise BadInput(f"--rate {given[:40]!r} is {error}") from None


def _addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses between commas; one that is a JSON object has commas of its own."""
    parts = ([one] if one.lstrip().startswith("{") else one.split(",") for one in given)
    return tuple(address for some in parts for address in some)


def _run(settings: Settings, request: SubmitRequest, spool: Path | None) -> SubmitResult:
    with SubmitBar() as bar:
        try:
            if spool and _is_away(settings):
                return result_view(asyncio.run(submit_offline(settings, request, spool, bar)))
            return on_client(settings, lambda client: submitted(client, request, bar), create=True)
        except KeyboardInterrupt:
            stopped = bar.task_id
    note(_way_on(request.key, stopped))
    raise typer.Exit(INTERRUPTED)


def _try(settings: Settings, request: SubmitRequest, *, reveal: bool, as_json: bool) -> None:
    from pushlane.cli.dry_run import print_tried, try_submit

    async def look(looked_at: Settings) -> Tried:
        async with connect(looked_at) as backend:
            return await try_submit(backend, settings, request, bar)

    with _store_to_try(settings) as looked_at, SubmitBar() as bar:
        tried = asyncio.run(look(looked_at))
    print_tried(tried, settings, request, reveal=reveal, as_json=as_json)


@contextmanager
def _store_to_try(settings: Settings) -> Iterator[Settings]:
    """Give these settings; where they have no store, those of an empty one that goes at the end."""
    if not settings.is_store_missing:
        yield settings
        return
    note(f"there is no store {settings.place} yet; without --dry-run it is made")
    with TemporaryDirectory(prefix="pushlane-dry-run-") as folder:
        yield settings.but(data_dir=Path(folder))


def _is_away(settings: Settings) -> bool:
    try:
        on_backend(settings, lambda backend: backend.registry.weights(), create=True)
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


def _remark(
    result: SubmitResult, request: SubmitRequest, settings: Settings, spool: Path | None
) -> None:
    task = result.task
    if result.part is not None:
        _remark_part(result, result.part, settings)
    elif request.test_to:
        masked = ", ".join(masked_recipients(request.test_to))
        note(f"{pushes_text(result.published)} to {masked} alone, as task {task.id}, {task.name!r}")
        note(f"next: pushlane task show {task.id}")
    elif result.spooled:
        waits = "waits in the spool already" if result.resumed else "waits in the spool"
        note(f"{pushes_text(result.spooled)}: it {waits}; to send it: pushlane spool send {spool}")
    elif result.already_done:
        note(f"{already_text(task, result.progress)}: nothing submitted now")
    elif result.resumed:
        note(f"went on with an earlier submit: {result.published:,} of {task.total:,} sent now")
    else:
        start_ms = task.not_before_ms
        start = f", to start at {time_text(start_ms)}" if start_ms else ""
        note(f"{pushes_text(result.published)} on the lane, level {task.level}{start}")
        if not request.paused:
            note(f"next: pushlane why {task.id}")
    _remark_hold(result, request)
    if result.rejected:
        note(f"{rows_text(result.rejected, 'bad row')} left out; see {result.rejects}")


def _remark_part(result: SubmitResult, part: int, settings: Settings) -> None:
    """Tell of a submit with --first: what is submitted, and how to go on."""
    if not result.published:
        before = "row was" if part == 1 else f"{part:,} rows were"
        note(f"its first {before} submitted before: nothing submitted now")
    else:
        first = f"the first {part:,} of {pushes_text(result.accepted)}"
        now = f", {result.published:,} of them now" if result.published < part else ""
        note(f"{first} on the lane{now}, level {result.task.level}")
    kept = seconds_text(settings.half_made_retention_s)
    note(
        "go on with the same command without --first; the task waits for that, and ends by itself "
        f"if nobody does for {kept}"
    )


def _remark_hold(result: SubmitResult, request: SubmitRequest) -> None:
    """Tell which limits a task has that are not those asked for, and whether it is paused."""
    task, limit = result.task, result.limit
    if limit is not None and _lacks(limit, request.limit):
        way = f"pushlane limit task/{task.id}"
        note(f"its limits stay as they were ({limit_text(limit)}); to change them: {way}")
    if task.state == State.PAUSED:
        note(f"it is paused; go on with: pushlane resume {task.id}")
    elif request.paused and not request.test_to and not task.has_ended:
        note(f"it is not paused, since it was started before; to hold it: pushlane pause {task.id}")


def _lacks(limit: Limit, asked: Limit) -> bool:
    """Return whether a limit that was asked for is not the one that holds."""
    names = ("rate_per_s", "in_flight")
    wanted = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    return any(getattr(limit, name) != value for name, value in wanted.items())
