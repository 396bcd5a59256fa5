"""`suppress` keeps the recipients and addresses that must not be sent to, as keyed hashes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, JsonFlag, YesFlag, add_group, on_backend
from pushlane.cli.known import is_used
from pushlane.cli.parsing import rows_text
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import Column, print_json, print_table
from pushlane.core.errors import UserError
from pushlane.lanes.suppression import EVERYWHERE, SuppressionScope, scope_of
from pushlane.producers.suppress import (
    ChangedSuppressions,
    Values,
    change_suppressed,
    suppressed_in,
)

_COLUMNS: tuple[Column[tuple[SuppressionScope, int]], ...] = (
    Column("SCOPE", lambda row: row[0].kind),
    Column("NAME", lambda row: row[0].name or "-"),
    Column("SUPPRESSED", lambda row: f"{row[1]:,}", number=True),
)

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV, JSON Lines or Parquet; - for standard input.")
]
ColumnOption = Annotated[str, typer.Option(metavar="NAME", help="The column with the values.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="csv, jsonl or parquet.")
]


def register(app: typer.Typer) -> None:
    about = "Keep the recipients and addresses that must not be sent to."
    add_group(app, "suppress", about, add, remove, count, check, clear)


@dataclass(frozen=True, kw_only=True)
class _Where:
    """The options that say where a value is suppressed."""

    app: Annotated[str, typer.Option(metavar="NAME", help="Only as recipients of this app.")] = ""
    sink: Annotated[str, typer.Option(metavar="NAME", help="Only as addresses at this sink.")] = ""

    def scope(self) -> SuppressionScope:
        return scope_of(self.app, self.sink)


def add(
    flags: Flags,
    file: FileArgument,
    where: _Where,
    column: ColumnOption = "recipient",
    kind: FormatOption = None,
) -> None:
    """Suppress the values of a file: no push goes to them from within a second on."""
    scope = where.scope()
    done = _change(flags, Values(file, column, kind), scope, adds=True)
    note(f"{done.changed:,} suppressed now, {done.given - done.changed:,} had been before")
    tell_left_out(done)
    tell_unknown(flags, scope)


def remove(
    flags: Flags,
    file: FileArgument,
    where: _Where,
    column: ColumnOption = "recipient",
    kind: FormatOption = None,
) -> None:
    """Suppress the values of a file no longer."""
    done = _change(flags, Values(file, column, kind), where.scope(), adds=False)
    note(f"{done.changed:,} not suppressed any more, {done.given - done.changed:,} had not been")
    tell_left_out(done)


def count(flags: Flags, as_json: JsonFlag = False) -> None:
    """Count what is suppressed, by scope."""
    settings = flags.settings()
    found = on_backend(settings, lambda backend: backend.suppressions.counts())
    rows = sorted(found.items())
    if as_json:
        print_json([{"scope": s.kind, "name": s.name, "suppressed": size} for s, size in rows])
    elif rows:
        print_table(_COLUMNS, rows)
    else:
        note(f"nothing is suppressed {settings.place}")


def check(
    flags: Flags,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="A recipient or address; - to type it in.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Tell where a value is suppressed. The answer does not show it."""
    wanted = sys.stdin.readline().rstrip("\n") if value == "-" else value
    scopes = on_backend(flags.settings(), lambda backend: suppressed_in(backend, wanted))
    if as_json:
        print_json([{"scope": scope.kind, "name": scope.name} for scope in scopes])
    elif scopes:
        typer.echo("suppressed: " + ", ".join(map(_named, scopes)))
    else:
        typer.echo("not suppressed")


def clear(
    flags: Flags,
    where: _Where,
    yes: YesFlag = False,
) -> None:
    """Remove all suppressions of an app, of a sink, or with neither those that hold everywhere."""
    settings, scope = flags.settings(), where.scope()
    size = on_backend(settings, lambda backend: backend.suppressions.counts()).get(scope, 0)
    if not size:
        note(f"nothing is suppressed {_named(scope)}")
        return
    if not yes:
        what = f"all {size:,} suppressions {_named(scope)}"  # nobody knows whom the hashes are of
        question = f"Remove {what}? They can be sent to again."
        confirm(f"removing {what}", question, f"{what}: not removed")
    on_backend(settings, lambda backend: backend.suppressions.clear(scope))
    note(f"{size:,} not suppressed {_named(scope)} any more")


def _change(
    flags: Flags, values: Values, scope: SuppressionScope, *, adds: bool
) -> ChangedSuppressions:
    def change(backend: Backend) -> Awaitable[ChangedSuppressions]:
        return change_suppressed(backend, values, scope, bar, adds=adds)

    with SubmitBar() as bar:
        return on_backend(flags.settings(), change, create=adds)


def tell_left_out(done: ChangedSuppressions) -> None:
    """Say how many rows of a file had no value.

    Raises:
        UserError: none had one, so the column may be misspelt.
    """
    if not done.given and not done.left_out:
        note("the file has no rows: nothing is changed")
    if done.left_out:
        are = "is" if done.left_out == 1 else "are"
        note(
            f"{rows_text(done.left_out)} {are} left out, the first in {done.first_left_out}: no "
            "value that a push could have is there"
        )
    if done.left_out and not done.given:
        raise UserError("nothing is changed: no row has a value; is the column (--column) right?")


def tell_unknown(flags: Flags, scope: SuppressionScope) -> None:
    """Say that a scope has no task yet, since its name may be misspelt."""
    if scope == EVERYWHERE:
        return

    if not on_backend(flags.settings(), lambda backend: is_used(backend, scope.kind, scope.name)):
        note(f"no task has the {scope.kind} {scope.name!r} yet; it holds for those that will")


def _named(scope: SuppressionScope) -> str:
    if scope == EVERYWHERE:
        return "everywhere"
    return f"in the app {scope.name}" if scope.kind == "app" else f"at the sink {scope.name}"
