"""A batch of encoded pushes."""

from __future__ import annotations

from typing import NamedTuple


class Batch(NamedTuple):
    """Bodies of consecutive seqs, the first of which is `first_seq`. Its borders never change."""

    first_seq: int
    bodies: list[bytes]

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.bodies) - 1

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(map(len, self.bodies))
