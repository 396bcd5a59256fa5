"""Words that stand for values on the command line: levels, states and delivery modes.

Read here rather than by typer, so that a wrong one is answered with the nearest right one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from lanes.errors import BadInput
from lanes.nearest import did_you_mean
from lanes.task import DeliveryMode, Level, OnUnknown, State

E = TypeVar("E", bound=StrEnum)


def parse_level(word: str) -> Level:
    """Raises BadInput for a word that is no level."""
    return _parse(Level, "level", word)


def parse_state(word: str) -> State:
    """Raises BadInput for a word that is no state."""
    return _parse(State, "state", word)


def parse_delivery(word: str) -> DeliveryMode:
    """Raises BadInput for a word that is no delivery mode."""
    return _parse(DeliveryMode, "delivery", word)


def parse_on_unknown(word: str) -> OnUnknown:
    """Raises BadInput for a word that says nothing of unknown pushes."""
    return _parse(OnUnknown, "on-unknown", word)


def _parse(kind: type[E], what: str, word: str) -> E:
    known = [member.value for member in kind]
    if word.lower() not in known:
        raise BadInput(
            f"unknown {what} {word!r}; use {', '.join(known)}{did_you_mean(word, known)}"
        )
    return kind(word.lower())
