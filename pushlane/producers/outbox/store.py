"""The port for batches that are kept until they are sent, and its adapter in memory.

The other adapter is `producers.outbox.spool`. Calls come from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from pushlane.core.task import Task

READ_BYTES = 4 * 1024 * 1024


class Added(StrEnum):
    """Whether the task of a store was added to the registry. An earlier version did not note it."""

    UNKNOWN = ""
    NO = "no"
    BEGUN = "begun"
    YES = "yes"


class Header(msgspec.Struct, frozen=True):
    """The description of what a store keeps: the task as it was made, and its batch size.

    `is_sealed` says that nothing more comes: once all is sent the task is sealed. `collapses` says
    that pushes may replace others that wait. `added` says whether the registry has got the task.
    `format` is of what a spool's folder holds.
    """

    task: Task
    batch: int
    is_sealed: bool = False
    collapses: bool = False
    added: Added = Added.UNKNOWN
    format: int = 1


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
    """Keeps the batches of one task in order, each of them whole, until they are acked.

    `holder` is who feeds the task: the same one again after a restart; None for this process
    alone. `next_seq` is that of the next batch. `published` counts the pushes that were ever
    acked, `acked_seq` is the last of them. `holds_room` says whether what it holds is still in
    memory.
    """

    header: Header
    holder: str | None
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

    def seal(self) -> None:
        """Note that nothing more comes, durably as far as the store can."""

    def note_added(self, added: Added) -> None:
        """Note how far the task is added to the registry, durably as far as the store can."""


class MemoryStore(BatchStore):
    """Keeps batches as long as the process lives. Its bound is the buffer's."""

    holder = None
    holds_room = True

    def __init__(self, header: Header) -> None:
        self.header = header
        self.next_seq = 1
        self.acked_seq = 0
        self.published = 0
        self._batches: deque[Batch] = deque()

    def append(self, batches: Sequence[Batch], most_bytes: int) -> int:
        self._batches.extend(batches)
        self.next_seq = batches[-1].last_seq + 1
        return len(batches)

    def next(self) -> list[Batch]:
        some: list[Batch] = []
        size = 0
        for batch in self._batches:
            some.append(batch)
            size += batch.size
            if size >= READ_BYTES:
                break
        return some

    def ack(self, batch: Batch) -> None:
        self._batches.popleft()
        self.acked_seq = batch.last_seq
        self.published += len(batch.bodies)

    def sync(self) -> None:
        """Do nothing, since memory cannot be made durable."""

    def seal(self) -> None:
        self.header = replace(self.header, is_sealed=True)

    def note_added(self, added: Added) -> None:
        self.header = replace(self.header, added=added)
