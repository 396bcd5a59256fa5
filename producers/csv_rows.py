"""Reads rows of a CSV file with a header: commas, double quotes, UTF-8 with or without a BOM."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pushlane.lanes.errors import BadInput
from pushlane.producers.rows import BadRow, Row, Wanted
from pushlane.producers.text_lines import bounded_lines

if TYPE_CHECKING:
    from _csv import Reader


class CsvRows:
    unit = "line"
    fixed = True

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name
        with self._reader() as reader:
            self.columns = tuple(column.strip() for column in _header(reader, name))

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        width = len(self.columns)
        pick = _picker([self.columns.index(field) for field in wanted.names])
        with self._reader() as reader:
            _header(reader, self.name)
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
                    yield line, BadRow(f"has {_columns(len(row))}, the header has {width}")

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        # What is not UTF-8 is kept as surrogates, so that only the rows that use it are bad.
        with self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield csv.reader(bounded_lines(file.readline, self.name), strict=True)


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


def _picker(places: list[int]) -> Any:
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _broken(first: int, last: int) -> BadRow:
    lines = f"lines {first} to {last} have" if last > first else "has"
    return BadRow(f"{lines} broken quoting or a field that is too long")
