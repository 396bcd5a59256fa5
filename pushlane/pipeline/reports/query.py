"""One question to the store: which period, which receipts, broken down by what."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pushlane.core.errors import BadInput
from pushlane.core.push import Kind
from pushlane.core.task import Level
from pushlane.model.receipt import Event
from pushlane.util.texts import did_you_mean

MOST_DIMENSIONS = 8
ATTRIBUTE = "attribute"
LABELS = ("level", "outcome", "sink", "app", "reason", "task")
TIMES_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
WORDS = (*LABELS, *TIMES_MS, f"{ATTRIBUTE}:NAME")
_ATTRIBUTE_NAME = re.compile(r"\S{1,64}")
_VALUES: Mapping[str, Sequence[str]] = {
    "level": [one.value for one in Level],
    "outcome": [one.value for one in (*Kind, *Event)],
}


@dataclass(frozen=True)
class Dimension:
    """A dimension is one of `LABELS` or `TIMES_MS`, or a push's attribute with its name."""

    word: str
    attribute: str = ""

    @property
    def heading(self) -> str:
        return f"{self.word}:{self.attribute}" if self.attribute else self.word

    @property
    def step_ms(self) -> int:
        """Return the length of a step of time; 0 if the dimension is no time."""
        return TIMES_MS.get(self.word, 0)


def parse_dimension(text: str) -> Dimension:
    """Return the dimension of this name; raises BadInput if there is none."""
    word, _, name = text.strip().partition(":")
    word = word.lower()
    if word == ATTRIBUTE and _ATTRIBUTE_NAME.fullmatch(name):
        return Dimension(ATTRIBUTE, name)
    if word in (*LABELS, *TIMES_MS) and not name:
        return Dimension(word)
    known = f"{', '.join(WORDS)}{did_you_mean(text, WORDS)}"
    raise BadInput(f"there is no dimension {text.strip()!r}; use {known}")


def parse_by(text: str) -> tuple[Dimension, ...]:
    """Return the dimensions in a text like `level,attribute:region`; a repeated one counts once.

    Raises BadInput if one is not known, or there are too many.
    """
    words = [word for word in text.split(",") if word.strip()]
    dimensions = tuple(dict.fromkeys(map(parse_dimension, words)))
    if (count := len(dimensions)) > MOST_DIMENSIONS:
        raise BadInput(f"{count} dimensions are too many: a report takes up to {MOST_DIMENSIONS}")
    return dimensions


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
    Raises BadInput if one cannot be read, or names no dimension or one of time.
    """
    found = tuple(_condition(item) for text in texts for item in _items(text))
    if (count := len(found)) > _MOST_CONDITIONS:
        raise BadInput(f"{count} conditions are too many: a report takes up to {_MOST_CONDITIONS}")
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
    known = _VALUES.get(dimension.word, ())
    for one in values if known else ():
        if one and one not in known:
            use = f"use {', '.join(known)}{did_you_mean(one, known)}"
            raise BadInput(f"where {item!r}: there is no {dimension.word} {one!r}; {use}")
    return Condition(dimension, values, negated)


_MINUTE_MS = 60_000


@dataclass(frozen=True)
class Period:
    """A period from the start of a minute up to that of another; counts are kept by minute."""

    since_ms: int
    until_ms: int

    @staticmethod
    def of(since_ms: int, until_ms: int) -> Period:
        """Return the period of all minutes that these times touch.

        Raises BadInput if it ends before it starts.
        """
        if until_ms <= since_ms:
            raise BadInput("the period ends before it starts: give an --until after --since")
        return Period(since_ms // _MINUTE_MS * _MINUTE_MS, -(-until_ms // _MINUTE_MS) * _MINUTE_MS)

    @property
    def length_ms(self) -> int:
        return self.until_ms - self.since_ms


@dataclass(frozen=True)
class Query:
    """A question; with an empty `by` its answer is one row, and every condition must hold."""

    period: Period
    by: tuple[Dimension, ...] = ()
    where: tuple[Condition, ...] = ()

    @property
    def used(self) -> tuple[Dimension, ...]:
        """Return the dimensions of its breakdown and its conditions."""
        return (*self.by, *(condition.dimension for condition in self.where))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the names of the attributes among these, each once."""
        return tuple(dict.fromkeys(each.attribute for each in self.used if each.attribute))

    @property
    def asks_reason(self) -> bool:
        return any(dimension.word == "reason" for dimension in self.used)

    @property
    def finest_ms(self) -> int:
        """Return the shortest step of time in its breakdown, or else the length of the period."""
        return min((d.step_ms for d in self.by if d.step_ms), default=self.period.length_ms)

    def filtered(self, *more: Condition) -> Query:
        """Return the query with these conditions in addition."""
        return Query(self.period, self.by, (*self.where, *more))

    def broken_down_by(self, *by: Dimension) -> Query:
        """Return the query with these dimensions instead of its own."""
        return Query(self.period, by, self.where)


def utc_text(at_ms: int) -> str:
    """Return the time in UTC to the minute, as reports show it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
