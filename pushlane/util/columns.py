"""Lays out a table of texts for a terminal, in whatever script they are written.

Its columns are left out and cut until it is no wider than there is room. A cell is text alone: what
would steer a terminal is taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size

from pushlane.util.conversion import UNIT_S

_WIDE = 100
_BLANK = ("", "-")
T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A heading, the cell of an item, and what becomes of both when the terminal is narrow.

    Columns with a number to `spare` are left out until the others fit: first those that say nothing
    in any row, then the lowest. Then the elastic ones are cut with an ellipsis, at first down to
    their `least` width.
    """

    heading: str
    cell: Callable[[T], str]
    number: bool = False
    elastic: bool = False
    spare: int = 0
    least: int = 6


class Laid(NamedTuple):
    """A table for so much room: the places of the columns that are kept, and how wide each is.

    `cells` are the texts of all rows, of the columns that are kept.
    """

    places: Sequence[int]
    widths: Sequence[int]
    gap: int
    cells: Sequence[Sequence[str]]


def laid(columns: Sequence[Column[T]], items: Iterable[T], total: int) -> Laid:
    """Lay out the items so that each row has no more than `total` columns of a terminal."""
    gap = 1 if total < _WIDE else 2
    rows = [[plain(column.cell(item)) for column in columns] for item in items]
    places = _fitting(columns, rows, total, gap)
    kept = [columns[place] for place in places]
    cells = [[row[place] for place in places] for row in rows]
    return Laid(places, _widths(kept, cells, total, gap), gap, cells)


def line(columns: Sequence[Column[T]], laid: Laid, row: Sequence[str]) -> str:
    """Return a row of a table, or its heading, as one line."""
    kept = [columns[place] for place in laid.places]
    return (" " * laid.gap).join(map(fitted, kept, row, laid.widths)).rstrip()


def headings(columns: Sequence[Column[T]], laid: Laid) -> list[str]:
    """Return the headings of the columns that are kept."""
    return [columns[place].heading for place in laid.places]


def _fitting(
    columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], total: int, gap: int
) -> list[int]:
    """Return the places of the columns to show: without what is spared until the others fit."""
    blank = {place for place in range(len(columns)) if all(row[place] in _BLANK for row in rows)}
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
        places.remove(min(spare, key=lambda place: (place not in blank, columns[place].spare)))
    return places


def _needed(columns: Sequence[Column[T]], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column has to be for nothing of it to be cut."""
    return [
        max(len(column.heading), *(cell_len(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
    ]


def fitted(column: Column[T], text: str, width: int) -> str:
    """Cut or fill the text to so many columns of a terminal, whatever it is written in."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    room = " " * (width - length)
    return room + text if column.number else text + room


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


def plain(text: str) -> str:
    """Return the text without control characters, since a reason can be a stranger's words."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


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
