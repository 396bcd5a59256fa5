"""The push before each one of the same key, for tasks that are sent in order.

Deterministic, so that a submit that is resumed makes the same bytes. It holds no keys, and its size
does not depend on how many there are: keys that fall into one bucket share a chain, which only
means that they wait for each other.
"""

from __future__ import annotations

import zlib
from array import array

BUCKETS = 1 << 20


class Predecessors:
    """The last seq of each bucket of keys: 4 MiB, from the first key on."""

    def __init__(self) -> None:
        self._last = array("I")

    def of(self, key: str) -> int:
        """The seq before the next one of this key, 0 when that is the first."""
        return self._last[_bucket(key)] if self._last else 0

    def add(self, key: str, seq: int) -> None:
        if not self._last:
            self._last = array("I", bytes(4 * BUCKETS))
        self._last[_bucket(key)] = seq


def _bucket(key: str) -> int:
    return zlib.crc32(key.encode()) % BUCKETS
