"""`suppress` keeps recipients and addresses that must not be sent to, as keyed hashes.

`tokens` lists dead addresses for who owns them, and clears those that are registered again: an
address is shown to nobody who has not asked for just that.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from pushlane.cli.doing import done, on_client
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import (
    FileFlags,
    Flags,
    Group,
    JsonFlag,
    YesFlag,
    argument,
    option,
    switch,
)
from pushlane.cli.parsing import rows_text
from pushlane.cli.preview import CountFlag, show_preview
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import (
    Column,
    age_text,
    picked,
    print_json,
    print_rows,
    print_table,
    time_text,
)
from pushlane.client.connection import Connection
from pushlane.client.recipients import change_values, in_one_entry
from pushlane.core.errors import BadInput, UserError
from pushlane.core.task import now_ms
from pushlane.model.masks import FieldType, Masks
from pushlane.model.recipients import EVERYWHERE, SuppressionScope, scope_of
from pushlane.model.times import parse_since
from pushlane.operations.recipients import (
    MOST_VALUES,
    CheckSuppressed,
    ClearSuppressions,
    CountSuppressions,
    DeadAddressView,
    ListDeadAddresses,
    RegisterAddresses,
    Suppress,
    SuppressedCount,
    Unsuppress,
)
from pushlane.operations.views import plain
from pushlane.producers.columns import address_text
from pushlane.producers.request import OnProgress, SubmitProgress, SubmitStage
from pushlane.producers.suppress import (
    ChangedSuppressions,
    Values,
    changed_by,
    line_pages,
    reader_of,
    refuse_at_once,
    value_pages,
)
from pushlane.settings import Settings

_COLUMNS: tuple[Column[SuppressedCount], ...] = (
    Column("SCOPE", lambda row: row.scope),
    Column("NAME", lambda row: row.name or "-"),
    Column("SUPPRESSED", lambda row: f"{row.suppressed:,}", number=True),
)

FileArgument = Annotated[
    Path, argument("FILE", "CSV, JSON Lines or Parquet; - for standard input.")
]
ColumnOption = Annotated[str, option("NAME", "The column with the values.")]


@dataclass(frozen=True, kw_only=True)
class _Where:
    """The options that say where a value is suppressed."""

    app: Annotated[str, option("NAME", "Only as recipients of this app.")] = ""
    sink: Annotated[str, option("NAME", "Only as addresses at this sink.")] = ""

    def scope(self) -> SuppressionScope:
        return scope_of(self.app, self.sink)


def add(
    flags: Flags,
    file: FileArgument,
    where: _Where,
    written: FileFlags,
    column: ColumnOption = "recipient",
    preview: CountFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Suppress the values of a file: no push goes to them from within a second on."""
    values = Values(file, column, **vars(written))
    if preview:
        _preview(flags, values, where, Suppress, as_json)
        return
    changed = _change(flags, values, where, Suppress)
    note(f"{changed.changed:,} suppressed now, {changed.given - changed.changed:,} had been before")
    _tell_changed(changed, as_json)


