"""Suppresses the values of a file, or no longer; registers addresses that are sent to again.

A value is kept as a keyed hash alone. A file is read once, as it comes, some thousands of values at
a time: what was done before a fault, as when a service does not answer, stays done, and the same
call does the rest. That an address was registered is remembered, so that late news of an earlier
death changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput
from pushlane.core.task import Level, now_ms
from pushlane.model.recipients import Hasher, SuppressionScope, kept_hasher, scope_of
from pushlane.producers.columns import address_text
from pushlane.producers.encoder import recipient_text, shown_columns
from pushlane.producers.request import (
    OnProgress,
    RowsInput,
    SubmitProgress,
    SubmitRequest,
    SubmitStage,
    as_file,
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

    `left_out` rows had no value that can be used, the first of them at `first_left_out`.
    """

    given: int
    changed: int
    left_out: int
    first_left_out: str


class _Chunk(NamedTuple):
    hashes: list[int]
    left_out: int
    first_left_out: str


async def change_suppressed(
    backend: Backend, values: Values, scope: SuppressionScope, tell: OnProgress, *, adds: bool
) -> ChangedSuppressions:
    """Suppress the values in the scope, or no longer. Raises BadInput as `change_hashes` does."""
    change = backend.suppressions.add if adds else backend.suppressions.remove
    read = address_text if scope.kind == "sink" else recipient_text
    return await change_hashes(backend, values, read, lambda hashes: change(scope, hashes), tell)


async def change_hashes(
    backend: Backend,
    values: Values,
    read: ReadValue,
    change: Callable[[list[int]], Awaitable[int]],
    tell: OnProgress,
) -> ChangedSuppressions:
    """Give the hashes of all values to `change`, some at a time; it returns how many it changed.

    `read` makes of a value the text that a push has, with nothing for one that no push can have.
    Raises BadInput when the file cannot be read, or has no such column.
    """
    hasher = await kept_hasher(backend.documents)
    request = SubmitRequest(
        source=values.file,
        format=values.format,
        delimiter=values.delimiter,
        encoding=values.encoding,
        level=Level.LOW,
    )
    given = changed = left_out = 0
    first = ""
    async with as_file(request, tell) as file:
        source = await asyncio.to_thread(open_source, *file)
        _require_column(source, values.column)
        async with prefetched(_chunks(source, values.column, read, hasher)) as chunks:
            async for chunk in chunks:
                changed += await change(chunk.hashes)
                given += len(chunk.hashes)
                left_out += chunk.left_out
                first = first or chunk.first_left_out
                tell(SubmitProgress(SubmitStage.SUPPRESSING, given))
    return ChangedSuppressions(given, changed, left_out, first)


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


def _chunks(
    source: RowSource, column: str, read: ReadValue, hasher: Hasher
) -> Generator[_Chunk, None, None]:
    """Yield the hashes of the values, each once in its chunk."""
    values: dict[str, None] = {}
    left_out, first = 0, ""
    for number, row in source.rows(Wanted((column,))):
        value = "" if isinstance(row, BadRow) else usable_text(read(row[0]))
        if value:
            values[value] = None
        else:
            left_out, first = left_out + 1, first or f"{source.unit} {number}"
        if len(values) == _AT_ONCE:
            yield _Chunk(hasher.hashes(list(values)), left_out, first)
            values, left_out, first = {}, 0, ""
    if values or left_out:
        yield _Chunk(hasher.hashes(list(values)), left_out, first)


def usable_value(value: str) -> str:
    """Return a value as pushes have it. Raises BadInput when no push can have such a value."""
    if not (usable := usable_text(value) if isinstance(value, str) else ""):
        raise BadInput("this is no value that a push can have; give a text that is not empty")
    return usable


def usable_text(value: str | None) -> str:
    """Return a text as pushes have it; empty for one that no push can have."""
    text = (value or "").strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text


async def register_file(
    backend: Backend, sink: str, values: Values, tell: OnProgress
) -> ChangedSuppressions:
    """Register the values of a file at the sink. Raises BadInput for no name, file or column."""
    _require_name(sink)

    async def register(hashes: list[int]) -> int:
        return await backend.dead_addresses.register(sink, hashes, now_ms())

    return await change_hashes(backend, values, address_text, register, tell)


async def register_lines(
    backend: Backend, sink: str, lines: Iterable[bytes]
) -> ChangedSuppressions:
    """Register an address a line at the sink, but empty lines. Raises BadInput for no name."""
    _require_name(sink)
    hasher = await kept_hasher(backend.documents)
    given = changed = left_out = 0
    first = ""
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    filled = filter(itemgetter(1), numbered)
    while some := list(islice(filled, _AT_ONCE)):
        texts = [usable_text(line.decode(errors="surrogateescape")) for _, line in some]
        bad = [number for (number, _), text in zip(some, texts, strict=True) if not text]
        hashes = hasher.hashes(list(dict.fromkeys(filter(None, texts))))
        changed += await backend.dead_addresses.register(sink, hashes, now_ms())
        given += len(hashes)
        left_out += len(bad)
        first = first or (f"line {bad[0]}" if bad else "")
    return ChangedSuppressions(given, changed, left_out, first)


async def register_address(backend: Backend, sink: str, address: str) -> bool:
    """Register an address, as `Client.register_address` says."""
    _require_name(sink)
    hasher = await kept_hasher(backend.documents)
    hashes = hasher.hashes([usable_value(address)])
    return bool(await backend.dead_addresses.register(sink, hashes, now_ms()))


def _require_name(sink: str) -> None:
    if not text("sink", sink):
        raise BadInput("say at which sink the addresses are registered, by its name")
    scope_of(sink=sink)
