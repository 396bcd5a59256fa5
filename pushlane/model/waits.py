"""Where the wait of a push went: causes, their parts, and how a push carries them (docs/why.md).

A push's time from *submitted* to *dispatched* is cut into parts, each of one cause, which add up to
it. A push that is written again carries its parts so far, so the last receipt has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

MOST_CARRIED = 22
"""Bytes that a push carries; two more say how many they are."""


class Cause(StrEnum):
    """A reason why a push waited. The order is that of the wire: a new one goes to the end."""

    START = "start"
    """The start of its task."""

    DELAY = "delay"
    """The time that it was given itself, or room among those that wait for theirs."""

    QUIET = "quiet"
    """The end of its recipient's quiet hours."""

    FORMAT = "format"
    """A process that can read its lane: this one is too old."""

    PAUSED = "paused"
    """Its task was paused."""

    BREAKER = "breaker"
    """The sink rested, or was tried with less than all slots."""

    LIMIT = "limit"
    """A limit of its task, app or sink, or of all, had no room."""

    KEYS = "keys"
    """The push of the same key before it."""

    DURABLE = "durable"
    """Outcomes of other pushes were not durable yet."""

    FEED = "feed"
    """Nothing of its lane was at hand: the broker had not given it yet."""

    REGISTRY = "registry"
    """The registry was asked for its task."""

    SLOT = "slot"
    """A free slot: the sink's capacity, in turns of its own task."""

    POOL = "pool"
    """A free slot, in turns of its pool lane, which tasks share."""

    SHARE = "share"
    """The turns of others, by weights and quotas."""

    CLAIM = "claim"
    """Guards: the ledger, its recipient's limits, its address."""

    UNSEEN = "unseen"
    """No process that tells: none had its lane open, or the one that had it died."""

    TRIED = "tried"
    """Attempts before this one, from sending to the answer."""

    RETRY = "retry"
    """The backoff between attempts."""


MEANT = frozenset({Cause.START, Cause.DELAY, Cause.QUIET})
"""Waits that somebody asked for: before them a push was not due."""

_CAUSES = tuple(Cause)
_PLACES = {cause: place for place, cause in enumerate(_CAUSES)}
_REST = 0xFFFF
_DIGITS = 11  # bits of a number on the wire, behind five that shift it
_HEAD = 10


class Carried(NamedTuple):
    """The parts of a push up to when it was written again, in whole milliseconds.

    `put_down_ms` (Unix ms) is until when they tell, its backoff included; `attempt` is what it was
    written as, counted to 255.
    """

    parts: Mapping[Cause, int]
    put_down_ms: int
    attempt: int


def whole(parts: Mapping[Cause, float], total_ms: int) -> dict[Cause, int]:
    """Round parts to whole milliseconds that add up to `total_ms`; those of none are left out.

    What is lacking goes to those with the largest remainders, what is too much off the largest.
    """
    rounded = {cause: int(part) for cause, part in parts.items() if part > 0}
    if not rounded:
        return {Cause.UNSEEN: total_ms} if total_ms > 0 else {}
    left = total_ms - sum(rounded.values())
    if 0 < left <= len(rounded):
        by_rest = sorted(rounded, key=lambda cause: parts[cause] - rounded[cause], reverse=True)
        for cause in by_rest[:left]:
            rounded[cause] += 1
        left = 0
    for cause in sorted(rounded, key=rounded.__getitem__, reverse=True):
        taken = max(left, -rounded[cause])
        rounded[cause] += taken
        left -= taken
        if not left:
            break
    return {cause: part for cause, part in rounded.items() if part}


def pack(parts: Mapping[Cause, int], put_down_ms: int, attempt: int) -> bytes:
    """Return the bytes in which a push carries its parts, `MOST_CARRIED` at most.

    They are the attempt (1 byte), when it was put down (6), which causes there are (3, a bit each),
    and two bytes for each. A number keeps 11 bits, so it is right to 1 in 2,000; the largest is
    what the others leave of the whole, and has what is left out for want of room.
    """
    most = (MOST_CARRIED - _HEAD) // 2
    largest_first = sorted((one for one in parts.items() if one[1] > 0), key=lambda one: -one[1])
    kept = dict(largest_first[:most])
    bits = sum(1 << _PLACES[cause] for cause in kept)
    head = bytes([min(max(attempt, 0), 255)]) + put_down_ms.to_bytes(6, "big")
    numbers = [_number(kept[cause]) for cause in _CAUSES if cause in kept]
    if kept:
        rest = largest_first[0][0]
        numbers[[cause for cause in _CAUSES if cause in kept].index(rest)] = _REST
    body = b"".join(number.to_bytes(2, "big") for number in numbers)
    return head + bits.to_bytes(3, "big") + body


def unpack(carried: bytes, submitted_at_ms: int) -> Carried | None:
    """Return what a push carries; None when that is nothing, or cannot be read."""
    if len(carried) < _HEAD:
        return None
    put_down_ms = int.from_bytes(carried[1:7], "big")
    bits = int.from_bytes(carried[7:_HEAD], "big")
    causes = [cause for place, cause in enumerate(_CAUSES) if bits >> place & 1]
    if bits >> len(_CAUSES) or len(carried) != _HEAD + 2 * len(causes):
        return None
    parts: dict[Cause, int] = {}
    rest: Cause | None = None
    for place, cause in enumerate(causes):
        number = int.from_bytes(carried[_HEAD + 2 * place : _HEAD + 2 * place + 2], "big")
        if number == _REST:
            rest = cause
        else:
            parts[cause] = (number & (1 << _DIGITS) - 1) << (number >> _DIGITS)
    left = max(0, put_down_ms - submitted_at_ms) - sum(parts.values())
    if left < 0 or (left and rest is None):
        return None
    if rest is not None and left:
        parts[rest] = left
    return Carried(parts, put_down_ms, carried[0])


def _number(milliseconds: int) -> int:
    """Return a number in 16 bits, rounded down: never more than there is."""
    shift = max(0, milliseconds.bit_length() - _DIGITS)
    return min(shift << _DIGITS | milliseconds >> shift, _REST - 1)
