"""Reads rows of text: CSV with a header, in UTF-8 with or without a BOM, and JSON Lines.

Lines are of bounded length, so that a file without line ends cannot fill the memory.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr

import msgspec

from pushlane.core.errors import BadInput
from pushlane.producers.rows import BadRow, Row, Wanted

if TYPE_CHECKING:
    from _csv import Reader

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
                    yield line, _broken(line, reader.line_num)
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


def _broken(first: int, last: int) -> BadRow:
    lines = f"lines {first} to {last} have" if last > first else "has"
    return BadRow(f"{lines} broken quoting or a field that is too long")


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
    """Yield the lines of a file, read by its `readline`.

    Raises:
        BadInput: a line is longer than 1 MiB.
    """
    number = 0
    while line := readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise BadInput(
                f"{name}:{number} is a line of over {MAX_LINE} characters; is the format right?"
            )
        yield line
