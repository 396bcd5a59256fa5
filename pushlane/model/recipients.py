"""Marks for pushes to the same recipient, by which duplicates and the newest push are found.

A mark never holds the recipient, only a hash of it. Tokens compare as texts. Here is also what a
store is told of a frequency cap, which counts pushes with the same key on a day.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from pushlane.core.push import Push
from pushlane.core.task import Level

NO_CAP = 2**31 - 1

_BYTES = 16
_DAY_MS = 86_400_000
_OVER_AFTER_MS = 36 * 3_600_000
"""From the beginning of a date in UTC until it has ended everywhere, at UTC-12."""


class Mark(NamedTuple):
    """The hash of a recipient and a token.

    Pushes that belong together have the same `key`, in hex; `token` tells them apart, older ones
    first.
    """

    key: str
    token: str


class Cap(NamedTuple):
    """At most so many pushes of one level, and of all levels, to a recipient in a day."""

    of_level: int = NO_CAP
    in_all: int = NO_CAP


class CapDay(NamedTuple):
    """A cap, with the level it is asked for and the day, in days since 1970."""

    day: int
    level: Level
    cap: Cap

    @property
    def over_at_ms(self) -> int:
        """The Unix time in milliseconds at which the date has ended in every zone."""
        return self.day * _DAY_MS + _OVER_AFTER_MS


def dedupe_mark(push: Push) -> Mark:
    """Return the mark by which a task's pushes for one recipient are told as duplicates."""
    return Mark(_hashed("dedupe", push.task_id, push.recipient), f"{push.seq:010d}")


def collapse_mark(app: str, push: Push) -> Mark:
    """Return the mark that finds an app's newest push with this collapse key for this recipient.

    Of two tasks the one submitted last is the newer, of two rows of a task the later one.
    """
    token = f"{push.submitted_at_ms:013d}-{push.task_id}-{push.seq:010d}"
    return Mark(_hashed("collapse", app, push.collapse, push.recipient), token)


def _hashed(*parts: str) -> str:
    digest = blake2b(digest_size=_BYTES)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()
