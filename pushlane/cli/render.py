"""Prints results: a table for people, one JSON document for programs, and nothing else on stdout.

People get times as an age, or in UTC. Progress and remarks belong on stderr (`cli.errors.note`).
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

from pushlane.cli.errors import note
from pushlane.util.conversion import UNIT_S
from pushlane.util.texts import clock

_PIPED_WIDTH = 240
_WIDE = 100
_ENDLESS = 100_000
_MORE = "a wider terminal, a pipe or --json shows all"
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A heading, the cell of an item, and what becomes of both when the terminal is narrow.

    Columns with a number to `spare` are left out, the lowest first, until the others fit. Then the
    elastic ones are cut with an ellipsis, at first down to their `least` width.
    """

    heading: str
    cell: Callable[[T], str]
    number: bool = False
    elastic: bool = False
    spare: int = 0
    least: int = 6


def print_json(value: Any) -> None:
    """Print one document, with a line end."""
    encoded = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    typer.echo(encoded.decode())


def picked(item: object, *names: str) -> dict[str, Any]:
    """Return these attributes of an item by name, for a document."""
    return {name: getattr(item, name) for name in names}


def print_rows(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    document: Callable[[T], object],
    *,
    as_json: bool,
    nothing: str,
) -> None:
    """Print rows as a table, or their documents as JSON; for none, note that there is `nothing`."""
    if as_json:
        print_json([document(row) for row in rows])
    elif rows:
        print_table(columns, rows)
    else:
        note(nothing)


def print_table(
    columns: Sequence[Column[T]], items: Iterable[T], *, wide: bool = False, more: str = _MORE
) -> None:
    """Print a row for each item under the headings, no wider than the terminal, if there is one.

    Columns for which there is no room are named on stderr, with `more` on how to see them. With
    `wide` all are shown, and nothing is cut.
    """
    is_terminal = sys.stdout.isatty()
    total = shutil.get_terminal_size().columns if is_terminal else _PIPED_WIDTH
    total = _ENDLESS if wide else total
    gap = 1 if total < _WIDE else 2
    rows = [[plain(column.cell(item)) for column in columns] for item in items]
    places = _fitting(columns, rows, total, gap)
    kept = [columns[place] for place in places]
    cells = [[row[place] for place in places] for row in rows]
    widths = _widths(kept, cells, total, gap)
    heading = _line(kept, widths, [column.heading for column in kept], gap)
    is_plain = not is_terminal or os.environ.get("TERM") == "dumb"
    typer.echo(heading if is_plain else typer.style(heading, bold=True))
    for row in cells:
        typer.echo(_line(kept, widths, row, gap))
    if hidden := [column.heading for column in columns if column not in kept]:
        note(f"hidden: {', '.join(hidden)}; {more}")


def _fitting(
    columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], total: int, gap: int
) -> list[int]:
    """Return the places of the columns to show: without what is spared until the others fit."""
    needed = _needed(columns, rows)
    least = [
        min(width, column.least) if column.elastic else width
        for width, column in zip(needed, columns, strict=True)
    ]
    places = list(range(len(columns)))
    while sum(least[place] for place in places) + gap * (len(places) - 1) > total:
        spare = [place for place in places if columns[place].spare]
        if not spare:
            break
        places.remove(min(spare, key=lambda place: columns[place].spare))
    return places


def _needed(columns: Sequence[Column[T]], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column has to be for nothing of it to be cut."""
    return [
        max(len(column.heading), *(cell_len(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
    ]


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
    """Return the width of each column: what it needs, but for the widest when all do not fit."""
    widths = _needed(columns, rows)
    elastic = [place for place, column in enumerate(columns) if column.elastic]
    while (over := sum(widths) + gap * (len(widths) - 1) - total) > 0:
        wide = [place for place in elastic if widths[place] > columns[place].least]
        widest = max(wide or range(len(widths)), key=lambda place: widths[place])
        if widths[widest] <= 1:
            break
        widths[widest] -= _step(widths, wide, widest, over, columns[widest].least)
    return widths


def _step(widths: Sequence[int], wide: Sequence[int], widest: int, over: int, least: int) -> int:
    """Return by how much to narrow the widest column: to the next widest, if that is enough."""
    if not wide:
        return 1
    others = [widths[place] for place in wide if place != widest]
    next_widest = max([least, *others])
    return max(1, min(over, widths[widest] - next_widest))


def age_text(since_ms: int, now_ms: int) -> str:
    """Return the age in its largest unit: `5s`, `12m`, `3h`, `9d`; a dash for an unset time."""
    if not since_ms:
        return "-"
    age_s = max(0, now_ms - since_ms) // 1000
    for unit, unit_s in UNIT_S.items():
        if age_s >= unit_s:
            return f"{age_s // unit_s}{unit}"
    return "0s"


def soon_text(seconds: float) -> str:
    """Return a time to come in one unit, of which it is at least two: `in 40s`, `in 12m`."""
    for unit, unit_s in UNIT_S.items():
        if seconds >= 2 * unit_s:
            return f"in {seconds / unit_s:.0f}{unit}"
    return "in 1s"


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
