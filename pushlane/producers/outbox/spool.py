"""Keeps batches on disk, in files that are written once, sent in order and deleted.

A record of a file is a head, which says how long a batch is, then its bodies, each with a checksum.
So a flipped byte is noticed wherever it is, and told from a record that a kill has cut short: that
one has a good head, or not all of one. Every later format begins with such a head, its number in
the magic.

A batch that was sent was durable here first: so no seq is given out twice, whatever happens. What a
kill has cut short at the end is cut off; a file with a changed byte is set aside, and what can
still be read of it is sent.

Where pushes go in order, a record holds the last seqs of its keys too, and a file beside them those
of all that came before the newest file of records: so they are as durable as the batch that they
are of, and outlive the files that are deleted.

One process at a time has a spool's folder, with a folder in it for every task, which appears and
goes whole, by its name.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.model import task_bytes
from pushlane.model.documents import as_json
from pushlane.producers.outbox.store import (
    IN_ORDER,
    MAX_SPOOL_BYTES,
    READ_BYTES,
    Added,
    Batch,
    BatchStore,
    Header,
)
from pushlane.producers.predecessors import Predecessors
from pushlane.util.errors import StorageFull
from pushlane.util.files import FileLock, append, marks, sync, write_all, write_durably

FORMAT = IN_ORDER
_NAME = b"PLR"
_MAGIC = b"PLR1"
_MAGIC_IN_ORDER = b"PLR2"
_HEAD = struct.Struct("<4sIIII")  # magic, first seq, pushes, bytes of bodies, their checksum
_SUM = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _SUM.size
_LEAST_PUSH_BYTES = 4

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[bytes])
_decoder_in_order = msgspec.msgpack.Decoder(tuple[list[bytes], tuple[tuple[int, int], ...]])


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
    magic = _MAGIC_IN_ORDER if batch.latest else _MAGIC
    payload = _encoder.encode((batch.bodies, batch.latest) if batch.latest else batch.bodies)
    count, checksum = len(batch.bodies), zlib.crc32(payload)
    head = _HEAD.pack(magic, batch.first_seq, count, len(payload), checksum)
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
    magic, first_seq, count, length, checksum = head
    end = start + HEAD_BYTES + length
    payload = data[start + HEAD_BYTES : end]
    if len(payload) < length:
        return Found(start, len(data), next_seq, is_torn=True)
    is_good = zlib.crc32(payload) == checksum
    batch = _batch(magic, first_seq, payload) if is_good else None
    return Found(start, end, first_seq + count, batch)


def _batch(magic: bytes, first_seq: int, payload: bytes) -> Batch:
    if magic == _MAGIC_IN_ORDER:
        return Batch(first_seq, *_decoder_in_order.decode(payload))
    return Batch(first_seq, _decoder.decode(payload))


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
    return fields if fields[0] in (_MAGIC, _MAGIC_IN_ORDER) else None


def _no_head(data: bytes, start: int, next_seq: int) -> Found:
    """Judge bytes without a head: cut short by a kill, zeros left by a power cut, or damaged."""
    if len(data) - start < HEAD_BYTES or not data[start:].strip(b"\0"):
        return Found(start, len(data), next_seq, is_torn=True)
    heads = (mark for mark in marks(data, _NAME, start + 1) if _head(data, mark))
    end = next(heads, len(data))
    return Found(start, end, next_seq + (end - start) // _LEAST_PUSH_BYTES + 1)


SUFFIX = ".segment"
CORRUPT = ".corrupt"

_FIELDS = struct.Struct("<QQ")


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


log = logging.getLogger("pushlane.producer")

HEADER = "task.json"
ORDER = "order"
SEGMENT_BYTES = 8 * 1024 * 1024


class Spool(BatchStore):
    """The spool of one task, in a folder of its own that nobody else may have open.

    `set_aside` moves a corrupt file away, and says where to. `lost` counts the seqs that corrupt
    records have taken, since it was opened. A file is ended when it has `segment_bytes`. Raises
    UnknownFormat when a newer version has written it.
    """

    holds_room = False

    def __init__(
        self, folder: Path, header: Header, set_aside: Callable[[Path], Path], segment_bytes: int
    ) -> None:
        self.header = header
        self.holder = f"{gethostname()}:{folder.parent.resolve()}"
        self._folder = folder
        self._set_aside = set_aside
        self._segment_bytes = segment_bytes
        self._cursor = Cursor(folder / "sent")
        self._fetched: deque[Batch] = deque()
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        self._segments = deque(map(SpoolSegment, paths)) or deque([SpoolSegment.create(folder, 1)])
        self._offset = 0
        self.lost = 0
        self.predecessors = Predecessors()
        try:
            self._restore()
        except UnknownFormat:
            self.close()
            raise

    @property
    def bytes(self) -> int:
        """The bytes that its files take."""
        return sum(segment.size for segment in tuple(self._segments))

    @property
    def waiting(self) -> int:
        """The number of pushes not sent yet; those in corrupt records count until they are met."""
        return max(0, self.next_seq - 1 - self.acked_seq)

    def append(self, batches: Sequence[Batch], most_bytes: int) -> int:
        free = most_bytes - self.bytes
        kept = 0
        for batch in batches:
            record = pack(batch)
            if len(record) > free:
                break
            try:
                self._writable().append(record)
            except OSError:
                if not kept:
                    raise
                break
            self.next_seq = batch.last_seq + 1
            self.predecessors.note(batch.latest)
            free -= len(record)
            kept += 1
        return kept

    def next(self) -> list[Batch]:
        if not self._fetched:
            self.sync()
            self._fetch()
        if not self._fetched:  # seqs that nothing came of are behind us too
            self._pass(self.next_seq)
        return list(self._fetched)

    def ack(self, batch: Batch) -> None:
        self._fetched.popleft()
        self._pass(batch.first_seq)
        self.acked_seq = batch.last_seq
        self.published += len(batch.bodies)
        try:
            self._cursor.write(self.acked_seq, self.published)
        except OSError as error:  # an older one does: the broker keeps what is sent again once
            extra = {"action": "spool_full"}
            told = "%s: what is sent cannot be recorded: %s"
            log.warning(told, self._folder, error.strerror, extra=extra)

    def sync(self) -> None:
        for segment in self._segments:
            segment.sync()

    def seal(self) -> None:
        self.header = replace(self.header, is_sealed=True)
        self.write_header()

    def note_added(self, added: Added) -> None:
        self.header = replace(self.header, added=added)
        self.write_header()

    def note_collapses(self) -> None:
        self.header = replace(self.header, collapses=True)
        self.write_header()

    def write_header(self) -> None:
        write_durably(self._folder / HEADER, as_json("the head of a spool", self.header, Header))

    def finish(self) -> None:
        """Close the spool, which is all sent, and set aside its corrupt files."""
        self.close()
        for segment in self._segments:
            if segment.is_bad:
                self._set_aside(segment.path)

    def close(self) -> None:
        self.sync()
        self._cursor.sync()
        self._cursor.close()
        for segment in self._segments:
            segment.close()

    def _pass(self, seq: int) -> None:
        """Move on to this seq, the next to be acked; earlier ones that were not acked are lost."""
        self.lost += seq - 1 - self.acked_seq
        self.acked_seq = seq - 1

    def _restore(self) -> None:
        """Read where it stopped: how far it was sent, and which seq is the next."""
        for segment in self._segments:
            next(scan(segment.read(0, HEAD_BYTES)), None)
        acked_seq, published = self._cursor.read()
        missing = max(0, self._segments[0].first_seq - 1 - acked_seq)  # sent with files gone
        self.acked_seq = acked_seq + missing
        self.published = published + missing
        last = self._segments[-1]
        self.next_seq = max(last.first_seq, self.acked_seq + 1)
        if self.header.format == IN_ORDER and last.first_seq > 1:
            self._restore_order()
        for found in scan(last.read(0), last.first_seq):
            self.next_seq = max(self.next_seq, found.next_seq)
            self.predecessors.note(found.batch.latest if found.batch else ())
            if found.is_torn:
                last.cut(found.start)
            elif found.batch is None:
                last.is_bad = True  # nothing more is written behind it

    def _restore_order(self) -> None:
        """Read the last seqs of keys in all files of records but the newest."""
        path = self._folder / ORDER
        try:
            content = path.read_bytes()
            if _SUM.unpack(content[: _SUM.size])[0] != zlib.crc32(content[_SUM.size :]):
                raise ValueError("a wrong checksum")
            self.predecessors = Predecessors.unpack(content[_SUM.size :])
        except (OSError, ValueError, struct.error):
            told = (
                "%s is corrupt: pushes of a key may overtake those that were pushed before this "
                "producer was opened"
            )
            log.error(told, path, extra={"action": "spool_corrupt"})

    def _write_order(self) -> None:
        """Write the last seqs of keys, all of which are in records that are durable."""
        packed = self.predecessors.pack()
        write_durably(self._folder / ORDER, _SUM.pack(zlib.crc32(packed)) + packed)

    def _writable(self) -> SpoolSegment:
        last = self._segments[-1]
        if last.size >= self._segment_bytes or last.is_bad:
            last.sync()
            if self.header.format == IN_ORDER:
                self._write_order()
            self._segments.append(SpoolSegment.create(self._folder, self.next_seq))
        return self._segments[-1]

    def _fetch(self) -> None:
        """Read on until there is a batch, or nothing is left."""
        while not self._fetched:
            segment = self._segments[0]
            if self._offset < segment.size:
                self._read(segment)
            elif len(self._segments) > 1:
                self._drop(self._segments.popleft())
            else:
                return

    def _read(self, segment: SpoolSegment) -> None:
        base, size = self._offset, 0
        for found in scan(segment.read(base)):
            if found.batch is None:
                self._skip(segment, base + found.end)
            elif found.batch.last_seq > self.acked_seq:
                self._fetched.append(found.batch)
                size += found.batch.size
            self._offset = base + found.end
            if size >= READ_BYTES:
                return

    def _skip(self, segment: SpoolSegment, end: int) -> None:
        """Tell of bytes that are no record. Only the last file of a killed process may end torn."""
        log.error(
            "%s has %d damaged bytes from byte %d on: the pushes in them are lost, the rest is "
            "sent, and the file will be set aside",
            segment.path,
            end - self._offset,
            self._offset,
            extra={"action": "spool_corrupt"},
        )
        segment.is_bad = True

    def _drop(self, segment: SpoolSegment) -> None:
        """Delete a segment that is all sent, after the cursor that says so is made durable."""
        self._cursor.sync()
        segment.close()
        self._offset = 0
        if segment.is_bad:
            self._set_aside(segment.path)
        else:
            segment.path.unlink()


_SEGMENTS = 8
"""A full spool has at least so many files, so that sending one of them makes room."""

_LOCK = "lock"
_COMING = ".coming"
_GOING = ".going"


class SpoolFolder:
    """The spool in a folder, open until closed. `corrupt` names the files that were set aside.

    What a newer version has spooled is said, and left as it is for a process of that version.

    Raises:
        TaskConflict: another producer has it.
        BadInput: it cannot be used as a folder.
    """

    def __init__(self, path: Path, most_bytes: int = MAX_SPOOL_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._segment_bytes = min(SEGMENT_BYTES, most_bytes // _SEGMENTS)
        self.corrupt: list[str] = []
        self.spools: list[Spool] = []
        self._lock = _locked(path)
        try:
            for suffix in (_COMING, _GOING):  # what a kill has left half made or half removed
                for folder in self.path.glob(f"*{suffix}"):
                    shutil.rmtree(folder)
            found = (path.parent for path in self.path.glob(f"*/{HEADER}"))
            for folder in sorted(found):  # oldest first, as the ids of tasks sort by time
                if folder.suffix != CORRUPT:
                    self._open(folder)
        except BaseException:
            self.close()
            raise

    @property
    def bytes(self) -> int:
        """The bytes that its files take, without those that were set aside."""
        return sum(spool.bytes for spool in tuple(self.spools))

    @property
    def lost(self) -> int:
        return sum(spool.lost for spool in tuple(self.spools))

    def bytes_without(self, store: BatchStore) -> int:
        return sum(spool.bytes for spool in self.spools if spool is not store)

    def begin(self, header: Header, batches: Iterable[Batch] = ()) -> Spool:
        """Begin a task's spool with these batches, whole or not at all, even through a power cut.

        Raises StorageFull when there is no room for the batches.
        """
        coming = self.path / (header.task.id + _COMING)
        coming.mkdir(mode=0o700)
        try:
            self._fill(coming, header, batches)
        except BaseException:
            shutil.rmtree(coming)
            raise
        folder = coming.rename(self.path / header.task.id)
        sync(self.path)
        spool = self._spool(header, folder)
        self.spools.append(spool)
        return spool

    def remove(self, store: BatchStore) -> None:
        """Remove a spool that is sealed, or whose task has ended."""
        [spool] = [one for one in self.spools if one is store]
        self.spools = [one for one in self.spools if one is not spool]  # others may walk through it
        spool.finish()
        task_id = spool.header.task.id
        shutil.rmtree((self.path / task_id).rename(self.path / (task_id + _GOING)))

    def close(self) -> None:
        for spool in self.spools:
            spool.close()
        self._lock.close()

    def _fill(self, folder: Path, header: Header, batches: Iterable[Batch]) -> None:
        spool = self._spool(header, folder)
        try:
            for batch in batches:
                if not spool.append([batch], self._most_bytes - self.bytes):
                    raise StorageFull(
                        f"the spool {self.path} is full (it may take {self._most_bytes:,} bytes): "
                        "send first what is in it, or use another folder"
                    )
            spool.write_header()
        finally:
            spool.close()

    def _open(self, folder: Path) -> None:
        try:
            self.spools.append(self._spool(_header(folder), folder))
        except UnknownFormat as error:
            log.error("%s", error, extra={"action": "format_unknown"})
        except (msgspec.DecodeError, UnicodeDecodeError):
            aside = self._set_aside(folder)
            told = "the head of a spool is corrupt, so nothing of it can be sent: set aside as %s"
            log.error(told, aside, extra={"action": "spool_corrupt"})

    def _spool(self, header: Header, folder: Path) -> Spool:
        try:
            return Spool(folder, header, self._set_aside, self._segment_bytes)
        except UnknownFormat as error:
            raise UnknownFormat(error.version, str(folder)) from error

    def _set_aside(self, path: Path) -> Path:
        name = path.name if path.parent == self.path else f"{path.parent.name}-{path.name}"
        aside = path.rename(self.path / (name + CORRUPT))
        self.corrupt.append(str(aside))
        return aside


def _header(folder: Path) -> Header:
    """Read a header. Raises UnknownFormat for a newer version's, DecodeError for a damaged one."""
    content = (folder / HEADER).read_bytes()
    try:
        header = msgspec.json.decode(content, type=Header)
    except msgspec.ValidationError as error:  # it is whole, and yet not what we know
        raise UnknownFormat(0, str(folder)) from error
    for number, known in ((header.format, FORMAT), (header.task.format, task_bytes.FORMAT)):
        if number > known:
            raise UnknownFormat(number, str(folder))
    return header


def _locked(path: Path) -> FileLock:
    """Take the folder's lock; the kernel lets go of it when the process dies."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path / _LOCK)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be the folder of a spool: {error.strerror}; name a folder that this "
            "process may write to"
        ) from error
    if not lock.acquire():
        lock.close()
        raise TaskConflict(
            f"the spool {path} is used by another producer; give each process, and each producer "
            "in it, a folder of its own"
        )
    return lock
