"""The records of a spool's file: a head, which says how long a batch is, then its bodies.

Head and bodies have a checksum each. So a flipped byte is noticed wherever it is, and told from a
record that a kill has cut short: that one has a good head, or not all of one. Every later format
begins with such a head, its number in the magic.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pushlane.core.errors import UnknownFormat
from pushlane.lanes.segment_log import marks
from pushlane.producers.outbox.store import Batch

FORMAT = 1
_NAME = b"PLR"
_MAGIC = b"%b%d" % (_NAME, FORMAT)
_HEAD = struct.Struct("<4sIIII")  # magic, first seq, pushes, bytes of bodies, their checksum
_SUM = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _SUM.size
_LEAST_PUSH_BYTES = 4

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[bytes])


class Found(NamedTuple):
    """A stretch of bytes: a batch, or bytes that are no record any more.

    `next_seq` is over every seq that it can have held. If `is_torn` it is the beginning of a
    record, after which there is nothing.
    """

    start: int
    end: int
    next_seq: int
    batch: Batch | None = None
    is_torn: bool = False


def pack(batch: Batch) -> bytes:
    payload = _encoder.encode(batch.bodies)
    count, checksum = len(batch.bodies), zlib.crc32(payload)
    head = _HEAD.pack(_MAGIC, batch.first_seq, count, len(payload), checksum)
    return head + _SUM.pack(zlib.crc32(head)) + payload


def scan(data: bytes, next_seq: int = 1) -> Iterator[Found]:
    """Yield what is in these bytes, whose first seq is `next_seq`; only the last can be torn.

    Raises UnknownFormat at a record of a later format.
    """
    start = 0
    while start < len(data):
        found = _found(data, start, next_seq)
        yield found
        start, next_seq = found.end, found.next_seq


def _found(data: bytes, start: int, next_seq: int) -> Found:
    head = _head(data, start)
    if head is None:
        return _no_head(data, start, next_seq)
    _, first_seq, count, length, checksum = head
    end = start + HEAD_BYTES + length
    payload = data[start + HEAD_BYTES : end]
    if len(payload) < length:
        return Found(start, len(data), next_seq, is_torn=True)
    is_good = zlib.crc32(payload) == checksum
    batch = Batch(first_seq, _decoder.decode(payload)) if is_good else None
    return Found(start, end, first_seq + count, batch)


def _head(data: bytes, start: int) -> tuple[bytes, int, int, int, int] | None:
    """Return the fields of the head that is here, if its checksum holds."""
    packed = data[start : start + _HEAD.size]
    checksum = data[start + _HEAD.size : start + HEAD_BYTES]
    if len(checksum) < _SUM.size or _SUM.unpack(checksum)[0] != zlib.crc32(packed):
        return None
    fields: tuple[bytes, int, int, int, int] = _HEAD.unpack(packed)
    name, number = fields[0][: len(_NAME)], fields[0][len(_NAME) :]
    if name == _NAME and number.isdigit() and int(number) > FORMAT:
        raise UnknownFormat(int(number), "a file of the spool")
    return fields if fields[0] == _MAGIC else None


def _no_head(data: bytes, start: int, next_seq: int) -> Found:
    """Judge bytes without a head: cut short by a kill, zeros left by a power cut, or damaged."""
    if len(data) - start < HEAD_BYTES or not data[start:].strip(b"\0"):
        return Found(start, len(data), next_seq, is_torn=True)
    heads = (mark for mark in marks(data, _NAME, start + 1) if _head(data, mark))
    end = next(heads, len(data))
    return Found(start, end, next_seq + (end - start) // _LEAST_PUSH_BYTES + 1)
