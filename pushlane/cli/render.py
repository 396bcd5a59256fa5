"""Prints results: a table for people, one JSON document for programs, and nothing else on stdout.

People get times as an age, or in UTC. Progress and remarks belong on stderr (`cli.errors.note`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import typer

from pushlane.cli.errors import note
from pushlane.util.columns import Column as Column
from pushlane.util.columns import age_text as age_text
from pushlane.util.columns import headings, laid, line
from pushlane.util.columns import plain as plain
from pushlane.util.columns import soon_text as soon_text
from pushlane.util.conversion import UNIT_S
from pushlane.util.texts import clock

_PIPED_WIDTH = 240
_ENDLESS = 100_000
_MORE = "a wider terminal, a pipe or --json shows all"
T = TypeVar("T")


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
    table = laid(columns, items, _ENDLESS if wide else total)
    heading = line(columns, table, headings(columns, table))
    is_plain = not is_terminal or os.environ.get("TERM") == "dumb"
    typer.echo(heading if is_plain else typer.style(heading, bold=True))
    for row in table.cells:
        typer.echo(line(columns, table, row))
    kept = {*table.places}
    if hidden := [one.heading for place, one in enumerate(columns) if place not in kept]:
        note(f"hidden: {', '.join(hidden)}; {more}")


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair a line; values are never cut."""
    pairs = list(fields)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        typer.echo(f"{name:<{width}}  {plain(value)}".rstrip())


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
