"""Holds a producer's accepted pushes in memory, numbers and counts them, and cuts batches.

Any thread may put; one cuts. A put waits for room as long as it was told, and never for a disk or
a network. Unless it was told how long to linger, a push that comes alone is cut at once: see
`_due_at_s`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pushlane.core.errors import PushlaneError
from pushlane.core.push import MAX_SEQ
from pushlane.producers.outbox.store import Batch, ProducerOptions
from pushlane.producers.predecessors import Predecessors, bucket_of
from pushlane.util.buckets import SHORT_BUCKETS_S, Buckets
from pushlane.util.errors import BufferFull
from pushlane.util.metrics import Exporter, MetricMaker, ReadMetric


@dataclass(frozen=True)
class ProducerStats:
    """The state of a producer now; its counts are since it was opened.

    `buffered` pushes are in memory, `spooled` ones on disk; both are not sent yet. `refused`
    counts pushes that raised BufferFull, `lost` those in corrupt records of the spool (at most so
    many), whose files are named in `corrupt`. `trouble` is why nothing is sent just now, if so.
    """

    task_id: str
    accepted: int
    sent: int
    refused: int
    failed_sends: int
    buffered: int
    buffered_bytes: int
    spooled: int
    spooled_bytes: int
    lost: int
    corrupt: tuple[str, ...]
    longest_block_s: float
    trouble: str
    enqueue: Buckets = field(default_factory=lambda: Buckets(SHORT_BUCKETS_S))


_make: MetricMaker[ProducerStats] = MetricMaker(
    Exporter.PRODUCER, "pushlane_producer_", {"producer": ()}
)

PRODUCER_METRICS: tuple[ReadMetric[ProducerStats], ...] = (
    _make.counter("accepted_total", "pushes", "Pushes accepted", lambda stats: stats.accepted),
    _make.counter("sent_total", "pushes", "Pushes on their lane", lambda stats: stats.sent),
    _make.counter(
        "refused_total",
        "pushes",
        "Pushes refused since the buffer was full",
        lambda stats: stats.refused,
    ),
    _make.counter(
        "failed_sends_total",
        "tries",
        "Tries to reach the broker or the registry that failed",
        lambda stats: stats.failed_sends,
    ),
    _make.counter(
        "lost_total",
        "pushes",
        "Pushes in corrupt records of the spool, at most",
        lambda stats: stats.lost,
    ),
    _make.histogram(
        "enqueue_seconds",
        "Accepting one push, with its wait for room: of every 16th push",
        lambda stats: stats.enqueue,
    ),
    _make.gauge("buffered", "pushes", "Pushes in memory", lambda stats: stats.buffered),
    _make.gauge(
        "buffered_bytes", "bytes", "Bytes of pushes in memory", lambda stats: stats.buffered_bytes
    ),
    _make.gauge(
        "spooled", "pushes", "Pushes on disk that are not sent yet", lambda stats: stats.spooled
    ),
    _make.gauge(
        "spooled_bytes", "bytes", "Bytes of the spool's files", lambda stats: stats.spooled_bytes
    ),
    _make.gauge(
        "longest_block_seconds",
        "seconds",
        "Longest that a push has waited for room",
        lambda stats: stats.longest_block_s,
    ),
)
"""All metrics of a producer, in the order in which they are shown."""

Encode = Callable[[int, int], bytes]
"""Gives the bytes of a push from its seq, and from that of the push which goes before it, or 0."""

_LINGER_S = 0.05
_SMALL_EVERY_S = 0.005
"""Time between two batches that are not full: so no producer makes over 200 of them a second."""

_MEASURED = 16  # one of so many pushes: to measure each would be a part of its cost


class Buffer:
    """Holds pushes until they are cut; it calls `wake`, from any thread, when a cut may be due.

    `acked_seq` is the last push that is on its lane. `clock_s` is a monotonic clock. `predecessors`
    has the last seqs of keys so far. `collapses` is set before a push that may replace others.
    """

    def __init__(
        self,
        options: ProducerOptions,
        batch_size: int,
        next_seq: int,
        wake: Callable[[], None],
        acked_seq: int = 0,
        clock_s: Callable[[], float] = time.monotonic,
        predecessors: Predecessors | None = None,
    ) -> None:
        self._options = options
        self._linger_s = _LINGER_S if options.linger_s is None else options.linger_s
        self._acked_seq = acked_seq
        self._clock_s = clock_s
        self._small_at = -math.inf
        self._batch_size = batch_size
        self._wake = wake
        self._room = threading.Condition()
        self._next_seq = next_seq
        self._cut: list[Batch] = []
        self._open: list[bytes] = []
        self._predecessors = predecessors or Predecessors()
        self._latest: dict[int, int] = {}
        self.collapses = False
        self._open_bytes = self._flush_to = 0
        self._opened_at = self.longest_block_s = 0.0
        self._refusal: PushlaneError | None = None
        self.count = self.bytes = self.refused = 0
        self.enqueue = Buckets(SHORT_BUCKETS_S)
        self.trouble = ""

    @property
    def last_seq(self) -> int:
        """The seq of the latest push that was accepted."""
        return self._next_seq - 1

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._options.max_buffer_bytes

    def put(self, encode: Encode, block_s: float, key: str = "") -> int:
        """Accept a push; return the seq that it was given. Those with one key go in their order.

        Raises:
            BufferFull: there was no room in that time.
            PushlaneError: nothing is accepted any more; says why.
        """
        began_s = time.perf_counter()
        with self._room:
            if not self._has_room():
                self._wait(block_s)
            if self._refusal:
                raise self._refusal
            seq = self._next_seq
            self._add(seq, encode(seq, self._predecessors.of(key) if key else 0), key)
            if not seq % _MEASURED:
                self.enqueue.add(time.perf_counter() - began_s)
            return seq

    def cut(self) -> list[Batch]:
        """Return every batch that is full or due."""
        with self._room:
            now_s = self._clock_s()
            if self._open and self._due_at_s() <= now_s:
                self._close_batch()
                self._small_at = now_s
            batches, self._cut = self._cut, []
            return batches

    def due_in_s(self) -> float | None:
        """Return the seconds until the next cut gives a batch; None while there is nothing."""
        with self._room:
            if self._cut:
                return 0.0
            return max(0.0, self._due_at_s() - self._clock_s()) if self._open else None

    def landed(self, acked_seq: int) -> None:
        """Hear that the pushes up to this seq are on their lane."""
        with self._room:
            self._acked_seq = acked_seq

    def release(self, batches: Sequence[Batch]) -> None:
        """Make room: these batches are kept elsewhere now."""
        with self._room:
            self.count -= sum(len(batch.bodies) for batch in batches)
            self.bytes -= sum(batch.size for batch in batches)
            self._room.notify_all()

    def flush(self) -> int:
        """Make all that is here due at once; return the last seq of it."""
        with self._room:
            self._flush_to = self.last_seq
        self._wake()
        return self._flush_to

    def refuse(self, error: PushlaneError) -> None:
        """Accept nothing more; puts raise this error, the first of several."""
        with self._room:
            self._refusal = self._refusal or error
            self._room.notify_all()

    def _has_room(self) -> bool:
        return not self.is_full or self._refusal is not None

    def _wait(self, block_s: float) -> None:
        begun = self._clock_s()
        has_room = self._room.wait_for(self._has_room, block_s) if block_s > 0 else False
        self.longest_block_s = max(self.longest_block_s, self._clock_s() - begun)
        if not has_room:
            self.refused += 1
            why = self.trouble or "pushes come faster than they can be written"
            raise BufferFull(
                f"the producer holds {self.bytes:,} bytes, the most it may "
                f"(max_buffer_bytes={self._options.max_buffer_bytes:,}): {why}; push again "
                "later, or give the producer larger bounds"
            )

    def _add(self, seq: int, body: bytes, key: str) -> None:
        if seq > MAX_SEQ:
            raise PushlaneError(
                f"the task has {MAX_SEQ:,} pushes, the most that it can have; close the producer "
                "with seal=True, and open it again"
            )
        was_idle, cut_before = not self._open, len(self._cut)
        if self._open and self._open_bytes + len(body) > self._options.max_batch_bytes:
            self._close_batch()
        if not self._open:
            self._opened_at = self._clock_s()
        self._open.append(body)
        if key:
            self._predecessors.add(key, seq)
            self._latest[bucket_of(key)] = seq
        self._open_bytes += len(body)
        self._next_seq = seq + 1
        self.count += 1
        self.bytes += len(body)
        if seq % self._batch_size == 0:
            self._close_batch()
        if was_idle or len(self._cut) > cut_before:
            self._wake()

    def _due_at_s(self) -> float:
        """Return when the open batch is to be cut, though it is not full.

        At once when it is flushed. While nothing before it is on its way, it waits for no company:
        behind a batch that is, it gathers some meanwhile.
        """
        first_seq = self._next_seq - len(self._open)
        if first_seq <= self._flush_to:
            return -math.inf
        lingered_s = self._opened_at + self._linger_s
        if self._options.linger_s is None and self._acked_seq >= first_seq - 1:
            return min(lingered_s, self._small_at + _SMALL_EVERY_S)
        return lingered_s

    def _close_batch(self) -> None:
        if self._open:
            latest = tuple(self._latest.items())
            self._cut.append(Batch(self._next_seq - len(self._open), self._open, latest))
            self._open, self._open_bytes, self._latest = [], 0, {}
