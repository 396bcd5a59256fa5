"""Small documents by kind and name, which all processes share, and the check of records to be kept.

What this process could not read back is never stored: every codec of a record that is kept for
others uses `checked` at its one place of encoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.util.errors import Unstorable

MOST_BYTES = 64 * 1024
LONGEST_NAME = 200
_KIND = re.compile(r"[a-z][a-z-]{0,39}")


class Document(NamedTuple):
    """A body that is kept under a name. Every put gives it another version."""

    name: str
    version: int
    body: bytes


class DocumentStore(Protocol):
    """Small documents, each under a kind and a name, and always put as a whole.

    A kind is a word of small letters and dashes, a name has 1 to 200 characters, a body 1 byte to
    64 KiB: all else raises BadInput. What is put is durable, and is kept until it is removed.
    """

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        """Put a document, if the version that is there is the expected one, in one atomic step.

        `expected` is None where there is to be no document yet. Returns the new version, or None
        when another version is there than the expected one.
        """

    async def get(self, kind: str, name: str) -> Document | None:
        """Return the document of this kind and name, None when there is none."""

    async def list(self, kind: str) -> list[Document]:
        """Return all documents of a kind, by name."""

    async def remove(self, kind: str, name: str, expected: int | None = None) -> bool:
        """Remove a document, in one atomic step. False when there was none.

        Where a version is expected, only that one is removed: False when another is there.
        """


def check_place(kind: str, name: str) -> None:
    """Raise BadInput for a kind or a name that cannot be used."""
    if not _KIND.fullmatch(kind):
        raise BadInput(
            f"{kind[:40]!r} is not a kind of document; use lower-case letters and dashes"
        )
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadInput(
            f"the name {name[:40]!r} of a {kind} cannot be used; take 1 to {LONGEST_NAME} "
            "printable characters"
        )


def check_body(kind: str, name: str, body: bytes) -> None:
    """Raise BadInput for a body that is empty or too large."""
    if not 0 < len(body) <= MOST_BYTES:
        raise BadInput(
            f"the {kind} {name!r} has {len(body):,} bytes, and may have from 1 to {MOST_BYTES:,}; "
            "make it smaller"
        )


_FAULTS = (TypeError, ValueError, OverflowError, RecursionError, PushlaneError)


def checked(what: str, encode: Callable[[], bytes], decode: Callable[[bytes], object]) -> bytes:
    """Return the encoded record. Raises Unstorable if it cannot be encoded, or not be read back."""
    try:
        body = encode()
        decode(body)
    except _FAULTS as error:
        raise Unstorable(what, place_of(error)) from error
    return body


def as_json(what: str, value: Any, kind: Any) -> bytes:
    """Return a value as JSON that is read again as of this kind. Raises Unstorable as above."""

    def decode(body: bytes) -> object:
        return msgspec.json.decode(body, type=kind)

    return checked(what, lambda: msgspec.json.encode(value), decode)


def place_of(error: BaseException) -> str:
    """Return which field a decoder could not read, as `quota`; empty when it did not say."""
    cause = error if isinstance(error, msgspec.DecodeError) else error.__cause__
    _, at, place = str(cause).rpartition(" - at `")
    if not at or not isinstance(cause, msgspec.DecodeError):
        return ""
    return place.rstrip("`").removeprefix("$").removeprefix(".")
