"""How results look: a table for people, one JSON document for programs. Stdout holds nothing else.

Progress and remarks belong on stderr (`cli.errors.note`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 240
_WIDE = 100
_LEAST_ELASTIC = 6


class Column:
    """A heading, and how its cells behave when the terminal is narrow.

    The elastic column is cut with an ellipsis; one with `from_width` is left out below it.
    """

    def __init__(
        self, heading: str, *, number: bool = False, elastic: bool = False, from_width: int = 0
    ) -> None:
        self.heading = heading
        self.number = number
        self.elastic = elastic
        self.from_width = from_width


def print_json(value: Any) -> None:
    """One document, with a line end."""
    encoded = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    typer.echo(encoded.decode())


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """The rows under their headings, no wider than the terminal."""
    console = _console()
    shown = [column.from_width <= console.width for column in columns]
    kept = _only(columns, shown)
    cells = [_only(row, shown) for row in rows]
    gap = 1 if console.width < _WIDE else 2
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column, width in zip(kept, _widths(kept, cells, console.width, gap), strict=True):
        table.add_column(
            column.heading,
            justify="right" if column.number else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in cells:
        table.add_row(*(Text(_plain(cell)) for cell in row))
    console.print(table)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line; values are never cut."""
    pairs = list(fields)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        typer.echo(f"{name:<{width}}  {_plain(value)}".rstrip())


def _plain(text: str) -> str:
    """Without characters that would control the terminal: a reason can be a stranger's words."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], total: int, gap: int
) -> list[int]:
    """What each needs, but elastic ones share what the others leave."""
    needed = [
        max(len(column.heading), *(len(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
    ]
    fixed = sum(w for w, column in zip(needed, columns, strict=True) if not column.elastic)
    room = total - fixed - gap * (len(columns) - 1)
    each = max(_LEAST_ELASTIC, room // max(1, sum(column.elastic for column in columns)))
    return [
        min(width, each) if column.elastic else width
        for width, column in zip(needed, columns, strict=True)
    ]


def _only(items: Sequence[Any], shown: Sequence[bool]) -> list[Any]:
    return [item for item, kept in zip(items, shown, strict=True) if kept]


def _console() -> Console:
    """Standard output, wide when it is no terminal, so that nothing is cut there."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH)
