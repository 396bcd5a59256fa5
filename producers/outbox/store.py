"""The port for batches that are kept until they are sent, and its adapter in memory.

The other adapter is `producers.outbox.spool`. Calls come from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

READ_BYTES = 4 * 1024 * 1024


class Batch(NamedTuple):
    """The bodies of consecutive seqs from `first_seq` on. Its borders never change."""

    first_seq: int
    bodies: list[bytes]

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.bodies) - 1

    @property
    def size(self) -> int:
        """The bytes of its bodies."""
        return sum(map(len, self.bodies))


class BatchStore(Protocol):
    """Keeps batches in order, each of them whole, until they are acked.

    `next_seq` is that of the next batch. `published` counts the pushes that were ever acked,
    `acked_seq` is the last of them. `holds_room` says whether what it holds is still in memory.
    """

    next_seq: int
    acked_seq: int
    published: int
    holds_room: bool

    def append(self, batches: Sequence[Batch], most_bytes: int) -> int:
        """Keep the batches; return how many fitted. Raises OSError when the disk fails."""

    def next(self) -> list[Batch]:
        """Return the first batches not acked, about 4 MiB; the same ones until they are acked.

        All of them are durable, as far as the store can make them so.
        """

    def ack(self, batch: Batch) -> None:
        """Forget the first batch, which is on its lane."""

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
        """Do nothing, since memory cannot be made durable."""

    def close(self) -> None:
        """Do nothing, since there is nothing to release."""


def first_bytes(batches: deque[Batch]) -> list[Batch]:
    """Return the first batches, up to about READ_BYTES."""
    some: list[Batch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.size
        if size >= READ_BYTES:
            break
    return some
