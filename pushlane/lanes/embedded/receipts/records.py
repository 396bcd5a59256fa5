"""The segments of a partition, and their records: each body with its time and a checksum.

A segment's file name is its place in the partition, so that a position is one number that only
grows. A record that a crash left half written is told from a damaged one: nothing comes after it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pushlane.lanes.segment_log import append, marks

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

    __slots__ = ("base", "damaged", "end", "file")

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
            if _is_torn(self.file, whole, size):
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
    if record.is_hole:
        return b""
    content = os.pread(file, record.end - record.start, record.start)
    return content[_HEAD.size :] if _is_whole(content) else b""


def _whole_until(file: int, start: int, size: int) -> int:
    """Return where the first record begins that is not whole; `size` when all are."""
    for record in records(file, start, size):
        if record.is_hole or not _is_whole_at(file, record):
            return record.start
    return size


def _is_torn(file: int, offset: int, size: int) -> bool:
    """Return whether nothing whole comes after this offset: then a writer died there."""
    return _next_whole(file, offset + 1, size) is None


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
