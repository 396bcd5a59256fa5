"""Where batches are kept until they are sent: the port, and its adapter in memory.

The other adapter is `producers.outbox.spool`. Calls come from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

READ_BYTES = 4 * 1024 * 1024


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


class BatchStore(Protocol):
    """Batches in order, each whole, until they are acked.

    `next_seq` is that of the next batch. `published` counts the pushes that were ever acked,
    `acked_seq` is the last of them. `holds_room` says whether what it holds is still in memory.
    """

    next_seq: int
    acked_seq: int
    published: int
    holds_room: bool

    def append(self, batches: Sequence[Batch], most_bytes: int) -> int:
        """Keep them; how many fitted. Raises OSError when the disk does not take them."""

    def next(self) -> list[Batch]:
        """The first that are not acked, some 4 MiB of them; the same ones until they are acked.

        All of them are durable, as far as the store can make them so.
        """

    def ack(self, batch: Batch) -> None:
        """The first batch is on its lane: it need not be kept."""

    def sync(self) -> None:
        """Make durable what is kept."""

    def close(self) -> None: ...


class MemoryStore(BatchStore):
    """Keeps batches as long as the process lives. Its bound is the buffer's."""

    holds_room = True

    def __init__(self) -> None:
        self.next_seq = 1
        self.acked_seq = 0
        self.published = 0
        self._batches: deque[Batch] = deque()

    def append(self, batches: Sequence[Batch], most_bytes: int) -> int:
        self._batches.extend(batches)
        self.next_seq = batches[-1].last_seq + 1
        return len(batches)

    def next(self) -> list[Batch]:
        return first_bytes(self._batches)

    def ack(self, batch: Batch) -> None:
        self._batches.popleft()
        self.acked_seq = batch.last_seq
        self.published += len(batch.bodies)

    def sync(self) -> None:
        """There is nothing that could be."""

    def close(self) -> None:
        """There is nothing to let go of."""


def first_bytes(batches: deque[Batch]) -> list[Batch]:
    """The first batches, up to about READ_BYTES."""
    some: list[Batch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.size
        if size >= READ_BYTES:
            break
    return some
