"""Remembers which push of a task goes before the next one of its key."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable

_BUCKETS = 1 << 20


class Predecessors:
    """Remembers the last seq of each key, for tasks that are sent in order.

    It takes 4 bytes a bucket: 4 MiB, unless fewer `buckets` are given, a power of two.

    It holds buckets, not keys, so that its size does not depend on how many keys there are. Keys
    of one bucket share a chain, which only means that their pushes wait for each other. The same
    rows give the same chains, so that a submit that is resumed makes the same bytes.
    """

    def __init__(self, buckets: int = _BUCKETS) -> None:
        self._buckets = buckets
        self._last = array("I")

    def of(self, key: str) -> int:
        """Return the last seq of this key so far, 0 when it has none."""
        return self._last[bucket_of(key) % self._buckets] if self._last else 0

    def add(self, key: str, seq: int) -> None:
        """Note the seq as the last one of this key."""
        self.note([(bucket_of(key), seq)])

    def note(self, latest: Iterable[tuple[int, int]]) -> None:
        """Note the last seqs of buckets; one that is known to be later stays."""
        for bucket, seq in latest:
            if not self._last:
                self._last = array("I", bytes(4 * self._buckets))
            place = bucket % self._buckets
            self._last[place] = max(self._last[place], seq)

    def copy(self) -> Predecessors:
        """Return another with the same seqs, which goes its own way."""
        twin = Predecessors(self._buckets)
        twin._last = self._last[:]
        return twin

    def pack(self) -> bytes:
        """Return all of it in few bytes."""
        return zlib.compress(self._last.tobytes(), 1)

    @staticmethod
    def unpack(packed: bytes, buckets: int = _BUCKETS) -> Predecessors:
        """Return what was packed. Raises ValueError for bytes that hold something else."""
        found = Predecessors(buckets)
        try:
            found._last.frombytes(zlib.decompress(packed))
        except zlib.error as error:
            raise ValueError("these bytes were not packed") from error
        if len(found._last) not in (0, buckets):
            raise ValueError(f"{len(found._last)} buckets instead of {buckets}")
        return found


def bucket_of(key: str) -> int:
    """Return the bucket of a key, in which others may be."""
    return zlib.crc32(key.encode()) % _BUCKETS
