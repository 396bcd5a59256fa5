"""The files of the receipts log: partitions, their segments, and the records in them.

A record is a body with its time and a checksum; one that a crash left half written is told from a
damaged one: nothing comes after it. A segment's file name is its place in the partition, so that a
position is one number that only grows.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone
from pushlane.util.files import FileLock, append, marks, sync

_MAGIC = b"plr1"
_HEAD = struct.Struct("<4sIIQ")
_SUFFIX = ".log"


class LogSegment(NamedTuple):
    """A file with the bytes of a partition from `base` on."""

    base: int
    path: Path


class Record(NamedTuple):
    """The place of a record in its file. A hole holds no record: its bytes are damaged."""

    start: int
    end: int
    at_ms: int
    is_hole: bool = False


class Tail:
    """The newest segment, open, and known to be whole up to `end`.

    Whoever calls it holds the partition's lock. A segment that is `damaged` is not appended to.
    """

    def __init__(self, segment: LogSegment) -> None:
        self.base = self.end = segment.base
        self.file = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.damaged = False

    @property
    def is_removed(self) -> bool:
        return os.fstat(self.file).st_nlink == 0

    def recover(self) -> None:
        """See how far the file is whole if others have changed it, and cut off a torn end.

        Records that another process has left there are made durable before anybody reads on.
        """
        size = os.fstat(self.file).st_size
        if self.base + size == self.end:
            return
        start = self.end - self.base if self.base + size > self.end else 0
        whole = _whole_until(self.file, start, size)
        if whole < size:
            if _next_whole(self.file, whole + 1, size) is None:  # a writer died there
                os.ftruncate(self.file, whole)
            else:  # nothing that may be good is cut off: it goes on in a new file
                self.damaged, whole = True, size
        os.fdatasync(self.file)
        self.end = self.base + whole

    def append(self, content: bytes) -> None:
        """Return once the content is on the disk; what was written of it is cut off if it fails."""
        size = self.end - self.base
        self.end = self.base + append(self.file, content, size, durably=True)

    def close(self) -> None:
        os.close(self.file)


def segments(folder: Path) -> list[LogSegment]:
    """Return the segments of a partition, oldest first."""
    found = [LogSegment(int(path.stem), path) for path in folder.glob(f"*{_SUFFIX}")]
    return sorted(found)


def segment_at(folder: Path, base: int) -> LogSegment:
    return LogSegment(base, folder / f"{base:020d}{_SUFFIX}")


def packed(bodies: Sequence[bytes], at_ms: int) -> bytes:
    """Return the bodies as records, one after the other."""
    parts = []
    for body in bodies:
        parts += [_HEAD.pack(_MAGIC, len(body), _checksum(body, at_ms), at_ms), body]
    return b"".join(parts)


def records(file: int, start: int, size: int) -> Iterator[Record]:
    """Yield every record of a file between two offsets, reading their heads alone."""
    offset = start
    while offset < size:
        record = _record_at(file, offset, size)
        if record is None:
            end = _next_whole(file, offset + 1, size)
            record = Record(offset, size if end is None else end, 0, is_hole=True)
        yield record
        offset = record.end


def body_of(file: int, record: Record) -> bytes:
    """Return the body of a record; empty when it is damaged."""
    content = b"" if record.is_hole else os.pread(file, record.end - record.start, record.start)
    return content[_HEAD.size :] if _is_whole(content) else b""


def _whole_until(file: int, start: int, size: int) -> int:
    """Return where the first record begins that is not whole; `size` when all are."""
    for record in records(file, start, size):
        if record.is_hole or not _is_whole_at(file, record):
            return record.start
    return size


def _record_at(file: int, offset: int, size: int) -> Record | None:
    head = os.pread(file, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    magic, length, _, at_ms = _HEAD.unpack(head)
    end = offset + _HEAD.size + length
    return Record(offset, end, at_ms) if magic == _MAGIC and end <= size else None


def _is_whole_at(file: int, record: Record) -> bool:
    return _is_whole(os.pread(file, record.end - record.start, record.start))


def _is_whole(content: bytes) -> bool:
    if len(content) < _HEAD.size:
        return False
    _, length, checksum, at_ms = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    return len(body) == length and bool(_checksum(body, at_ms) == checksum)


def _next_whole(file: int, offset: int, size: int) -> int | None:
    """Return where the next whole record begins."""
    content = os.pread(file, max(0, size - offset), offset)
    for mark in marks(content, _MAGIC):
        record = _record_at(file, offset + mark, size)
        if record is not None and _is_whole_at(file, record):
            return record.start
    return None


def _checksum(body: bytes | memoryview, at_ms: int) -> int:
    return zlib.crc32(body, zlib.crc32(at_ms.to_bytes(8, "little")))


_LARGEST_SEGMENT_BYTES = 64 * 1024 * 1024
_SEGMENTS = 8
_CLOCK_STEP_MS = 1_000  # a file's time may lag behind the clock that its records were given


class Busy(Exception):
    """Another process holds the partition."""


class Full(Exception):
    """The partition holds as much as it may, and nothing of that is committed."""


class Partition:
    """Segments in one folder, which hold `most_bytes` in all. Every method blocks.

    Everything before the position from `committed` was taken over. What was not is removed to make
    room, unless receipts are required. Several processes append, one at a time: whoever appends or
    looks for the end holds the partition's lock, which the kernel releases when its process dies;
    the next one cuts off a record that the dead process left half written.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        most_bytes: int,
        committed: Callable[[], int | None],
    ) -> None:
        self._folder = folder
        self._committed = committed
        self._most_bytes = most_bytes
        self._segment_bytes = min(_LARGEST_SEGMENT_BYTES, max(1, most_bytes // _SEGMENTS))
        self._retention_s = settings.receipts_retention_s
        self._drops = settings.receipts != "required"
        self._mine = threading.Lock()
        self._lock: FileLock | None = None
        self._tail: Tail | None = None
        self._counted = (0, 0, 0)  # the records from the first position to the second

    def append(self, bodies: Sequence[bytes]) -> int:
        """Return once the bodies are on the disk.

        Returns how many bytes that nobody had committed were removed to make room.

        Raises:
            Busy: somebody else appends to it.
            Full: there is no room.
        """
        with self._locked(wait_s=0):
            tail = self._caught_up()
            dropped = 0
            if tail.damaged or tail.end - tail.base >= self._segment_bytes:
                dropped = self._make_room()
                tail = self._use(segment_at(self._folder, tail.end))
            tail.append(packed(bodies, time.time_ns() // 1_000_000))
            return dropped

    def end(self, wait_s: float) -> int:
        """Return the position after everything that is on the disk.

        Raises Busy when another process holds the lock all that time.
        """
        if not self._folder.exists():
            return 0
        with self._locked(wait_s):
            return self._caught_up().end

    def first(self) -> int:
        """Return the position before the oldest record."""
        found = segments(self._folder)
        return found[0].base if found else 0

    def kept(self, position: int, wait_s: float) -> int:
        """Return the position if its records are there, else the one before the oldest record."""
        oldest = self.first()
        if position < oldest:
            return oldest
        try:
            return position if position <= self.end(wait_s) else oldest
        except Busy:  # while another appends, the log is as it was
            return position

    def since(self, at_ms: int, wait_s: float) -> int:
        """Return the position of the first record of this time or later."""
        for segment in segments(self._folder):
            if segment.path.stat().st_mtime_ns // 1_000_000 + _CLOCK_STEP_MS >= at_ms:
                for _, record, _ in self._walk(segment.base, None):
                    if record.at_ms >= at_ms:
                        return segment.base + record.start
        return self.end(wait_s)

    def ends(self, start: int, end: int, most: int | None) -> list[int]:
        """Return the positions after each record from `start` on, at most so many."""
        found: list[int] = []
        for segment, record, _ in self._walk(start, end):
            if most is not None and len(found) >= most:
                break
            found.append(segment.base + record.end)
        return found

    def count(self, start: int, end: int) -> int:
        """Count the records between two positions.

        A later call for positions a little further on waits only for the change at the two ends.
        """
        known_start, known_end, known = self._counted
        found: int | None = None
        if known_start <= start <= known_end <= end:
            with suppress(ReceiptsGone):  # the oldest of them went meanwhile
                gone = self._walked(known_start, start)
                found = known - gone + self._walked(known_end, end)
        if found is None:
            found = self._walked(start, end)
        self._counted = (start, end, found)
        return found

    def _walked(self, start: int, end: int) -> int:
        return sum(1 for _ in self._walk(start, end))

    def page(self, start: int, end: int, most_bytes: int) -> tuple[list[bytes], int]:
        """Return bodies from `start` on, of about so many bytes, and the position after them."""
        bodies: list[bytes] = []
        room, position = most_bytes, start
        for segment, record, file in self._walk(start, end):
            if room <= 0:
                break
            bodies.append(body_of(file, record))
            room -= record.end - record.start
            position = segment.base + record.end
        return bodies, position

    def tidy(self, wait_s: float) -> int:
        """Remove segments that are over; return how many bytes of them nobody had committed."""
        if not self._folder.exists():
            return 0
        with self._locked(wait_s):
            return self._tidied()

    def close(self) -> None:
        with self._mine:
            for held in (self._lock, self._tail):
                if held is not None:
                    held.close()
            self._lock = self._tail = None

    def _tidied(self) -> int:
        """Remove segments, oldest first and never the newest; return their uncommitted bytes."""
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
            return is_taken or self._drops
        return is_taken and segment.path.stat().st_mtime < time.time() - self._retention_s

    def _is_over(self, newest: LogSegment, oldest: LogSegment) -> bool:
        """Return whether there is no room for another segment."""
        held = newest.base + newest.path.stat().st_size - oldest.base
        return held + self._segment_bytes > self._most_bytes

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
            if not lock.acquire(wait_s):
                raise Busy
            try:
                yield
            finally:
                lock.release()
        finally:
            self._mine.release()

    def _open_lock(self) -> FileLock:
        if self._lock is not None and not self._lock.is_removed:
            return self._lock
        if self._lock is not None:  # somebody has removed the folder
            self._lock.close()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(self._folder.parent)
        self._lock = FileLock(self._folder / "lock")
        return self._lock

    def _caught_up(self) -> Tail:
        """Return the newest segment as it is now: others may have appended, rolled or died."""
        tail = self._tail
        if tail is None or tail.is_removed:
            tail = self._reopened()
        tail.recover()
        if tail.damaged or tail.end - tail.base >= self._segment_bytes:
            newest = segments(self._folder)[-1]
            if newest.base != tail.base:
                tail = self._reopened()
                tail.recover()
        return tail

    def _reopened(self) -> Tail:
        found = segments(self._folder)
        return self._use(found[-1] if found else segment_at(self._folder, 0))

    def _use(self, segment: LogSegment) -> Tail:
        is_new = not segment.path.exists()
        tail = Tail(segment)
        if is_new:
            sync(self._folder)
        if self._tail is not None:
            self._tail.close()
        self._tail = tail
        return tail

    def _walk(self, start: int, end: int | None) -> Iterator[tuple[LogSegment, Record, int]]:
        """Yield the records between two positions, each with the open file that it lies in.

        Raises ReceiptsGone when those at `start` were removed.
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
    """Leave out the segments that end before this position."""
    skipped = sum(following.base <= start for _, following in pairwise(found))
    return found[skipped:]
