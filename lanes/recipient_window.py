"""Marks for pushes to the same recipient, by which duplicates and the newest push are found.

A mark never holds the recipient, only a hash of it. Tokens compare as texts.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from pushlane.lanes.push import Push

_BYTES = 16


class Mark(NamedTuple):
    """The hash of a recipient and a token.

    Pushes that belong together have the same `key`, in hex; `token` tells them apart, older ones
    first.
    """

    key: str
    token: str


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
