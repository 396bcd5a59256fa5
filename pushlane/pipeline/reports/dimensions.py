"""The dimensions of a report, to break it down by or filter on: fixed words and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pushlane.core.errors import BadInput
from pushlane.lanes.suggestions import did_you_mean

MOST_DIMENSIONS = 8
ATTRIBUTE = "attribute"
LABELS = ("level", "outcome", "sink", "app", "reason", "task")
TIMES_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
WORDS = (*LABELS, *TIMES_MS, f"{ATTRIBUTE}:NAME")
_ATTRIBUTE_NAME = re.compile(r"\S{1,64}")


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
    raise BadInput(
        f"there is no dimension {text.strip()!r}; use {', '.join(WORDS)}{did_you_mean(text, WORDS)}"
    )


def parse_by(text: str) -> tuple[Dimension, ...]:
    """Return the dimensions in a text like `level,attribute:region`; a repeated one counts once.

    Raises:
        BadInput: one is not known, or there are too many.
    """
    words = [word for word in text.split(",") if word.strip()]
    dimensions = tuple(dict.fromkeys(map(parse_dimension, words)))
    if len(dimensions) > MOST_DIMENSIONS:
        raise BadInput(
            f"{len(dimensions)} dimensions are too many: a report takes up to {MOST_DIMENSIONS}"
        )
    return dimensions


def attributes_of(dimensions: Sequence[Dimension]) -> tuple[str, ...]:
    """Return the names of the attributes among these dimensions, each once."""
    return tuple(dict.fromkeys(d.attribute for d in dimensions if d.attribute))
