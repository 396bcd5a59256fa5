"""Reads what lies on the lanes of dead pushes: the pushes, and marks that some go on elsewhere.

Reading raises UnknownFormat for bytes of a format that came later, MalformedPush for all others.
"""

from __future__ import annotations

import msgspec

from pushlane.core.errors import MalformedPush
from pushlane.core.push import UNREADABLE, DeadPush, require_known

_OTHERS_FORMAT = 1  # of dead pushes and of marks


class RetryMark(msgspec.Struct, frozen=True, array_like=True):
    """The note that these dead pushes of a task, as (seq, died_at_ms), go on in another task.

    It holds once that other task is sealed: then they only remain to be removed.
    """

    task_id: str
    retried_as: str
    pushes: list[tuple[int, int]]


_mark_decoder = msgspec.msgpack.Decoder(RetryMark)
_dead_decoder = msgspec.msgpack.Decoder(DeadPush)


def encode_mark(mark: RetryMark) -> bytes:
    return msgspec.msgpack.encode(mark)


def decode_mark(body: bytes) -> RetryMark:
    """Return the mark in these bytes."""
    try:
        return _mark_decoder.decode(body)
    except UNREADABLE as error:
        require_known(body, _OTHERS_FORMAT, "a mark on the lane of retries")
        raise MalformedPush(f"{len(body)} bytes on the lane of retries are not a mark") from error


def decode_dead(body: bytes) -> DeadPush:
    """Return the dead push in these bytes."""
    try:
        return _dead_decoder.decode(body)
    except UNREADABLE as error:
        require_known(body, _OTHERS_FORMAT, "a dead push")
        raise MalformedPush(f"{len(body)} bytes on the dead-letter lane are not a push") from error
