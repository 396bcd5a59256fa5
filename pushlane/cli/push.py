"""`push show` says all that is known of one push, for who asks whether somebody got it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, switch
from pushlane.cli.main import give_way
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table, time_text
from pushlane.core.push import Push
from pushlane.core.task import State
from pushlane.operations.looks import GetPush, MessageView, PushView, ReceiptsView, ReceiptView
from pushlane.operations.tracing import TraceView
from pushlane.operations.views import plain

_COLUMNS: tuple[Column[ReceiptView], ...] = (
    Column("AT", lambda row: time_text(row.responded_at_ms)),
    Column("PUSH", lambda row: row.push),
    Column("OUTCOME", lambda row: row.outcome),
    Column("TRY", lambda row: str(row.attempt), number=True, spare=1),
    Column("SINK", lambda row: row.sink or "-", spare=3),
    Column("MS", lambda row: _took_text(row), number=True, spare=2),
    Column("REASON", lambda row: row.reason or "-", elastic=True),
    Column("WAITED", lambda row: row.waited, elastic=True, spare=1, least=20),
)
_OF_ONE = tuple(column for column in _COLUMNS if column.heading != "PUSH")


def show(
    flags: Flags,
    push: Annotated[str, argument("TASK-SEQ", "Its id; the task by id, key or name.")],
    reveal: Annotated[
        bool, switch("--reveal", "Show recipient and content too, if its lane still has them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what became of one push: each attempt, its end, and what the device said."""
    give_way()
    found = done(flags.settings(), GetPush(push=push, reveal=reveal))
    if as_json:
        print_json(plain(found))
    else:
        print_fields(_fields_of(found))
        if found.receipts:
            typer.echo("")
            print_table(_OF_ONE, found.receipts)
    if reveal:
        tell_unkept(found)
    tell_missing(found)


def tell_unkept(found: PushView) -> None:
    """Say why nothing is revealed, if so."""
    if found.message is None:
        note("its recipient and content are not kept: its lane keeps nothing, or is gone")


def outcome_text(found: PushView) -> str:
    """Say how a push ended, or what it waits for."""
    if found.outcome is not None:
        return f"{found.outcome}: {found.reason}" if found.reason else found.outcome
    if found.has_ended:
        return "it has ended; it is unknown how, as there is no receipt of it"
    if not found.task_state:
        return "no receipt says that it ended, and the registry no longer has its task"
    if State(found.task_state).is_terminal:
        return f"it was never taken: its task is {found.task_state}"
    return f"not ended yet; what its task waits for: pushlane why {found.task_id}"


def _fields_of(found: PushView) -> Iterator[tuple[str, str]]:
    yield "push", found.push
    yield "task", f"{found.task_id} {found.name} ({found.task_state})"
    yield "outcome", outcome_text(found)
    if found.receipts:
        yield "waited", found.waited
    yield from known_fields(found)


def known_fields(found: PushView) -> Iterator[tuple[str, str]]:
    """Yield whom a push was for, masked, and its trace id; what it holds if that is revealed."""
    rows = found.receipts
    if rows and not found.message:
        yield "recipient", next(filter(None, (row.recipient for row in rows)), "-")
    if trace_id := next(filter(None, (row.trace_id for row in rows)), ""):
        yield "trace id", trace_id
    if found.message:
        yield from texts_of(push_fields(found.message))


def print_receipts(found: ReceiptsView, *, as_json: bool) -> None:
    """Print the receipts of several pushes."""
    if as_json:
        print_json([plain(row) for row in found.rows])
    else:
        print_table(_COLUMNS, found.rows)
    tell_missing(found)


def tell_missing(found: ReceiptsView | PushView) -> None:
    """Say what is left out."""
    if found.is_cut:
        shown = found.rows if isinstance(found, ReceiptsView) else found.receipts
        note(f"there are more than these {len(shown):,}, the last: name a TASK")
    tell_unread(found)


def tell_unread(found: ReceiptsView | PushView | TraceView) -> None:
    """Say what may be missing in what was read."""
    if found.unread:
        note(f"{found.unread:,} bodies of the log were left out: this version cannot read them")
    for text in found.notes:
        note(text)


def push_fields(push: Push | MessageView) -> dict[str, Any]:
    """Return what a push holds."""
    by_sink = picked(push, "addresses", "payloads")
    return picked(push, "recipient", "title", "body", "data") | {
        name: value for name, value in by_sink.items() if value is not None
    }


def texts_of(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set, as texts: what is none, as JSON."""
    for name, value in fields.items():
        if value is not None:
            yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _took_text(row: ReceiptView) -> str:
    if not row.dispatched_at_ms:
        return "-"
    return f"{row.responded_at_ms - row.dispatched_at_ms:,}"


push = Group("Look at one push: `push ID` is `push show ID`.", (show,), has_default=True)
