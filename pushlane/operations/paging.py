"""Lists in pages: a cursor says behind which place of the list the next page begins.

A place is a text by which the list is ordered, and which an item keeps as long as it is there. So
whatever comes and goes between two pages, no item is shown twice, and none is left out that was
there all the time. A cursor goes on with the question that it was given for, and with no other.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.operations.operation import Operation
from pushlane.operations.session import Session

T = TypeVar("T")

Cursor = Annotated[
    str, Meta(max_length=2_000, description="Go on behind the page that ended with this.")
]
AtMost = Annotated[int, Meta(ge=0, description="At most so many; 0 for all.")]

_QUESTION_DIGITS = 12
_OF_PAGES = ("cursor", "limit", "after")
"""Fields that may be others in the next page of the same list."""


class _Place(NamedTuple):
    question: str
    place: str


def place_of(asked: Operation[Any]) -> str:
    """Return behind which place the page begins that is asked for; empty for the first.

    Raises BadInput for what is no cursor, or one of another question.
    """
    given: str = getattr(asked, "cursor", "")
    if not given:
        return ""
    try:
        padded = given + "=" * (-len(given) % 4)
        found = msgspec.json.decode(urlsafe_b64decode(padded), type=_Place)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise BadInput(
            "cursor is not one that a page has given; leave it out to start again"
        ) from error
    if found.question != _question(asked):
        raise BadInput(
            f"the cursor belongs to another list than this {asked.word()}: give the same fields "
            "as before, or leave it out to start again"
        )
    return found.place


def note_next(at: Session, asked: Operation[Any], place: str) -> None:
    """Note that the list goes on behind this place."""
    found = msgspec.json.encode(_Place(_question(asked), place))
    at.beside.next = urlsafe_b64encode(found).decode().rstrip("=")


def cut(
    at: Session, asked: Operation[Any], found: Sequence[T], place: Callable[[T], str]
) -> Sequence[T]:
    """Return as many of what was found as are asked for, and note where the rest begins."""
    limit: int = getattr(asked, "limit", 0)
    if not limit or len(found) <= limit:
        return found
    note_next(at, asked, place(found[limit - 1]))
    return found[:limit]


def page(
    at: Session,
    asked: Operation[Any],
    whole: Sequence[T],
    place: Callable[[T], str],
    *,
    is_descending: bool = False,
) -> Sequence[T]:
    """Return the page of a whole list that is asked for, and note where the next one begins.

    The list is in the order of its places, which are all different.
    """
    start = place_of(asked)
    if start:
        whole = [
            one for one in whole if (place(one) < start if is_descending else place(one) > start)
        ]
    return cut(at, asked, whole, place)


def _question(asked: Operation[Any]) -> str:
    """Return what tells a question from others; a field that a later version adds alters none."""
    fields = [one for one in msgspec.structs.fields(asked) if one.name not in _OF_PAGES]
    values = {one.name: getattr(asked, one.name) for one in fields}
    given = {one.name: values[one.name] for one in fields if values[one.name] != one.default}
    encoded = msgspec.json.encode([asked.word(), given], order="sorted")
    return sha256(encoded).hexdigest()[:_QUESTION_DIGITS]