def remove(
    flags: Flags,
    file: FileArgument,
    where: _Where,
    written: FileFlags,
    column: ColumnOption = "recipient",
    preview: CountFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Suppress the values of a file no longer."""
    values = Values(file, column, **vars(written))
    if preview:
        _preview(flags, values, where, Unsuppress, as_json)
        return
    changed = _change(flags, values, where, Unsuppress)
    had_not = changed.given - changed.changed
    note(f"{changed.changed:,} not suppressed any more, {had_not:,} had not been")
    _tell_changed(changed, as_json)


def count(flags: Flags, as_json: JsonFlag = False) -> None:
    """Count what is suppressed, by scope."""
    settings = flags.settings()
    found = done(settings, CountSuppressions())
    nothing = f"nothing is suppressed {settings.place}"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def check(
    flags: Flags,
    value: Annotated[str, argument("VALUE", "A recipient or address; - to type it in.")],
    as_json: JsonFlag = False,
) -> None:
    """Tell where a value is suppressed. The answer does not show it."""
    wanted = sys.stdin.readline().rstrip("\n") if value == "-" else value
    found = done(flags.settings(), CheckSuppressed(value=wanted))
    if as_json:
        print_json([plain(one) for one in found])
    elif found:
        scopes = (SuppressionScope(one.scope, one.name) for one in found)
        typer.echo("suppressed: " + ", ".join(map(_named, scopes)))
    else:
        typer.echo("not suppressed")


def clear(
    flags: Flags,
    where: _Where,
    preview: CountFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove all suppressions of an app, of a sink, or with neither those that hold everywhere."""
    settings, scope = flags.settings(), where.scope()
    operation = ClearSuppressions(app=where.app, sink=where.sink)
    if show_preview(settings, operation, preview=preview, as_json=as_json):
        return
    counts = done(settings, CountSuppressions())
    size = sum(one.suppressed for one in counts if (one.scope, one.name) == scope)
    if not size:
        if as_json:
            print_json({"removed": 0})
        note(f"nothing is suppressed {_named(scope)}")
        return
    if not yes:
        what = f"all {size:,} suppressions {_named(scope)}"  # nobody knows whom the hashes are of
        question = f"Remove {what}? They can be sent to again."
        confirm(f"removing {what}", question, f"{what}: not removed")
    done(settings, operation)
    if as_json:
        print_json({"removed": size})
    note(f"{size:,} not suppressed {_named(scope)} any more")


def _change(
    flags: Flags, values: Values, where: _Where, kind: type[Suppress | Unsuppress]
) -> ChangedSuppressions:
    def make(some: tuple[str, ...]) -> Suppress | Unsuppress:
        return kind(values=some, app=where.app, sink=where.sink)

    read = reader_of(where.scope())
    refuse_at_once(values)

    def change(client: Connection) -> Awaitable[ChangedSuppressions]:
        return change_values(client, values, read, make, bar)

    with SubmitBar() as bar:
        return on_client(flags.settings(), change, create=kind is Suppress)


def _preview(
    flags: Flags,
    values: Values,
    where: _Where,
    kind: type[Suppress | Unsuppress],
    as_json: bool,
) -> None:
    """Count what a file would change, which is done by a token, and so has to be short.

    Raises:
        BadInput: it has more values than are changed at once.
    """

    async def read(tell: OnProgress) -> list[str]:
        found: list[str] = []
        async for some in value_pages(values, reader_of(where.scope()), tell):
            found += some.values
            if len(found) > MOST_VALUES:
                raise BadInput(f"more than {MOST_VALUES:,} values have no preview: leave it out")
        return found

    with SubmitBar() as bar:
        some = asyncio.run(read(bar))
    operation = kind(values=tuple(some), app=where.app, sink=where.sink)
    show_preview(flags.settings(), operation, preview=True, as_json=as_json)


def _tell_changed(changed: ChangedSuppressions, as_json: bool) -> None:
    """Print the counts, if they are asked for; say how many rows had no value, and what is odd.

    Raises:
        UserError: none had one, so the column may be misspelt.
    """
    if as_json:
        print_json(picked(changed, "given", "changed", "left_out"))
    if not changed.given and not changed.left_out:
        note("the file has no rows: nothing is changed")
    if changed.left_out:
        are = "is" if changed.left_out == 1 else "are"
        note(
            f"{rows_text(changed.left_out)} {are} left out, the first in {changed.first_left_out}: "
            "no value that a push could have is there"
        )
    if changed.left_out and not changed.given:
        raise UserError("nothing is changed: no row has a value; is the column (--column) right?")
    if changed.remark:
        note(changed.remark)


def _named(scope: SuppressionScope) -> str:
    if scope == EVERYWHERE:
        return "everywhere"
    return f"in the app {scope.name}" if scope.kind == "app" else f"at the sink {scope.name}"


_LISTED = 100
_SINCE = "7d"
_FIELDS = ("sink", "fingerprint", "app", "reason", "died_at_ms", "recorded_at_ms")
_ADDRESS = "address"

_TOKENS_COLUMNS: tuple[Column[DeadAddressView], ...] = (
    Column("SINK", lambda one: one.sink),
    Column("FINGERPRINT", lambda one: one.fingerprint),
    Column("APP", lambda one: one.app, spare=4),
    Column("DIED", lambda one: age_text(one.died_at_ms, now_ms()), number=True),
    Column("RECORDED", lambda one: age_text(one.recorded_at_ms, now_ms()), number=True),
    Column("REASON", lambda one: one.reason, elastic=True),
)

AddressFile = Annotated[
    Path, argument("FILE", "CSV, JSON Lines or Parquet; - for standard input, one address a line.")
]


@dataclass(frozen=True, kw_only=True)
class _Output:
    """The options that say in which form dead addresses are printed, and whether in the clear."""

    limit: Annotated[
        int | None, option("N", "At most so many; 0 for all. [100 in a table]", min=0)
    ] = None
    reveal: Annotated[
        bool, switch("--reveal", "Show the addresses too, decrypted with address_key.")
    ] = False
    as_csv: Annotated[bool, switch("--csv", "Print CSV instead.")] = False
    as_json: JsonFlag = False

    @property
    def is_table(self) -> bool:
        return not (self.as_csv or self.as_json)

    @property
    def most(self) -> int:
        """The most that is printed, 0 for all."""
        return self.limit if self.limit is not None else _LISTED if self.is_table else 0


def dead(
    flags: Flags,
    output: _Output,
    since: Annotated[str, option("TIME", "Recorded since: 2026-11-01, or 7d, 12h ago.")] = _SINCE,
    sink: Annotated[str, option("NAME", "Only of this sink.")] = "",
) -> None:
    """List addresses that sinks called dead, by a fingerprint: they are sent to no more.

    A table has the newest; --csv and --json have all there are, oldest first. With --reveal they
    show the addresses themselves, so that they can be deleted where they are kept.
    """
    if output.as_csv and output.as_json:
        raise BadInput("--csv and --json exclude each other; give one of them")
    settings = flags.settings()
    reader = _Reader(settings, reveal=output.reveal)
    query = ListDeadAddresses(
        since_ms=parse_since(since, now_ms()),
        sink=sink,
        newest_first=output.is_table,
        sealed=reader.has_key,
    )
    if output.is_table:
        count = _print_table(settings, query, output.most, reader)
    else:
        count = _print_all(settings, query, output, reader)
    if not count:
        where = f" at the sink {sink}" if sink else ""
        note(f"no dead address was recorded{where} since {time_text(query.since_ms)}")
    reader.tell()


def register_(
    flags: Flags,
    file: AddressFile,
    sink: Annotated[str, option("NAME", "At this sink.")],
    written: FileFlags,
    column: ColumnOption = "token",
    as_json: JsonFlag = False,
) -> None:
    """Let addresses of a file be sent to again at a sink: devices have registered them anew.

    Each is suppressed there no longer, its record is removed, and news of an earlier death that
    comes late changes nothing.
    """
    settings = flags.settings()
    with SubmitBar() as bar:
        if str(file) == "-" and written == FileFlags():
            pages = line_pages(sys.stdin.buffer)
        else:
            values = Values(file, column, **vars(written))
            refuse_at_once(values)
            pages = value_pages(values, address_text, bar)

        def register(client: Connection) -> Awaitable[ChangedSuppressions]:
            made = partial(RegisterAddresses, sink=sink)
            return changed_by(pages, in_one_entry(client, lambda some: made(values=some)))

        changed = on_client(settings, register, create=True)
    note(f"{changed.given:,} registered, of which {changed.changed:,} had been dead or suppressed")
    _tell_changed(changed, as_json)


class _Reader:
    """Makes rows of records, and opens their addresses: to be revealed, or masked.

    Raises:
        BadInput: they are to be revealed and there is no key, or it cannot be used.
    """

    def __init__(self, settings: Settings, *, reveal: bool) -> None:
        self.reveals = reveal
        self._shown = self._unkept = self._unopened = 0
        self.has_key = settings.address_key is not None
        if settings.address_key is None:
            if not reveal:
                return
            raise BadInput(
                "--reveal needs the setting address_key (PUSHLANE_ADDRESS_KEY), with which the "
                "dispatchers encrypt dead addresses; without one only fingerprints are kept"
            )
        from pushlane.model.address_seal import AddressSeal  # slow to import, and rarely needed

        self._seal = AddressSeal(settings.address_key)
        self._masks = Masks(settings.address_key.reveal().partition(",")[0].strip())

    @property
    def fields(self) -> tuple[str, ...]:
        return (*_FIELDS, _ADDRESS) if self.reveals else _FIELDS

    def row(self, one: DeadAddressView) -> dict[str, Any]:
        """Return the values of the fields; an address that cannot be shown is None."""
        row = {name: getattr(one, name) for name in _FIELDS}
        return {**row, _ADDRESS: self.address(one)} if self.reveals else row

    def address(self, one: DeadAddressView) -> str | None:
        address = self._seal.opened(one.sealed) if one.sealed else None
        self._shown += address is not None
        self._unkept += not one.sealed
        self._unopened += bool(one.sealed) and address is None
        return address

    def cell(self, one: DeadAddressView) -> str:
        """Return an address as a table has it, or its mask; a dash when it cannot be opened."""
        if self.reveals:
            return self.address(one) or "-"
        address = self._seal.opened(one.sealed) if one.sealed else None
        return self._masks.mask(address, FieldType.TOKEN) or "-"

    def tell(self) -> None:
        """Say what was shown and what could not be.

        Raises:
            UserError: addresses were sealed with another key.
        """
        if self._shown:
            shown = "1 address is" if self._shown == 1 else f"{self._shown:,} addresses are"
            note(f"{shown} shown in the clear: keep this where you keep the tokens themselves")
        if self._unkept:
            note(f"{_count(self._unkept)} cannot be shown: no address_key was set at the time")
        if self._unopened:
            raise UserError(
                f"{_count(self._unopened)} cannot be shown: address_key does not open them. If "
                "the key was changed, give the older ones after it, with commas between"
            )


def _print_table(settings: Settings, query: ListDeadAddresses, most: int, reader: _Reader) -> int:
    """Print the newest; return how many."""
    found: list[DeadAddressView] = []
    _read(settings, query, most + 1 if most else 0, found.append)
    shown = found[:most] if most else found
    columns = list(_TOKENS_COLUMNS)
    if reader.has_key:
        columns.insert(2, Column("ADDRESS", reader.cell))
    if shown:
        print_table(columns, shown)
    if len(found) > len(shown):
        note(f"there are more than {most}; see them with --limit, --sink, --csv or --json")
    return len(shown)


def _print_all(
    settings: Settings, query: ListDeadAddresses, output: _Output, reader: _Reader
) -> int:
    """Print rows as they come, however many; return how many."""
    bar = contextlib.nullcontext(None) if sys.stdout.isatty() else SubmitBar()
    count = 0
    with _printing(reader.fields, as_csv=output.as_csv) as print_row, bar as progress:

        def add(one: DeadAddressView) -> None:
            nonlocal count
            print_row(reader.row(one))
            count += 1
            if progress is not None and count % _LISTED == 0:
                progress(SubmitProgress(SubmitStage.LISTING, count))

        _read(settings, query, output.most, add)
    return count


def _read(
    settings: Settings, query: ListDeadAddresses, most: int, add: Callable[[DeadAddressView], None]
) -> None:
    """Give the records that fit to `add`, page by page; at most so many, 0 for all."""

    async def work(client: Connection) -> None:
        left, after = most or sys.maxsize, query.after
        while left:
            page = await client.do(replace(query, after=after))
            for one in page.addresses[:left]:
                add(one)
            left -= min(left, len(page.addresses))
            if page.after is None:
                return
            after = page.after

    on_client(settings, work)


@contextlib.contextmanager
def _printing(
    fields: Sequence[str], *, as_csv: bool
) -> Iterator[Callable[[dict[str, Any]], object]]:
    """Give what prints a row: as CSV, where what is not known is empty, or in one JSON document.

    There it is absent.
    """
    if as_csv:
        writer = csv.DictWriter(sys.stdout, fields, lineterminator="\n")
        writer.writeheader()
        yield writer.writerow
    else:
        written = 0

        def write(row: dict[str, Any]) -> None:
            nonlocal written
            before = ",\n  " if written else "[\n  "
            known = {name: value for name, value in row.items() if value is not None}
            sys.stdout.write(before + msgspec.json.encode(known).decode())
            written += 1

        yield write
        sys.stdout.write("\n]\n" if written else "[]\n")
    sys.stdout.flush()


def _count(number: int) -> str:
    return "1 address" if number == 1 else f"{number:,} addresses"


suppress = Group(
    "Keep the recipients and addresses that must not be sent to.",
    (add, remove, count, check, clear),
)
tokens = Group(
    "List dead addresses, and let those that are registered again live.", (dead, register_)
)
