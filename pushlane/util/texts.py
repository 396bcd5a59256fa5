"""Tracebacks that can be logged and sent on: names of errors and places in code.

The message of an error may quote a row, a push or a secret, and is left out. Messages of pushlane's
own errors never do, and stay.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from typing import NamedTuple

from pushlane.core.errors import PushlaneError

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_DEEPEST = 10
_MOST_PLACES = 3
_LONGEST = 100
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


class Raised(NamedTuple):
    """What some code raised, by names and places; its message stays behind.

    `kind` is the name of the error's type, and where it has a cause, of that: "SendError from
    KeyError". `places` are those of the code that is not a library's, innermost first, like
    "shop/push.py:12 in send".
    """

    kind: str
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the kind, and the innermost place when it is known."""
        return f"{self.kind} at {self.places[0]}" if self.places else self.kind

    @property
    def told(self) -> str:
        """Return the same with the places that it was called from."""
        callers = f", called from {', '.join(self.places[1:])}" if self.places[1:] else ""
        return f"{self}{callers}"


def raised(error: BaseException) -> Raised:
    """Return what is told of an error: of the innermost cause, the innermost places."""
    if isinstance(error, SyntaxError) and error.filename:
        return Raised(_kind(error), (f"{_file(error.filename)}:{error.lineno}",))
    cause = _cause(error)
    kind = _kind(error) if cause is error else f"{_kind(error)} from {_kind(cause)}"
    return Raised(kind, _places(cause) or _places(error))


def _cause(error: BaseException) -> BaseException:
    """Return the first error in a group, or what an error was raised from, as deep as that goes."""
    for _ in range(_DEEPEST):
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        if inner is None:
            break
        error = inner
    return error


def _kind(error: BaseException) -> str:
    return type(error).__name__[:_LONGEST]


def _places(error: BaseException) -> tuple[str, ...]:
    """Return the innermost places outside of libraries, or where all is in one, the innermost."""
    found = [
        (frame.f_code.co_filename, f"{line}{_function(frame.f_code.co_qualname)}")
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(("<", _OURS))
    ]
    own = [one for one in found if not _is_library(one[0])] or found[-1:]
    return tuple(f"{_file(name)}:{rest}" for name, rest in own[: -_MOST_PLACES - 1 : -1])


def _function(name: str) -> str:
    """Return the end of a place: nothing for the body of a module."""
    short = name.rpartition(".<locals>.")[2]
    return "" if short == "<module>" else f" in {short[:_LONGEST]}"


def _is_library(file: str) -> bool:
    return file.startswith(_STANDARD) or "site-packages" in file or "dist-packages" in file


def _file(name: str) -> str:
    """Return a file's path from the folder that Python imports it from."""
    folders = [folder for folder in map(str, sys.path) if _is_in(name, folder)]
    longest = max(folders, key=len, default="")
    path = os.path.relpath(name, longest) if longest else os.path.basename(name)
    return path[-_LONGEST:]


def _is_in(file: str, folder: str) -> bool:
    return bool(folder) and file.startswith(folder.rstrip(os.sep) + os.sep)
