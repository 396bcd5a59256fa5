"""Reads rows of a file, CSV, JSON Lines or Parquet, and reads ahead of whoever uses them.

A reason for a row that cannot be used names fields and places, never what the row holds. A file is
never in memory whole, and its lines and rows are of bounded length. CSV has a header. CSV and JSON
Lines may be packed with gzip, and in any encoding.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from pushlane.core.errors import BadInput
from pushlane.producers.text_file import (
    GZIP,
    MAX_LINE,
    WORKBOOK,
    Dialect,
    TextFile,
    delimiter_in,
    delimiter_word,
    without_gz,
)
from pushlane.util.extras import needs_extra
from pushlane.util.texts import did_you_mean

if TYPE_CHECKING:
    from _csv import Reader

Item = TypeVar("Item")
_END: Any = object()
_BLOCK_BYTES = 1 << 22


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

    `fixed` says whether every row has just these; `unit` is what rows are counted in. `misfit` is
    what text is that could not be read in its encoding: "not UTF-8".
    """

    name: str
    unit: str
    misfit: str
    columns: tuple[str, ...]
    fixed: bool

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        """Yield every row from the first on, its values in the order of `wanted.names`.

        Raises BadInput when the file cannot be read on.
        """


MAX_ROW = 4 * MAX_LINE


class CsvRows:
    """Rows between delimiters, with double quotes around what holds one."""

    unit = "line"
    fixed = True

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.name = file.name
        self.misfit = file.dialect.misfit
        with self._reader() as (_, _, header):
            self.columns = tuple(column.strip() for column in header)

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        width = len(self.columns)
        places = [self.columns.index(field) for field in wanted.names]
        pick: Any = itemgetter(*places) if len(places) > 1 else lambda row: [row[places[0]]]
        with self._reader() as (reader, bounded, _):
            read = reader.__next__
            while True:
                line = reader.line_num + 1
                bounded.size = 0
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
    def _reader(self) -> Iterator[tuple[Reader, _BoundedRow, list[str]]]:
        """Give a reader of the rows behind the header, what bounds a row, and the header."""
        with self._file.lines() as lines:
            bounded = _BoundedRow(self.name)
            delimiter = self._file.dialect.delimiter
            reader = csv.reader(bounded.lines(lines), delimiter=delimiter, strict=True)
            yield reader, bounded, self._header(reader)

    def _header(self, reader: Reader) -> list[str]:
        delimiter = self._file.dialect.delimiter
        try:
            header = next(reader, [])
            if header == ["sep=", ""]:  # how Excel is told the delimiter
                header = next(reader, [])
        except csv.Error as error:
            raise BadInput(f"{self.name}:1 is not a CSV header; check the file's format") from error
        line = f"{self.name}:{max(reader.line_num, 1)}"
        for number, column in enumerate(header, start=1):
            if not column.isascii() and not is_encodable(column):
                raise BadInput(f"{line}: the name of column {number} is {self.misfit}")
        if not any(header):
            raise BadInput(f"{line} is blank; the first line must name the columns")
        seen = delimiter_in(self._file.first_line)
        if len(header) == 1 and seen and seen != delimiter:
            add = "add" if delimiter == "," else "give"
            raise BadInput(
                f"{line} has no {delimiter!r}; its columns seem to be separated by "
                f"{seen!r}: {add} --delimiter {delimiter_word(seen)}"
            )
        return header


