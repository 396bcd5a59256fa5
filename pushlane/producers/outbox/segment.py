"""The files of a spool: segments, which hold its records, and the cursor, which says what is sent.

A segment takes records from a first seq on until it is large enough.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from pathlib import Path

from pushlane.lanes.durable import sync
from pushlane.lanes.segment_log import append, write_all

SUFFIX = ".segment"
CORRUPT = ".corrupt"

_FIELDS = struct.Struct("<QQ")
_SUM = struct.Struct("<I")


class SpoolSegment:
    """An open file of records; `size` counts its whole bytes, `is_bad` says that one is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_bad = False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._handle).st_size
        self._synced = self.size

    @classmethod
    def create(cls, folder: Path, first_seq: int) -> SpoolSegment:
        """Create a segment; its name outlives a power cut, and with it the seqs before it."""
        segment = cls(folder / f"{first_seq:010}{SUFFIX}")
        sync(folder)
        return segment

    @property
    def first_seq(self) -> int:
        return int(self.path.name.removesuffix(SUFFIX))

    def append(self, content: bytes) -> None:
        """Append all of it or nothing. Raises OSError when the disk does not take it."""
        self.size = append(self._handle, content, self.size)

    def read(self, start: int, most_bytes: int = sys.maxsize) -> bytes:
        return os.pread(self._handle, min(most_bytes, self.size - start), start)

    def cut(self, size: int) -> None:
        os.ftruncate(self._handle, size)
        self.size = size

    def sync(self) -> None:
        if self._synced != self.size:
            os.fsync(self._handle)
            self._synced = self.size

    def close(self) -> None:
        os.close(self._handle)


class Cursor:
    """The file that says how far a spool was sent.

    It is written in place at every ack and synced only before segments are deleted. An older one,
    after a power cut, leads to batches that are sent again, of which the broker keeps one.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> tuple[int, int]:
        """Return the last acked seq, and how many pushes were published; zeros if it is damaged."""
        content = os.pread(self._handle, _FIELDS.size + _SUM.size, 0)
        packed, checksum = content[: _FIELDS.size], content[_FIELDS.size :]
        if len(checksum) < _SUM.size or _SUM.unpack(checksum)[0] != zlib.crc32(packed):
            return 0, 0
        acked_seq, published = _FIELDS.unpack(packed)
        return acked_seq, published

    def write(self, acked_seq: int, published: int) -> None:
        packed = _FIELDS.pack(acked_seq, published)
        write_all(self._handle, packed + _SUM.pack(zlib.crc32(packed)), 0)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)
