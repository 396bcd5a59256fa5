"""`results` says how a task went, by its receipts: it needs no Spark and no store of reports."""

from __future__ import annotations

import csv
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from pushlane.backends.backend import Backend
from pushlane.cli.doing import CommandLine, done, on_client
from pushlane.cli.errors import note
from pushlane.cli.flags import FileFlags, Flags, JsonFlag, argument, option, switch
from pushlane.cli.main import give_way
from pushlane.cli.parsing import complete_task, pushes_text
from pushlane.cli.push import print_receipts, tell_missing
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table, time_text
from pushlane.cli.waits import WAIT_COLUMNS, parts_text
from pushlane.core.errors import BadInput, UserError
from pushlane.core.task import Level
from pushlane.diagnosis.ends import FirstEnds
from pushlane.model.counted import ENDS
from pushlane.model.recipients import Hasher
from pushlane.model.wait_words import took_text
from pushlane.operations.ends import MOST_HASHED, EndView, HashRecipients, ListEnds, hash_texts
from pushlane.operations.looks import (
    GetResults,
    ListReceipts,
    ReasonCount,
    ResultsView,
    TimesView,
)
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.errors import NeedsBackend
from pushlane.util.texts import did_you_mean

if TYPE_CHECKING:
    from pushlane.producers.rows import RowSource

