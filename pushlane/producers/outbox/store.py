"""The port for batches that are kept until they are sent, its adapter in memory, and their bounds.

The other adapter is `producers.outbox.spool`. Calls come from one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from pushlane.core.push import MAX_PUSH_BYTES
from pushlane.core.task import Task
from pushlane.producers.predecessors import Predecessors
from pushlane.util.conversion import seconds, whole

_MIB = 1024 * 1024
MAX_SPOOL_BYTES = 1024 * _MIB


@dataclass(frozen=True)
class ProducerOptions:
    """The bounds of a producer, with their defaults.

    A batch is sent when it has `max_batch` pushes (the settings' `batch` unless given) or
    `max_batch_bytes`, or `linger_s` after its first push. Unless `linger_s` is given, it waits
    50 ms at most, and not at all while nothing is on its way, but for 5 ms between batches that are
    not full. `push` waits for room in the buffer for at most `max_block_s`; 0 is never. A spool is
    synced to its disk at least every `fsync_every_s`, and before anything of it is sent; its files
    take at most `max_spool_bytes`. A time may be a timedelta or a text like `2h`, too. Raises
    BadInput for a bound that cannot be.
    """

    max_batch: int | None = None
    max_batch_bytes: int = _MIB // 2
    linger_s: float | None = None
    max_block_s: float = 1.0
    max_buffer_bytes: int = 32 * _MIB
    max_spool_bytes: int = MAX_SPOOL_BYTES
    fsync_every_s: float = 1.0

    def __post_init__(self) -> None:
        most = {"max_batch": 10_000, "max_batch_bytes": 4 * _MIB, "linger_s": 60}
        least = {"max_batch": 1, "max_batch_bytes": 1, "max_buffer_bytes": MAX_PUSH_BYTES}
        for name, value in list(vars(self).items()):
            if value is None and name in ("max_batch", "linger_s"):
                continue
            if name == "max_spool_bytes":
                least[name] = 4 * (self.max_batch_bytes + MAX_PUSH_BYTES)
            convert = seconds if name.endswith("_s") else whole
            kept = convert(name, value, least.get(name, 0), most.get(name), of=" of a producer")
            object.__setattr__(self, name, kept)


READ_BYTES = 4 * 1024 * 1024


class Added(StrEnum):
    """Whether the task of a store was added to the registry. An earlier version did not note it."""

    UNKNOWN = ""
    NO = "no"
    BEGUN = "begun"
    YES = "yes"


IN_ORDER = 2


class Header(msgspec.Struct, frozen=True):
    """The description of what a store keeps: the task as it was made, and its batch size.

    `is_sealed` says that nothing more comes: once all is sent the task is sealed. `collapses` says
    that pushes may replace others that wait. `added` says whether the registry has got the task.
    `format` is of what a spool's folder holds: 1, or IN_ORDER when the last seqs of keys are kept.
    """

    task: Task
    batch: int
    is_sealed: bool = False
    collapses: bool = False
    added: Added = Added.UNKNOWN
    format: int = 1


class Batch(NamedTuple):
    """The bodies of consecutive seqs from `first_seq` on. Its borders never change.

    `latest` has the last seqs of those that are sent in order, by the bucket of their key.
    """

    first_seq: int
    bodies: list[bytes]
    latest: tuple[tuple[int, int], ...] = ()

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
    memory. `predecessors` has the last seqs of keys in all that was ever kept.
    """

    header: Header
    holder: str | None
    next_seq: int
    acked_seq: int
    published: int
    holds_room: bool
    predecessors: Predecessors

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

    def note_collapses(self) -> None:
        """Note that pushes may replace others, durably as far as the store can."""


class MemoryStore(BatchStore):
    """Keeps batches as long as the process lives. Its bound is the buffer's."""

    holder = None
    holds_room = True

    def __init__(self, header: Header) -> None:
        self.header = header
        self.next_seq = 1
        self.acked_seq = 0
        self.published = 0
        self.predecessors = Predecessors()
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

    def note_collapses(self) -> None:
        self.header = replace(self.header, collapses=True)
