"""A batch of encoded pushes, and which batches one publish may carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def publishes(batches: Sequence[Batch], batch_size: int) -> Iterator[list[Batch]]:
    """The batches in groups, each for one publish.

    A broker's own batches end at every seq that is a multiple of `batch_size`. So what follows a
    batch that ends there may go in the same publish: its borders stay the same at a repeat.
    """
    group: list[Batch] = []
    for batch in batches:
        if group and not _joins(group[-1], batch, batch_size):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _joins(before: Batch, batch: Batch, batch_size: int) -> bool:
    follows = batch.first_seq == before.last_seq + 1
    return follows and before.last_seq % batch_size == 0
