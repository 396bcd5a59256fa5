"""Keyed hashes of recipients, by which they are known again without being kept; of sinks' targets
too (`sink_target`), under a key of their own.

Whoever has the hashes but not the key cannot find out by trying whom a hash stands for.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Sequence

from pushlane.core.errors import TaskConflict
from pushlane.lanes.ports import DocumentStore

_KIND = "secret"
_RECIPIENTS = "recipients"
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


async def kept_hasher(documents: DocumentStore, of: str = _RECIPIENTS) -> Hasher:
    """Return the hasher for what is kept of recipients, or of something else.

    Its key is made once for all processes.
    """
    found = await documents.get(_KIND, of)
    if found is None:
        await documents.put(_KIND, of, secrets.token_bytes(_KEY_BYTES), None)
        found = await documents.get(_KIND, of)
    if found is None:
        raise TaskConflict(f"the key of the hashes of {of} was removed just now; try again")
    return Hasher(found.body)
