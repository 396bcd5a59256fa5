"""Guesses which known word a mistyped one was meant to be. Used in messages only."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pushlane.core.errors import UnknownTask


def unknown_task(wanted: str, known: Iterable[str]) -> UnknownTask:
    """Make the error for an id, key or name that no task has."""
    return UnknownTask(
        f"there is no task {wanted!r}{did_you_mean(wanted, known)} "
        "(`pushlane tasks --all` lists them)"
    )


def ambiguous_task(name: str, ids: Iterable[str]) -> UnknownTask:
    """Make the error for a name that several tasks have."""
    some = ", ".join(ids)
    return UnknownTask(f"several tasks are named {name!r}; say which by its id, like {some}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest known word, an empty text when none is near."""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the nearest known word, None when none is near."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1)), None)
