"""One file of a spool: records from a first seq on, appended until it is large enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pushlane.lanes.durable import sync
from pushlane.producers.outbox.files import write_all

SUFFIX = ".segment"
CORRUPT = ".corrupt"


class SpoolSegment:
    """An open file. `size` is the bytes that are whole; `is_bad` once a record in it is not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_bad = False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._handle).st_size
        self._synced = self.size

    @classmethod
    def create(cls, folder: Path, first_seq: int) -> SpoolSegment:
        """A new one; its name outlives a power cut, and with it the seqs before."""
        segment = cls(folder / f"{first_seq:010}{SUFFIX}")
        sync(folder)
        return segment

    @property
    def first_seq(self) -> int:
        return int(self.path.name.removesuffix(SUFFIX))

    def append(self, content: bytes) -> None:
        """All of it or nothing: what an error left is cut off again."""
        try:
            write_all(self._handle, content, self.size)
        except OSError:
            self.cut(self.size)
            raise
        self.size += len(content)

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
