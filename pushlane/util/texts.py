"""Texts for people: without secrets, with a guess at what was meant, once, and in pages.

The message of an error may quote a row, a push or a secret, so a traceback has names and places
alone. Messages of pushlane's own errors never do, and stay.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from pushlane.core.errors import BadInput, PushlaneError, UnknownFormat
from pushlane.core.task import State, Task
from pushlane.util.errors import UnknownTask

_UNITS_S = {"s": 1, "min": 60, "h": 3_600, "day": 86_400}
_ROUNDING = 1e-9


def clock(at_ms: int) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Secret:
    """A text that no log, error or repr shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)


def unknown_task(wanted: str, known: Iterable[str]) -> UnknownTask:
    """Make the error for an id, key or name that no task has."""
    if wanted.startswith(("sink/", "app/")):
        return UnknownTask(
            f"{wanted!r} is not a task: give a task's id, key or name; `pushlane why` alone says "
            "how sinks stand, and `pushlane limits` what limits they and apps have"
        )
    return UnknownTask(
        f"there is no task {wanted!r}{did_you_mean(wanted, known)} "
        "(`pushlane tasks --all` lists them)"
    )


MOST_NAMED = 5
"""The most tasks that an error lists."""


def ambiguous_task(name: str, found: Sequence[Task | str]) -> UnknownTask:
    """Make the error for a name that several tasks have; of one that cannot be read, its id.

    `found` are the newest, at least one more than are listed where there are so many.
    """
    shown = ", ".join(map(_told_apart, found[:MOST_NAMED]))
    more = ", and older ones" if len(found) > MOST_NAMED else ""
    return UnknownTask(
        f"several tasks are named {name!r}; say which by its id: {shown}{more} "
        f"(`pushlane tasks --all --find {shlex.quote(name)}` lists them)",
        several=True,
    )


def _told_apart(task: Task | str) -> str:
    if isinstance(task, str):
        return task
    state = "" if task.state is State.SUBMITTED else f"{task.state}, "
    return f"{task.id} ({task.level}, {state}submitted {clock(task.created_at_ms)})"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest known word, an empty text when none is near."""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near else ""


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the nearest known word, None when none is near: `least` is from 0 to 1, the same."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=least)
    return next(iter(found), None)


MASK = "***"
_TOKEN = re.compile(r"^(?=.*[0-9A-Z]).{16,}$")


def masked(text: str) -> str:
    """Return the text without the passwords and query values of URLs in it."""
    text = re.sub(r"://([^/@:\s]*):(?!\d+/)[^\s]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://([^/@:]*):[^/]*@", rf"://\1:{MASK}@", text)
    text = re.sub(r"://[^/@:]+@", f"://{MASK}@", text)
    return re.sub(r"([?&][^=&\s]+=)[^&\s]+", rf"\1{MASK}", text)


def shown_url(url: str) -> str:
    """Return a URL without its user and password, its query, and the parts of its path that may be
    tokens: of 16 characters or more, with a digit or a capital letter.
    """
    scheme, separator, rest = masked(re.split(r"[?#]", url)[0]).partition("://")
    host, *path = rest.split("/")
    host = f"{MASK}@{host.rpartition('@')[2]}" if "@" in host else host
    return scheme + separator + "/".join([host, *(re.sub(_TOKEN, MASK, part) for part in path)])


def each_host(url: str) -> list[str]:
    """Return a URL for each host of one that names several with commas, with or without schemes."""
    scheme, separator, hosts = url.partition("://")
    return [
        (host if "://" in host else scheme + separator + host).strip().rstrip("/")
        for host in hosts.split(",")
    ]


def require_http_url(url: str, refusal: str) -> None:
    """Raise BadInput with this text unless it is an HTTP URL. The text must not show the URL, which
    may hold a token.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(refusal)


class Once:
    """Remembers the names it has logged, for as long as the process lives."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: set[str] = set()

    def tell(self, name: str, error: UnknownFormat) -> None:
        if name not in self._told:
            self._told.add(name)
            self._log.warning("%s", error, extra={"action": "format_unknown"})


T = TypeVar("T")


def paged(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield so many items at a time, fewer at the end."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = re.compile("site-packages|dist-packages")
_LONGEST = 100
_DEEPEST = 10
_MOST_PLACES = 3


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
    left_out = " (its text is left out: it may hold personal data)"
    text = f": {error}" if isinstance(error, PushlaneError) else left_out
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
    kind, cause = type(error).__name__[:_LONGEST], _cause(error)
    if isinstance(error, SyntaxError) and error.filename:
        return Raised(kind, (f"{_file(error.filename)}:{error.lineno}",))
    if cause is not error:
        kind = f"{kind} from {type(cause).__name__[:_LONGEST]}"
    return Raised(kind, _places(cause) or _places(error))


def _cause(error: BaseException) -> BaseException:
    """Return the first error in a group, or what an error was raised from, as deep as that goes."""
    for _ in range(_DEEPEST):
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        if inner is None:
            break
        error = inner
    return error


def _places(error: BaseException) -> tuple[str, ...]:
    """Return the innermost places outside of libraries, or where all is in one, the innermost."""
    found = [
        (frame.f_code.co_filename, f"{line}{_function(frame.f_code.co_qualname)}")
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(("<", _OURS))
    ]
    own = [
        one for one in found if not one[0].startswith(_STANDARD) and not _PACKAGES.search(one[0])
    ]
    own = own or found[-1:]
    return tuple(f"{_file(name)}:{rest}" for name, rest in own[::-1][:_MOST_PLACES])


def _function(name: str) -> str:
    """Return the end of a place: nothing for the body of a module."""
    short = name.rpartition(".<locals>.")[2]
    return "" if short == "<module>" else f" in {short[:_LONGEST]}"


def _file(name: str) -> str:
    """Return a file's path from the folder that Python imports it from."""
    folders = [
        folder
        for folder in map(str, sys.path)
        if folder and name.startswith(folder.rstrip(os.sep) + os.sep)
    ]
    longest = max(folders, key=len, default="")
    path = os.path.relpath(name, longest) if longest else os.path.basename(name)
    return path[-_LONGEST:]


def rate_text(per_s: float) -> str:
    """Return a rate in the unit in which it is shortest, of those in which it is 1 or more."""
    amounts = {unit: per_s * unit_s for unit, unit_s in _UNITS_S.items()}
    whole = [(unit, amount) for unit, amount in amounts.items() if amount > 1 - _ROUNDING]
    texts = [f"{amount:,.8g}/{unit}" for unit, amount in whole or [("day", amounts["day"])]]
    return min(texts, key=len)