class _BoundedRow:
    """Counts the characters of a row, whose quotes may span lines: `size` of the lines since it
    was set to 0.
    """

    size = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def lines(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines. Raises BadInput when those of a row are longer than 4 MiB."""
        for number, line in enumerate(lines, start=1):
            self.size += len(line)
            if self.size > MAX_ROW:
                raise BadInput(
                    f"{self._name}:{number}: a row has over {MAX_ROW} characters; is a quote open?"
                )
            yield line


def is_encodable(text: str) -> bool:
    """Return whether a text was read without bytes that its encoding does not have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class JsonRows:
    """Rows that are one object a line, which may differ in their fields."""

    unit = "line"
    fixed = False

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.name = file.name
        self.misfit = file.dialect.misfit
        self._refuse_blank()
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

    def _refuse_blank(self) -> None:
        """Raise BadInput for a file that is blank for long: packed, it may be a small one."""
        blank = 0
        with self._file.lines("\n") as lines:
            for line in lines:
                if not line.isspace():
                    return
                blank += len(line)
                if blank > MAX_LINE:
                    raise BadInput(
                        f"{self.name} has over {MAX_LINE} characters of blank lines before its "
                        "first row; remove them"
                    )

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with self._file.lines("\n") as lines:
            for line, text in enumerate(lines, start=1):
                try:
                    yield line, decode(text)
                except UnicodeEncodeError:
                    yield line, BadRow(f"is {self.misfit}")
                except msgspec.DecodeError:
                    if not text.isspace():
                        yield line, BadRow("is not one JSON object")


def _parquet(path: Path, name: str) -> RowSource:
    with path.open("rb") as file:
        if file.read(len(GZIP)) == GZIP:
            raise BadInput(f"{name} is packed with gzip, not Parquet; unpack it first, with gunzip")
    with needs_extra("parquet", name):  # pyarrow, which takes long to load
        from pushlane.producers.parquet_rows import ParquetRows
    return ParquetRows(path, name)


_TEXTS: dict[str, Callable[[TextFile], RowSource]] = {"csv": CsvRows, "jsonl": JsonRows}
_FORMATS = (*_TEXTS, "parquet")
_EXTENSIONS = {**{f".{name}": name for name in _FORMATS}, ".ndjson": "jsonl", ".pq": "parquet"}
_WORKBOOKS = (".xls", ".xlsx", ".xlsm", ".xlsb")
_LIKELY = {
    ".txt": "csv if its first line names the columns, jsonl if its lines are JSON objects",
    ".json": "jsonl if each of its lines is one JSON object",
    ".tsv": "csv --delimiter tab",
    ".tab": "csv --delimiter tab",
}


def format_of(path: Path, given: str | None) -> str:
    """Return the format asked for, or of the file's extension. Raises BadInput for no known one."""
    known = ", ".join(_FORMATS)
    extension = without_gz(path).suffix.lower()
    if given is None and extension in _WORKBOOKS:
        raise BadInput(f"{path} {WORKBOOK}")
    found = given if given is not None else _EXTENSIONS.get(extension)
    if found is None:
        likely = _LIKELY.get(extension, known)
        raise BadInput(f"the format of {path} is not clear from its name; add --format {likely}")
    if found not in _FORMATS:
        raise BadInput(f"unknown format {given!r}; use {known}{did_you_mean(found, _FORMATS)}")
    return found


_USUAL = Dialect()


def open_source(path: Path, kind: str, name: str = "", dialect: Dialect = _USUAL) -> RowSource:
    """Open the rows of a file that messages call `name`. Raises BadInput when it cannot be."""
    name = name or str(path)
    try:
        if path.is_dir():
            raise BadInput(f"{name} is a folder; give a file")
        if path.exists() and not path.is_file():
            raise BadInput(f"{name} is a device, not a file of rows; give a file, or - for stdin")
        if path.stat().st_size == 0:
            raise BadInput(f"{name} is empty: there is nothing to submit")
        if kind not in _TEXTS:
            return _parquet(path, name)
        return _TEXTS[kind](TextFile(path, name, dialect))
    except FileNotFoundError as error:
        raise BadInput(f"{name} does not exist; check the path") from error
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}") from error


def content(path: Path, kind: str, name: str, dialect: Dialect) -> Iterator[bytes]:
    """Yield what tells a file from one with other rows: texts unpacked and in UTF-8.

    Before it stands the delimiter, unless it is a comma.
    """
    if kind not in _TEXTS:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
        return
    if dialect.delimiter != ",":
        yield f"delimiter {dialect.delimiter}\0".encode()
    yield from TextFile(path, name, dialect).content()
