"""The receipts port: a partitioned, durable log of outcomes, with one reader that commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class ReceiptWriter(Protocol):
    """The side of the log that dispatchers write to."""

    async def append(self, bodies: Sequence[bytes]) -> None:
        """Return once every body is durable. Raises Unreachable while the log is full.

        A call that failed may have appended all the same: a reader drops repeats by `batch_id`.
        """

    async def secret(self) -> bytes:
        """Return a random key that all writers of this log share, and nobody else has."""


class ReceiptReader(Protocol):
    """The side of the log that the pipeline reads.

    A position is a text that only the log itself understands; one is kept for each partition.
    """

    async def first(self) -> list[str]:
        """Return the position before the oldest body of each partition, of a new log too."""

    async def since(self, at_ms: int) -> list[str]:
        """Return positions from which everything appended since then (Unix ms) is read."""

    async def committed(self) -> list[str] | None:
        """Return the positions that were committed last; None before the first commit."""

    async def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        """Return positions behind `start`: at the end, or `most` bodies further in all.

        Raises:
            ReceiptsGone: what came next is not kept any more.
        """

    async def kept(self, positions: Sequence[str]) -> list[str]:
        """Return these positions, moved on to the oldest body kept where the next ones are gone.

        When there are not as many as partitions, the log was made anew, and these are the
        positions of its oldest bodies.
        """

    def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        """Yield the bodies between two positions, in order, in pages: the same ones every time.

        Raises:
            ReceiptsGone: some of them are not kept any more.
        """

    async def commit(self, positions: Sequence[str]) -> None:
        """Record that the one committing reader has taken over everything before these."""

    async def lag(self, positions: Sequence[str]) -> int:
        """Return how many of the bodies that are kept come after these positions."""


class ReceiptLog(ReceiptWriter, ReceiptReader, Protocol):
    """The durable log of receipts: bodies of `model.receipt`, in a fixed number of partitions.

    It keeps what is appended until it was committed and its retention is over, and takes no more
    when it is full.
    """

    async def close(self) -> None:
        """Close the files or connections of the log."""


def split_evenly(available: Sequence[int], most: int) -> list[int]:
    """Return how much to take of each partition, `most` in all, as evenly as possible.

    A partition that has little leaves its room to the others.
    """
    shares = [0] * len(available)
    left = most
    by_size = sorted(range(len(available)), key=lambda index: available[index])
    for position, index in enumerate(by_size):
        fair = -(-left // (len(by_size) - position))
        shares[index] = min(available[index], fair)
        left -= shares[index]
    return shares
