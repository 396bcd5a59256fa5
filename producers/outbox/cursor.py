"""How far a spool was sent: the last acked seq, and how many pushes that were.

Written in place at every ack and synced only before files go; an older one after a power cut leads
to batches that are sent again, which the broker keeps once.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from pushlane.producers.outbox.files import write_all

_FIELDS = struct.Struct("<QQ")
_SUM = struct.Struct("<I")


class SentSoFar(NamedTuple):
    acked_seq: int
    published: int


class Cursor:
    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> SentSoFar:
        """Zeros when there is none, or none that can be read."""
        content = os.pread(self._handle, _FIELDS.size + _SUM.size, 0)
        packed, checksum = content[: _FIELDS.size], content[_FIELDS.size :]
        if len(checksum) < _SUM.size or _SUM.unpack(checksum)[0] != zlib.crc32(packed):
            return SentSoFar(0, 0)
        return SentSoFar(*_FIELDS.unpack(packed))

    def write(self, sent: SentSoFar) -> None:
        packed = _FIELDS.pack(*sent)
        write_all(self._handle, packed + _SUM.pack(zlib.crc32(packed)), 0)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)
