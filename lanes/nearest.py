"""Says which known word a mistyped one was probably meant to be. Used in messages only."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, an empty text when none is near."""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest known word, None when none is near."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1)), None)
