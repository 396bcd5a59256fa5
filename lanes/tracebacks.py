"""Tracebacks that can be logged and sent on: names of errors and places in code.

The message of an error may quote a row, a push or a secret, and is left out. Messages of pushlane's
own errors never do, and stay.
"""

from __future__ import annotations

import traceback

from pushlane.lanes.errors import PushlaneError

_LEFT_OUT = "(its text is left out: it may hold personal data)"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, and before it those of the errors that led to it."""
    return "\n".join(_blocks(error, set()))


def _blocks(error: BaseException, seen: set[int]) -> list[str]:
    seen.add(id(error))
    context = None if error.__suppress_context__ else error.__context__
    before = error.__cause__ or context
    inner = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
    blocks = [
        block
        for one in (before, *inner)
        if one is not None and id(one) not in seen
        for block in _blocks(one, seen)
    ]
    text = f": {error}" if isinstance(error, PushlaneError) else f" {_LEFT_OUT}"
    places = "".join(traceback.format_tb(error.__traceback__))
    return [*blocks, f"Traceback (most recent call last):\n{places}{type(error).__name__}{text}"]