Hashing = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
_PAGE = 10_000
_REASONS: tuple[Column[ReasonCount], ...] = (
    Column("OUTCOME", lambda one: one.outcome),
    Column("PUSHES", lambda one: f"{one.pushes:,}", number=True),
    Column("REASON", lambda one: one.reason or "-", elastic=True),
)
_TIMES = ("submitted_at_ms", "dispatched_at_ms", "responded_at_ms")
_SHOWN = [name for name in EndView.__struct_fields__ if name != "recipient_hash"]
_HEADINGS = [name.removesuffix("_ms") for name in _SHOWN]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked of a task, or of all, and the form of the answer."""

    recipient: Annotated[
        str | None, option("WHO", "Show the pushes to this recipient; - reads it from stdin.")
    ] = None
    recipient_of: Annotated[
        str, option("TASK-SEQ", "Show all pushes to the recipient of this push.")
    ] = ""
    trace: Annotated[str | None, option("ID", "Show the pushes with this trace id.")] = None
    as_csv: Annotated[bool, switch("--csv", "One row for each push that has ended.")] = False
    join: Annotated[
        Path | None, option("FILE", "With --csv: name the recipients that this file has.")
    ] = None
    join_by: Annotated[str, option("COLUMN", "Column of recipients in that file.")] = "recipient"
    reveal: Annotated[
        bool, switch("--reveal", "With --csv: name recipients that its lane still has.")
    ] = False
    as_json: JsonFlag = False

    @property
    def is_of_pushes(self) -> bool:
        is_of_somebody = self.recipient is not None or bool(self.recipient_of)
        return is_of_somebody or self.trace is not None

    def check(self, task: str | None) -> None:
        """Raise BadInput for what does not go together."""
        if self.as_csv and self.as_json:
            raise BadInput("--csv and --json are two forms of one answer; give one of them")
        if (self.join or self.reveal) and not self.as_csv:
            flag = "--join" if self.join else "--reveal"
            raise BadInput(f"{flag} names recipients in rows: add --csv")
        if self.as_csv and self.is_of_pushes:
            raise BadInput("--csv prints a whole task; leave it out to see these pushes")
        if task is None and not self.is_of_pushes:
            raise BadInput("give a TASK, or --recipient or --trace to find pushes")


def results(
    flags: Flags,
    asked: _Asked,
    written: FileFlags,
    task: Annotated[
        str | None, argument("[TASK]", "Its id, key or name.", autocompletion=complete_task)
    ] = None,
) -> None:
    """Say how a task went: what was delivered, what died of what, how long it took.

    Read from the log of receipts, from which nothing is taken. Recipients are masked.
    """
    asked.check(task)
    if written != FileFlags() and asked.join is None:
        raise BadInput("--format, --delimiter and --encoding say how the file of --join is written")
    settings = flags.settings()
    if asked.reveal and settings.url:
        raise NeedsBackend(settings.url)
    give_way()
    if task is None or asked.is_of_pushes:
        _show_pushes(settings, task, asked)
        return
    if asked.as_csv:
        said = on_client(settings, lambda client: _rows(client, settings, task, asked, written))
    else:
        said = done(settings, GetResults(task=task))
        if asked.as_json:
            print_json(plain(said))
        else:
            _print(said)
    for remark in _remarks(said, settings):
        note(remark)


def _show_pushes(settings: Settings, task: str | None, asked: _Asked) -> None:
    who = asked.recipient
    if who == "-":
        who = sys.stdin.readline().strip()
    wanted = ListReceipts(
        task=task, recipient=who, recipient_of=asked.recipient_of, trace_id=asked.trace or ""
    )
    found = done(settings, wanted)
    if not found.rows:
        tell_missing(found)
        of_task = "" if found.task_id is None else f" of task {found.task_id}"
        raise UserError(
            f"there is no receipt{of_task} for that "
            f"{'trace id' if asked.trace else 'recipient'}: check how it is written, nothing "
            "of it may have ended yet, or its receipts are off, dropped or hashed with another "
            "receipts_key"
        )
    print_receipts(found, as_json=asked.as_json)


async def _rows(
    client: CommandLine, settings: Settings, task: str, asked: _Asked, written: FileFlags
) -> ResultsView:
    """Write a row for each push as the log of receipts is read: no answer could hold them all."""
    said = await client.do(GetResults(task=task))
    by_hash = {}
    if asked.join:
        by_hash = await _joined(_hashing(client, settings), asked.join, asked.join_by, written)
    by_seq = await _kept(client.backend, said.task_id) if asked.reveal else {}
    names = Names(by_hash, by_seq)
    with TemporaryFile() as spool:
        wanted = ListEnds(task=said.task_id, hashes=bool(asked.join), limit=_PAGE)
        firsts = await _spooled(client.pages(wanted), spool)
        _check_named(asked, *_write_csv(spool, firsts, names))
    return said


class Names(NamedTuple):
    """Those whom pushes were for, as far as that is known."""

    by_hash: Mapping[str, str]
    by_seq: Mapping[int, str]

    def of(self, row: EndView) -> str | None:
        found = self.by_seq.get(row.seq)
        return found or (self.by_hash.get(row.recipient_hash) if row.recipient_hash else None)


async def _kept(backend: Backend, task_id: str) -> dict[int, str]:
    """Return the recipients that the lane of the task still has, by seq."""
    from pushlane.producers.replay import retained_pushes  # which loads how tasks are made

    task = await backend.registry.get(task_id)
    return {one.seq: one.recipient async for one in retained_pushes(backend, task)}


def _hashing(client: CommandLine, settings: Settings) -> Hashing:
    """Return what hashes recipients: their key, where it is known here, else who has it."""
    key = settings.receipts_key
    hasher = None if key is None else Hasher(key.reveal().encode())

    async def hashed(recipients: Sequence[str]) -> Sequence[str]:
        if hasher is not None:
            return hash_texts(hasher, recipients)
        return (await client.do(HashRecipients(recipients=tuple(recipients)))).hashes

    return hashed


async def _joined(hashing: Hashing, given: Path, column: str, written: FileFlags) -> dict[str, str]:
    """Return the recipients in the file by their hashes. Raises BadInput if it cannot be read."""
    from pushlane.producers.request import SubmitRequest, as_file
    from pushlane.producers.rows import open_source

    found: dict[str, str] = {}
    request = SubmitRequest(source=given, level=Level.LOW, **vars(written))
    async with as_file(request, lambda progress: None) as file:
        source = open_source(*file)
        if source.fixed and column not in source.columns:
            raise BadInput(
                f"{source.name} has no column {column!r}{did_you_mean(column, source.columns)}; "
                "say with --join-by which one has the recipients"
            )
        recipients = _recipients_in(source, column)
        while some := tuple(islice(recipients, MOST_HASHED)):
            found.update(zip(await hashing(some), some, strict=True))
    return found


def _recipients_in(source: RowSource, column: str) -> Iterator[str]:
    from pushlane.producers.encoder import recipient_text
    from pushlane.producers.rows import BadRow
    from pushlane.producers.rows import Wanted as Columns

    for _, values in source.rows(Columns((column,))):
        if not isinstance(values, BadRow) and (who := recipient_text(values[0])):
            yield who


async def _spooled(pages: AsyncIterator[list[EndView]], spool: IO[bytes]) -> FirstEnds:
    """Write rows to a file, as they are, masked; return which of them count."""
    firsts = FirstEnds()
    async for page in pages:
        for row in page:
            firsts.add(row.seq, row.responded_at_ms)
        spool.writelines(msgspec.json.encode(row) + b"\n" for row in page)
    spool.seek(0)
    return firsts


def _write_csv(spool: IO[bytes], firsts: FirstEnds, names: Names) -> tuple[int, int]:
    """Write a row for each push that has ended; return how many stay masked, and how many in all.

    One that ended twice did when it ended first.
    """
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(_HEADINGS)
    unnamed, pushes = 0, len(firsts)
    read = msgspec.json.Decoder(EndView)
    for line in spool:
        row = read.decode(line)
        if not firsts.take(row.seq, row.responded_at_ms):
            continue
        who = names.of(row)
        unnamed += who is None
        out.writerow(_csv_row(row if who is None else msgspec.structs.replace(row, recipient=who)))
    return unnamed, pushes


def _check_named(asked: _Asked, unnamed: int, pushes: int) -> None:
    """Say how many recipients stay masked. Raises UserError when the file has none of them."""
    if not unnamed or not (asked.join or asked.reveal):
        return
    if asked.join is None:
        note(
            f"{pushes_text(unnamed)} stay masked: the lane of the task does not have them any more"
        )
        return
    told = (
        f"{asked.join} does not have the recipients of {pushes_text(unnamed)}: is it the file that "
        f"was submitted, and {asked.join_by!r} its column of recipients (--join-by)?"
    )
    if unnamed == pushes:
        raise UserError(told)
    note(told)


def _print(said: ResultsView) -> None:
    total = "more may come" if said.total is None else f"{said.total:,}"
    fields = [("task", f"{said.task_id} {said.name}".rstrip()), ("pushes", total)]
    fields += [(kind.value, f"{said.counts[kind]:,}") for kind in ENDS]
    if said.first_at_ms:
        fields += [("first", time_text(said.first_at_ms)), ("last", time_text(said.last_at_ms))]
    if said.per_s is not None:
        fields.append(("rate", f"{said.per_s:,.0f} delivered/s"))
    for name, times in (("wait", said.wait), ("delivery", said.delivery)):
        if times is not None:
            fields.append((name, _times_text(times)))
    print_fields(fields)
    if said.waits:
        typer.echo("")
        print_table(WAIT_COLUMNS, said.waits)
    if said.waits_untold:
        typer.echo(said.waits_untold)
    if said.reasons:
        typer.echo("")
        print_table(_REASONS, said.reasons)
    if said.others:
        typer.echo(f"and {said.others:,} of other reasons")


def _times_text(times: TimesView) -> str:
    return (
        f"p50 {took_text(times.p50_ms)}, p99 {took_text(times.p99_ms)} "
        f"({took_text(times.min_ms)} to {took_text(times.max_ms)}) of {pushes_text(times.n)}"
    )


def _remarks(said: ResultsView, settings: Settings) -> Iterator[str]:
    lacking = {kind: count for kind, count in said.lacking.items() if count}
    if lacking:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in lacking.items())
        why = (
            "receipts are off (receipts=off)"
            if settings.receipts == "off"
            else "they are not in the log yet, were lost while it was away, or it has dropped them"
        )
        yield (
            f"there are no receipts of {counts}: {why}. Times and rate count the others; reasons "
            "are what the task has counted"
        )
    if not any(said.counts.values()):
        yield f"nothing of it has ended yet; what it waits for: pushlane why {said.task_id}"
    if said.unread:
        yield f"{said.unread:,} bodies of the log were left out: this version cannot read them"


def _csv_row(row: EndView) -> list[Any]:
    return [
        _iso(value) if name in _TIMES else parts_text(value) if name == "waits" else value
        for name, value in picked(row, *_SHOWN).items()
    ]


def _iso(at_ms: int) -> str:
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
