"""Reads the filters of a report, like `outcome=dead,sink=webhook|fcm`, into values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from pushlane.core.errors import BadInput
from pushlane.pipeline.reports.dimensions import Dimension, parse_dimension

_MOST_CONDITIONS = 20


@dataclass(frozen=True)
class Condition:
    """The dimension must have one of these values, or none of them if it is `negated`."""

    dimension: Dimension
    values: tuple[str, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.dimension.heading}{'!=' if self.negated else '='}{'|'.join(self.values)}"


def parse_where(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Return every condition in these texts; all of them must hold.

    A condition that holds a comma is written in double quotes, as in a CSV file. `!=` negates, and
    `|` stands between alternatives. An empty value matches pushes that have none.

    Raises:
        BadInput: one cannot be read, names no dimension, or one of time.
    """
    found = tuple(_condition(item) for text in texts for item in _items(text))
    if len(found) > _MOST_CONDITIONS:
        raise BadInput(
            f"{len(found)} conditions are too many: a report takes up to {_MOST_CONDITIONS}"
        )
    return found


def _items(text: str) -> list[str]:
    try:
        lines = list(csv.reader(io.StringIO(text), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise BadInput(f"where {text!r} cannot be read: {error}") from error
    return [item.strip() for line in lines for item in line if item.strip()]


def _condition(item: str) -> Condition:
    name, equals, value = item.partition("=")
    if not equals:
        raise BadInput(f"where {item!r} is not of the form DIMENSION=VALUE, like outcome=dead")
    negated = name.endswith("!")
    dimension = parse_dimension(name.removesuffix("!"))
    if dimension.step_ms:
        raise BadInput(f"where {item!r}: times are chosen by --since and --until")
    values = tuple(part.strip() for part in value.split("|"))
    return Condition(dimension, values, negated)
