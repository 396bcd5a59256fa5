"""What a receipt shows of a recipient: a few characters to recognise it by, and a keyed hash.

Whoever has the receipts but not the key cannot find out by trying whom a hash stands for.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

_LONG = 12
_SHORT = 6
_REST = "…"


def masked(recipients: Sequence[str]) -> list[str]:
    """Of each its first and last characters: two at most, and in all no more than a third."""
    return [
        recipient[:2] + _REST + recipient[-2:] if len(recipient) >= _LONG else _short(recipient)
        for recipient in recipients
    ]


def _short(recipient: str) -> str:
    return recipient[0] + _REST + recipient[-1] if len(recipient) >= _SHORT else _REST


class Hasher:
    """64-bit hashes (signed, as Parquet has them) under one key.

    The key goes first, which makes a MAC of BLAKE2 (RFC 7693, 2.9, says why it needs no HMAC), and
    not as BLAKE2's own parameter: that costs every hash a second block.
    """

    def __init__(self, key: bytes) -> None:
        secret = hashlib.blake2b(key, digest_size=32).digest()
        self._start = hashlib.blake2b(secret, digest_size=8)

    def hashes(self, recipients: Sequence[str]) -> list[int]:
        copy = self._start.copy
        digests = []
        for recipient in recipients:
            state = copy()
            state.update(recipient.encode())
            digests.append(state.digest())
        return array("q", b"".join(digests)).tolist()
