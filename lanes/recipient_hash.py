"""Keyed hashes of recipients, by which they are known again without being kept.

Whoever has the hashes but not the key cannot find out by trying whom a hash stands for.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Sequence

from pushlane.lanes.errors import TaskConflict
from pushlane.lanes.ports import DocumentStore

_KIND, _NAME = "secret", "recipients"
_KEY_BYTES = 32


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
        digests: list[bytes] = []
        add = digests.append
        for recipient in recipients:
            state = copy()
            state.update(recipient.encode())
            add(state.digest())
        return array("q", b"".join(digests)).tolist()

    def digest(self, value: bytes) -> bytes:
        """Return the eight bytes of one hash."""
        state = self._start.copy()
        state.update(value)
        return state.digest()


async def kept_hasher(documents: DocumentStore) -> Hasher:
    """Return the hasher for what is kept of recipients; its key is made once for all processes."""
    await documents.put(_KIND, _NAME, secrets.token_bytes(_KEY_BYTES), None)
    found = await documents.get(_KIND, _NAME)
    if found is None:
        raise TaskConflict("the key of the hashes of recipients was removed just now; try again")
    return Hasher(found.body)
