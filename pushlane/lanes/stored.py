"""Checks a record before it is written: what this process could not read back is never stored.

Every codec of a record that is kept for others uses this at its one place of encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pushlane.core.errors import PushlaneError, Unstorable

_FAULTS = (TypeError, ValueError, OverflowError, RecursionError, PushlaneError)


def checked(what: str, encode: Callable[[], bytes], decode: Callable[[bytes], object]) -> bytes:
    """Return the encoded record, which can be read back.

    Raises:
        Unstorable: it cannot be encoded, or not be read again.
    """
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
