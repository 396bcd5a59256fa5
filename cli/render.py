"""Prints results: a table for people, one JSON document for programs, and nothing else on stdout.

People get times as an age, or in UTC.

Progress and remarks belong on stderr (`cli.errors.note`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import typer
from rich.cells import cell_len, set_cell_size

from pushlane.diagnosis.cause import clock
from pushlane.lanes.conversion import UNIT_S

_PIPED_WIDTH = 240
_WIDE = 100
_LEAST_ELASTIC = 6
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A heading, the cell of an item, and what becomes of both when the terminal is narrow.

    The elastic column is cut with an ellipsis; one with `from_width` is left out below it.
    """

    heading: str
    cell: Callable[[T], str]
    number: bool = False
    elastic: bool = False
    from_width: int = 0


def print_json(value: Any) -> None:
    """Print one document, with a line end."""
    encoded = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    typer.echo(encoded.decode())


def print_table(columns: Sequence[Column[T]], items: Iterable[T]) -> None:
    """Print a row for each item under the headings, no wider than the terminal, if there is one."""
    is_terminal = sys.stdout.isatty()
    total = shutil.get_terminal_size().columns if is_terminal else _PIPED_WIDTH
    kept = [column for column in columns if column.from_width <= total]
    cells = [[plain(column.cell(item)) for column in kept] for item in items]
    gap = 1 if total < _WIDE else 2
    widths = _widths(kept, cells, total, gap)
    heading = _line(kept, widths, [column.heading for column in kept], gap)
    is_plain = not is_terminal or os.environ.get("TERM") == "dumb"
    typer.echo(heading if is_plain else typer.style(heading, bold=True))
    for row in cells:
        typer.echo(_line(kept, widths, row, gap))


def _line(columns: Sequence[Column[T]], widths: Sequence[int], row: Sequence[str], gap: int) -> str:
    return (" " * gap).join(map(_fitted, columns, row, widths)).rstrip()


def _fitted(column: Column[T], text: str, width: int) -> str:
    """Cut or fill the text to so many columns of a terminal, whatever it is written in."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    room = " " * (width - length)
    return room + text if column.number else text + room


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair a line; values are never cut."""
    pairs = list(fields)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        typer.echo(f"{name:<{width}}  {plain(value)}".rstrip())


def plain(text: str) -> str:
    """Return the text without control characters, since a reason can be a stranger's words."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _widths(
    columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], total: int, gap: int
) -> list[int]:
    """Return the width of each column; elastic ones share what the others leave."""
    needed = [
        max(len(column.heading), *(cell_len(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
    ]
    fixed = sum(w for w, column in zip(needed, columns, strict=True) if not column.elastic)
    room = total - fixed - gap * (len(columns) - 1)
    each = max(_LEAST_ELASTIC, room // max(1, sum(column.elastic for column in columns)))
    widths = [
        min(width, each) if column.elastic else width
        for width, column in zip(needed, columns, strict=True)
    ]
    while sum(widths) + gap * (len(widths) - 1) > total and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def age_text(since_ms: int, now_ms: int) -> str:
    """Return the age in its largest unit: `5s`, `12m`, `3h`, `9d`; a dash for an unset time."""
    if not since_ms:
        return "-"
    age_s = max(0, now_ms - since_ms) // 1000
    for unit, unit_s in UNIT_S.items():
        if age_s >= unit_s:
            return f"{age_s // unit_s}{unit}"
    return "0s"


def seconds_text(seconds: float) -> str:
    """Return a duration in its two largest units: `40s`, `12m 5s`, `3h 20m`, `2d 1h`."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, unit_s in UNIT_S.items():
        if left >= unit_s:
            parts.append(f"{left // unit_s}{unit}")
            left %= unit_s
    return " ".join(parts[:2]) or "less than 1s"


def time_text(at_ms: int) -> str:
    """Return a time in UTC, to the second, as `why` does; a dash for an unset time."""
    return clock(at_ms) if at_ms else "-"
