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

from pushlane.lanes.errors import UnknownFormat
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


class Good(NamedTuple):
    """A batch that was read, and where the next record begins."""

    batch: Batch
    end: int


class Bad(NamedTuple):
    """A damaged stretch, whose bytes up to `end` are no record any more.

    `next_seq` is over every seq that they can have held.
    """

    next_seq: int
    end: int


class Torn(NamedTuple):
    """The beginning of a record, from `start` on, after which there is nothing."""

    start: int


Found = Good | Bad | Torn


def pack(batch: Batch) -> bytes:
    payload = _encoder.encode(batch.bodies)
    count, checksum = len(batch.bodies), zlib.crc32(payload)
    head = _HEAD.pack(_MAGIC, batch.first_seq, count, len(payload), checksum)
    return head + _SUM.pack(zlib.crc32(head)) + payload


def scan(data: bytes, next_seq: int = 1) -> Iterator[Found]:
    """Yield what is in these bytes, whose first seq is `next_seq`; a Torn is the last.

    Raises UnknownFormat at a record of a later format.
    """
    start = 0
    while start < len(data):
        found = _record(data, start, next_seq)
        yield found
        if isinstance(found, Torn):
            return
        start = found.end
        next_seq = found.batch.last_seq + 1 if isinstance(found, Good) else found.next_seq


def _record(data: bytes, start: int, next_seq: int) -> Found:
    head = _head(data, start)
    if head is None:
        return _no_head(data, start, next_seq)
    _, first_seq, count, length, checksum = head
    begin = start + HEAD_BYTES
    payload = data[begin : begin + length]
    if len(payload) < length:
        return Torn(start)
    if zlib.crc32(payload) != checksum:
        return Bad(first_seq + count, begin + length)
    return Good(Batch(first_seq, _decoder.decode(payload)), begin + length)


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
        return Torn(start)
    end = _next_head(data, start + 1)
    return Bad(next_seq + (end - start) // _LEAST_PUSH_BYTES + 1, end)


def _next_head(data: bytes, start: int) -> int:
    """Return where the next good head is, or the end of the bytes."""
    return next((mark for mark in marks(data, _NAME, start) if _head(data, mark)), len(data))
