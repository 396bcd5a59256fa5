"""Suppresses values, or no longer; registers addresses that are sent to again; reads files of them.

A value is kept as a keyed hash alone. A file is read once, as it comes, some thousands of values at
a time: what was done before a fault, as when a service does not answer, stays done, and the same
call does the rest. That an address was registered is remembered, so that late news of an earlier
death changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput
from pushlane.core.task import Level, now_ms
from pushlane.model.recipients import SuppressionScope, kept_hasher, scope_of
from pushlane.producers.columns import address_text
from pushlane.producers.encoder import recipient_text, shown_columns
from pushlane.producers.request import (
    OnProgress,
    RowsInput,
    SubmitProgress,
    SubmitRequest,
    SubmitStage,
    as_file,
    file_in_place,
)
from pushlane.producers.rows import BadRow, RowSource, Wanted, open_source, prefetched
from pushlane.util.conversion import text
from pushlane.util.texts import did_you_mean

_AT_ONCE = 5_000

ReadValue = Callable[[Any], str | None]


class Values(NamedTuple):
    """A column of a file, or of standard input (`-`), whose format is told by its name or given.

    It may be rows in memory, too. `delimiter` and `encoding` are as those of a submit.
    """

    file: RowsInput
    column: str = "recipient"
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None


class ChangedSuppressions(NamedTuple):
    """The outcome of a change: `given` values, of which `changed` were not as wanted before.

    `left_out` rows had no value that can be used, the first of them at `first_left_out`. `remark`
    says that nobody knows the app or the sink, if nobody does.
    """

    given: int
    changed: int
    left_out: int
    first_left_out: str
    remark: str = ""


class ChangedValues(Protocol):
    """What came of a change of some values."""

    @property
    def given(self) -> int: ...

    @property
    def changed(self) -> int: ...

    @property
    def left_out(self) -> int: ...

    @property
    def remark(self) -> str | None: ...


def reader_of(scope: SuppressionScope) -> ReadValue:
    """Return what reads values that are suppressed there: addresses at a sink, else recipients."""
    return address_text if scope.kind == "sink" else recipient_text


class ValuePage(NamedTuple):
    """Some values of a file, each once; `left_out` rows had none that can be used."""

    values: tuple[str, ...]
    left_out: int
    first_left_out: str


class HashedValues(NamedTuple):
    """The keyed hashes of values, each once; `left_out` of the values can be used by no push."""

    hashes: Sequence[int]
    left_out: int


async def hashed_values(backend: Backend, values: Sequence[str]) -> HashedValues:
    """Return the hashes by which these values are suppressed."""
    usable = list(dict.fromkeys(filter(None, map(usable_text, values))))
    left_out = sum(not usable_text(value) for value in values)
    hasher = await kept_hasher(backend.documents)
    return HashedValues(hasher.hashes(usable), left_out)


async def suppress_hashed(
    backend: Backend, values: HashedValues, scope: SuppressionScope, *, adds: bool
) -> ChangedSuppressions:
    """Suppress these values in the scope, or no longer."""
    change = backend.suppressions.add if adds else backend.suppressions.remove
    return await _changed(values, lambda hashes: change(scope, hashes))


async def register_values(
    backend: Backend, sink: str, values: Sequence[str]
) -> ChangedSuppressions:
    """Register these addresses at the sink. Raises BadInput when the sink has no name."""
    _require_name(sink)

    async def register(hashes: Sequence[int]) -> int:
        return await backend.dead_addresses.register(sink, hashes, now_ms())

    return await _changed(await hashed_values(backend, values), register)


async def _changed(
    values: HashedValues, change: Callable[[Sequence[int]], Awaitable[int]]
) -> ChangedSuppressions:
    """Give the hashes to `change`, if there are any; it returns how many it changed."""
    changed = await change(values.hashes) if values.hashes else 0
    return ChangedSuppressions(len(values.hashes), changed, values.left_out, "")


async def value_pages(
    values: Values, read: ReadValue, tell: OnProgress
) -> AsyncIterator[ValuePage]:
    """Yield the values of a file some thousands at a time, as it comes.

    `read` makes of a value the text that a push has, with nothing for one that no push can have.
    Raises BadInput when the file cannot be read, or has no such column.
    """
    given = 0
    async with as_file(_request(values), tell) as file:
        source = await asyncio.to_thread(open_source, *file)
        _require_column(source, values.column)
        async with prefetched(_pages(source, values.column, read)) as pages:
            async for page in pages:
                yield page
                given += len(page.values)
                tell(SubmitProgress(SubmitStage.SUPPRESSING, given))


def refuse_at_once(values: Values) -> None:
    """Raise BadInput for a file or column that cannot be used, before any connection."""
    if (file := file_in_place(_request(values))) is not None:
        _require_column(open_source(*file), values.column)


def _request(values: Values) -> SubmitRequest:
    return SubmitRequest(
        source=values.file,
        format=values.format,
        delimiter=values.delimiter,
        encoding=values.encoding,
        level=Level.LOW,
    )


async def line_pages(lines: Iterable[bytes]) -> AsyncIterator[ValuePage]:
    """Yield the values of lines, one on each, but empty lines."""
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    filled = filter(itemgetter(1), numbered)
    while some := list(islice(filled, _AT_ONCE)):
        texts = [usable_text(line.decode(errors="surrogateescape")) for _, line in some]
        bad = [number for (number, _), text in zip(some, texts, strict=True) if not text]
        values = tuple(dict.fromkeys(filter(None, texts)))
        yield ValuePage(values, len(bad), f"line {bad[0]}" if bad else "")


async def changed_by(
    pages: AsyncIterator[ValuePage],
    apply: Callable[[tuple[str, ...]], Awaitable[ChangedValues]],
) -> ChangedSuppressions:
    """Apply a change to page after page; return what came of all. What was done stays done."""
    given = changed = left_out = 0
    first, remark, has_any = "", "", False
    async for page in pages:
        done, has_any = await apply(page.values), True
        given += done.given
        changed += done.changed
        left_out += page.left_out + done.left_out
        first = first or page.first_left_out
        remark = remark or done.remark or ""
    if not has_any:
        await apply(())  # which refuses what it would of any
    return ChangedSuppressions(given, changed, left_out, first, remark)


async def suppressed_in(backend: Backend, value: str) -> list[SuppressionScope]:
    """Return the scopes in which a value is suppressed. Raises BadInput if no push can have it."""
    usable = usable_value(value)
    hasher = await kept_hasher(backend.documents)
    hashes = hasher.hashes([usable])
    scopes = await backend.suppressions.counts()
    found = await backend.suppressions.find(dict.fromkeys(scopes, hashes))
    return sorted(scope for scope, hits in found.items() if hits)


def _require_column(source: RowSource, column: str) -> None:
    if column not in source.columns and source.fixed:
        raise BadInput(
            f"{source.name} has no column {column!r}; its columns are: {shown_columns(source)}"
            f"{did_you_mean(column, source.columns)}"
        )
    if source.columns.count(column) > 1:
        raise BadInput(f"{source.name} has more than one column {column!r}; rename one")


def _pages(source: RowSource, column: str, read: ReadValue) -> Generator[ValuePage, None, None]:
    values: dict[str, None] = {}
    left_out, first = 0, ""
    for number, row in source.rows(Wanted((column,))):
        value = "" if isinstance(row, BadRow) else usable_text(read(row[0]))
        if value:
            values[value] = None
        else:
            left_out, first = left_out + 1, first or f"{source.unit} {number}"
        if len(values) == _AT_ONCE:
            yield ValuePage(tuple(values), left_out, first)
            values, left_out, first = {}, 0, ""
    if values or left_out:
        yield ValuePage(tuple(values), left_out, first)


def usable_value(value: str) -> str:
    """Return a value as pushes have it. Raises BadInput when no push can have such a value."""
    if not (usable := usable_text(value) if isinstance(value, str) else ""):
        raise BadInput("no push can have this value; give a text that is not empty")
    return usable


def usable_text(value: str | None) -> str:
    """Return a text as pushes have it; empty for one that no push can have."""
    text = (value or "").strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text


def _require_name(sink: str) -> None:
    if not text("sink", sink):
        raise BadInput("say at which sink the addresses are registered, by its name")
    scope_of(sink=sink)
