"""Reads rows of a file, CSV, JSON Lines or Parquet, and reads ahead of whoever uses them.

A reason for a row that cannot be used names fields and places, never what the row holds. A file is
never in memory whole, and its lines are of bounded length, so that one without line ends cannot
fill the memory. CSV has a header, in UTF-8 with or without a BOM.
"""

from __future__ import annotations

import asyncio
import codecs
import csv
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr, Protocol, TypeVar

import msgspec

from pushlane.core.errors import BadInput
from pushlane.util.texts import did_you_mean

if TYPE_CHECKING:
    from _csv import Reader

Item = TypeVar("Item")
_END: Any = object()


@asynccontextmanager
async def prefetched(items: Generator[Item, None, None]) -> AsyncIterator[AsyncIterator[Item]]:
    """Give the items. Leaving waits for the one that is being made, then closes the iterator."""

    def make_next() -> asyncio.Task[Item]:
        return asyncio.create_task(asyncio.to_thread(next, items, _END))

    coming = make_next()

    async def made() -> AsyncGenerator[Item, None]:
        nonlocal coming
        while (item := await asyncio.shield(coming)) is not _END:
            coming = make_next()
            yield item

    try:
        async with aclosing(made()) as stream:
            yield stream
    finally:
        await asyncio.wait({coming})
        coming.exception()  # was raised where the item was asked for, or nobody wants it any more
        items.close()


class BadRow(msgspec.Struct, frozen=True):
    """The reason why a row cannot be used; a submit that stops at bad rows raises `error`.

    `is_empty` says that its push has nothing in it, which a silent task may send.
    """

    reason: str
    error: type[BadInput] = BadInput
    is_empty: bool = False


class Unusable(Exception):
    """Says while a row is encoded that it cannot be used, and why."""

    def __init__(self, row: BadRow) -> None:
        super().__init__(row.reason)
        self.row = row


Row = tuple[int, "Sequence[Any] | BadRow"]


class Wanted(msgspec.Struct, frozen=True):
    """The fields a submit needs of each row. JSON rows may lack the optional ones."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in the order of a row's values."""
        return self.required + self.optional


class RowSource(Protocol):
    """A file of rows. `columns` are those of its header, or the fields of the first JSON row.

    `fixed` says whether every row has just these; `unit` is what rows are counted in.
    """

    name: str
    unit: str
    columns: tuple[str, ...]
    fixed: bool

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        """Yield every row from the first on, its values in the order of `wanted.names`.

        Raises BadInput when the file cannot be read on.
        """


MAX_LINE = 1 << 20


class CsvRows:
    """Rows between commas, with double quotes around what holds one."""

    unit = "line"
    fixed = True

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        with self._reader() as (_, header):
            self.columns = tuple(column.strip() for column in header)

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        width = len(self.columns)
        places = [self.columns.index(field) for field in wanted.names]
        pick: Any = itemgetter(*places) if len(places) > 1 else lambda row: [row[places[0]]]
        with self._reader() as (reader, _):
            read = reader.__next__
            while True:
                line = reader.line_num + 1
                try:
                    row = read()
                except StopIteration:
                    return
                except csv.Error:
                    last = reader.line_num
                    lines = f"lines {line} to {last} have" if last > line else "has"
                    yield line, BadRow(f"{lines} broken quoting or a field that is too long")
                    continue
                if len(row) == width:
                    yield line, pick(row)
                elif row:  # a blank line is no row
                    count = "1 column" if len(row) == 1 else f"{len(row)} columns"
                    yield line, BadRow(f"has {count}, the header has {width}")

    @contextmanager
    def _reader(self) -> Iterator[tuple[Reader, list[str]]]:
        """Give a reader of the rows behind the header, and the header."""
        # What is not UTF-8 is kept as surrogates, so that only the rows that use it are bad.
        with self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(bounded_lines(file.readline, self.name), strict=True)
            yield reader, _header(reader, self.name)


def _header(reader: Reader, name: str) -> list[str]:
    try:
        header = next(reader, [])
        "".join(header).encode()
    except (csv.Error, UnicodeEncodeError) as error:
        raise BadInput(f"{name}:1 is no CSV header in UTF-8; check the file's format") from error
    if not any(header):
        raise BadInput(f"{name}:1 is blank; the first line must name the columns")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise BadInput(f"{name}:1 has no comma; its columns must be separated by commas")
    return header


class JsonRows:
    """Rows that are one object a line, which may differ in their fields."""

    unit = "line"
    fixed = False

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        first = next(self._objects(), (0, None))[1]
        self.columns = tuple(first) if isinstance(first, dict) else ()

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        required, optional = wanted.required, wanted.optional
        for line, found in self._objects():
            if isinstance(found, BadRow):
                yield line, found
                continue
            try:
                values = [found[field] for field in required]
            except KeyError as missing:
                yield line, BadRow(f"has no field {missing.args[0]!r}")
                continue
            if optional:
                values += map(found.get, optional)
            yield line, values

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with self._path.open("rb") as file:
            for line, text in enumerate(bounded_lines(file.readline, self.name), start=1):
                if line == 1:
                    text = text.removeprefix(codecs.BOM_UTF8)
                try:
                    yield line, decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    if not text.isspace():
                        yield line, BadRow("is not one JSON object")


def bounded_lines(readline: Callable[[int], AnyStr], name: str) -> Iterator[AnyStr]:
    """Yield the lines of a file. Raises BadInput when a line is longer than 1 MiB."""
    number = 0
    while line := readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise BadInput(
                f"{name}:{number} is a line of over {MAX_LINE} characters; is the format right?"
            )
        yield line


def _parquet(path: Path, name: str) -> RowSource:
    from pushlane.producers.parquet_rows import ParquetRows  # with pyarrow: that takes long

    return ParquetRows(path, name)


_READERS: dict[str, Callable[[Path, str], RowSource]] = {
    "csv": CsvRows,
    "jsonl": JsonRows,
    "parquet": _parquet,
}
_EXTENSIONS = {**{f".{name}": name for name in _READERS}, ".ndjson": "jsonl", ".pq": "parquet"}


def format_of(path: Path, given: str | None) -> str:
    """Return the format asked for, or of the file's extension. Raises BadInput for no known one."""
    known = ", ".join(_READERS)
    found = given if given is not None else _EXTENSIONS.get(path.suffix.lower())
    if found is None:
        raise BadInput(f"the format of {path} is not clear from its name; add --format {known}")
    if found not in _READERS:
        raise BadInput(f"unknown format {given!r}; use {known}{did_you_mean(found, _READERS)}")
    return found


def open_source(path: Path, kind: str, name: str = "") -> RowSource:
    """Open the rows of a file that messages call `name`. Raises BadInput when it cannot be."""
    name = name or str(path)
    try:
        if path.is_dir():
            raise BadInput(f"{name} is a folder; give a file")
        if path.exists() and not path.is_file():
            raise BadInput(f"{name} is a device, not a file of rows; give a file, or - for stdin")
        if path.stat().st_size == 0:
            raise BadInput(f"{name} is empty: there is nothing to submit")
        return _READERS[kind](path, name)
    except FileNotFoundError as error:
        raise BadInput(f"{name} does not exist; check the path") from error
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}") from error
