"""One partition of the log: files that several processes append to, one at a time.

Whoever appends or looks for the end holds the partition's lock, which the kernel lets go of when
its process dies; who comes next cuts off what the dead one left half written. Every method blocks
and runs in a thread.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pushlane.lanes.durable import sync_folder
from pushlane.lanes.embedded.receipts.records import (
    LogSegment,
    Record,
    body_of,
    is_torn,
    packed,
    records,
    segment_at,
    segments,
    whole_until,
)
from pushlane.lanes.errors import ReceiptsGone
from pushlane.lanes.segment_log import append

_RETRY_S = 0.002
_CLOCK_STEP_MS = 1_000  # a file's time may lag behind the clock that its records were given


class Limits(NamedTuple):
    """Of one partition, and how many there are.

    `drops` says whether room is made of what nobody has committed.
    """

    partitions: int
    segment_bytes: int
    most_bytes: int
    retention_s: float
    drops: bool


class _Counted(NamedTuple):
    start: int
    end: int
    records: int


class Busy(Exception):
    """Another process is at it."""


class Full(Exception):
    """It holds as much as it may, and nothing of that is committed."""


class _Tail:
    """The newest segment, and how far it is known to be whole."""

    __slots__ = ("base", "damaged", "end", "file")

    def __init__(self, segment: LogSegment) -> None:
        self.base = self.end = segment.base
        self.file = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.damaged = False


class Partition:
    """`committed` gives the position before which everything was taken over."""

    def __init__(self, folder: Path, limits: Limits, committed: Callable[[], int | None]) -> None:
        self._folder = folder
        self._committed = committed
        self._limits = limits
        self._mine = threading.Lock()
        self._lock: int | None = None
        self._tail: _Tail | None = None
        self._counted = _Counted(0, 0, 0)

    def append(self, bodies: Sequence[bytes]) -> int:
        """Returns once they are on the disk; how many bytes nobody had committed went for them.

        Raises:
            Busy: somebody else appends to it.
            Full: there is no room.
        """
        with self._locked(wait_s=0):
            tail = self._caught_up()
            dropped = 0
            if tail.damaged or tail.end - tail.base >= self._limits.segment_bytes:
                dropped = self._make_room()
                tail = self._rolled(tail)
            content = packed(bodies, time.time_ns() // 1_000_000)
            tail.end = tail.base + append(tail.file, content, tail.end - tail.base, durably=True)
            return dropped

    def end(self, wait_s: float) -> int:
        """The position after everything that is on the disk.

        Raises:
            Busy: another process holds the lock all that time.
        """
        if not self._folder.exists():
            return 0
        with self._locked(wait_s):
            return self._caught_up().end

    def first(self) -> int:
        """The position before the oldest record."""
        found = segments(self._folder)
        return found[0].base if found else 0

    def kept(self, position: int, wait_s: float) -> int:
        """The position, if what came after it is there; else the one before the oldest record."""
        oldest = self.first()
        if position < oldest:
            return oldest
        try:
            return position if position <= self.end(wait_s) else oldest
        except Busy:  # whoever appends has the log as it was
            return position

    def since(self, at_ms: int, wait_s: float) -> int:
        """The position of the first record of this time or later."""
        for segment in segments(self._folder):
            if segment.path.stat().st_mtime_ns // 1_000_000 + _CLOCK_STEP_MS >= at_ms:
                for _, record in self._walk(segment.base, None):
                    if record.at_ms >= at_ms:
                        return segment.base + record.start
        return self.end(wait_s)

    def ends(self, start: int, end: int, most: int | None) -> list[int]:
        """The positions after each record from `start` on, at most so many."""
        found: list[int] = []
        for segment, record in self._walk(start, end):
            if most is not None and len(found) >= most:
                break
            found.append(segment.base + record.end)
        return found

    def count(self, start: int, end: int) -> int:
        """How many records lie between.

        Who asks again a little further on waits only for what has changed at the two ends.
        """
        known = self._counted
        found: int | None = None
        if known.start <= start <= known.end <= end:
            with suppress(ReceiptsGone):  # the oldest of them went meanwhile
                gone = self._walked(known.start, start)
                found = known.records - gone + self._walked(known.end, end)
        if found is None:
            found = self._walked(start, end)
        self._counted = _Counted(start, end, found)
        return found

    def _walked(self, start: int, end: int) -> int:
        return sum(1 for _ in self._walk(start, end))

    def page(self, start: int, end: int, most_bytes: int) -> tuple[list[bytes], int]:
        """Bodies from `start` on, of about so many bytes, and the position after them."""
        bodies: list[bytes] = []
        room, position = most_bytes, start
        for segment, record, file in self._walk_files(start, end):
            if room <= 0:
                break
            bodies.append(body_of(file, record))
            room -= record.end - record.start
            position = segment.base + record.end
        return bodies, position

    def tidy(self, wait_s: float) -> int:
        """Remove what is over; how many bytes of it nobody had committed."""
        if not self._folder.exists():
            return 0
        with self._locked(wait_s):
            return self._tidied()

    def close(self) -> None:
        with self._mine:
            if self._lock is not None:
                os.close(self._lock)
            if self._tail is not None:
                os.close(self._tail.file)
            self._lock = self._tail = None

    def _tidied(self) -> int:
        """The oldest goes first, and the newest segment never."""
        committed = self._committed()
        dropped = 0
        found = segments(self._folder)
        for segment, following in pairwise(found):
            is_taken = committed is not None and following.base <= committed
            if not self._goes(segment, self._is_over(found[-1], segment), is_taken):
                break
            segment.path.unlink()
            dropped += 0 if is_taken else following.base - segment.base
        return dropped

    def _goes(self, segment: LogSegment, is_over: bool, is_taken: bool) -> bool:
        if is_over:
            return is_taken or self._limits.drops
        return is_taken and self._is_old(segment)

    def _is_over(self, newest: LogSegment, oldest: LogSegment) -> bool:
        """Whether there is no room for another segment."""
        held = newest.base + newest.path.stat().st_size - oldest.base
        return held + self._limits.segment_bytes > self._limits.most_bytes

    def _is_old(self, segment: LogSegment) -> bool:
        return segment.path.stat().st_mtime < time.time() - self._limits.retention_s

    def _make_room(self) -> int:
        dropped = self._tidied()
        found = segments(self._folder)
        if len(found) > 1 and self._is_over(found[-1], found[0]):
            raise Full
        return dropped

    @contextmanager
    def _locked(self, wait_s: float) -> Iterator[None]:
        """Keep other threads out, then other processes."""
        if not self._mine.acquire(timeout=max(wait_s, 0.0)):
            raise Busy
        try:
            lock = self._open_lock()
            _take(lock, time.monotonic() + wait_s)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            self._mine.release()

    def _open_lock(self) -> int:
        if self._lock is not None and os.fstat(self._lock).st_nlink:
            return self._lock
        if self._lock is not None:  # somebody has removed the folder
            os.close(self._lock)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._lock

    def _caught_up(self) -> _Tail:
        """The newest segment as it is now: others may have appended, rolled or died."""
        tail = self._tail
        if tail is None or not os.fstat(tail.file).st_nlink:
            tail = self._reopened()
        _recover(tail)
        if tail.damaged or tail.end - tail.base >= self._limits.segment_bytes:
            newest = segments(self._folder)[-1]
            if newest.base != tail.base:
                tail = self._reopened()
                _recover(tail)
        return tail

    def _reopened(self) -> _Tail:
        found = segments(self._folder)
        return self._use(found[-1] if found else segment_at(self._folder, 0))

    def _rolled(self, tail: _Tail) -> _Tail:
        return self._use(segment_at(self._folder, tail.end))

    def _use(self, segment: LogSegment) -> _Tail:
        is_new = not segment.path.exists()
        tail = _Tail(segment)
        if is_new:
            sync_folder(self._folder)
        if self._tail is not None:
            os.close(self._tail.file)
        self._tail = tail
        return tail

    def _walk(self, start: int, end: int | None) -> Iterator[tuple[LogSegment, Record]]:
        for segment, record, _ in self._walk_files(start, end):
            yield segment, record

    def _walk_files(self, start: int, end: int | None) -> Iterator[tuple[LogSegment, Record, int]]:
        """Records between two positions, with the open file that each lies in.

        Raises:
            ReceiptsGone: those at `start` were removed.
        """
        found = segments(self._folder)
        if start != end and (not found or start < found[0].base):
            raise self._gone(start)
        for segment in _from(found, start):
            try:
                file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise self._gone(start) from error
            try:
                size = os.fstat(file).st_size
                size = size if end is None else min(size, end - segment.base)
                for record in records(file, max(0, start - segment.base), size):
                    yield segment, record, file
            finally:
                os.close(file)

    def _gone(self, position: int) -> ReceiptsGone:
        return ReceiptsGone(
            f"the log of receipts in {self._folder} begins at {self.first()}: what came after "
            f"{position} is not kept any more"
        )


def _from(found: list[LogSegment], start: int) -> list[LogSegment]:
    """Without those that end before this position."""
    skipped = sum(following.base <= start for _, following in pairwise(found))
    return found[skipped:]


def _recover(tail: _Tail) -> None:
    """See how far the file is whole, if it is not as it was left, and cut off a torn end.

    What another process has left there becomes durable before anybody reads on.
    """
    size = os.fstat(tail.file).st_size
    if tail.base + size == tail.end:
        return
    start = tail.end - tail.base if tail.base + size > tail.end else 0
    whole = whole_until(tail.file, start, size)
    if whole < size:
        if is_torn(tail.file, whole, size):
            os.ftruncate(tail.file, whole)
        else:  # nothing that may be good is cut off: it goes on in a new file
            tail.damaged, whole = True, size
    os.fdatasync(tail.file)
    tail.end = tail.base + whole


def _take(lock: int, deadline_s: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise Busy from None
            time.sleep(_RETRY_S)
