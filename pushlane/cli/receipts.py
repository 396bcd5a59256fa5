"""`receipts add` puts what devices report of pushes into their receipts."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, add_group, on_backend
from pushlane.cli.render import print_json
from pushlane.core.errors import BadInput
from pushlane.producers.events.json_lines import record_lines

_SHOWN = 10

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSON Lines; - for stdin.")]
BadRows = Annotated[Literal["stop", "skip"], typer.Option(help="What a line of no use does.")]


def register(app: typer.Typer) -> None:
    about = "Add what devices say of pushes later to their receipts."
    add_group(app, "receipts", about, add)


def add(flags: Flags, file: File, bad_rows: BadRows = "stop", as_json: JsonFlag = False) -> None:
    """Record events of pushes, one JSON object a line, for reports.

    {"push_id": "TASK-7", "event": "clicked", "at": "2030-01-31T18:00Z", "attributes": {...}}

    `task_id` and `seq` may stand for push_id; events are displayed and clicked; `at` is an ISO
    time, or Unix seconds or milliseconds. The same event again counts once.
    """
    settings = flags.settings()
    refused = _tell_skipped(str(file)) if bad_rows == "skip" else None
    with _opened(file) as stream:
        result = on_backend(
            settings, lambda backend: record_lines(backend, settings, stream, str(file), refused)
        )
    if as_json:
        print_json(asdict(result))
    else:
        typer.echo(f"{result.recorded:,} events recorded")
    if result.rejected:
        note(f"{result.rejected:,} lines left out")


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
