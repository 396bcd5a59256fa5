"""Keeps the batches of one task on disk, in files that are written once, sent in order and deleted.

A batch that was sent was durable here first: so no seq is given out twice, whatever happens. What a
kill has cut short at the end is cut off; a file with a changed byte is set aside, and what can
still be read of it is sent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import gethostname

from msgspec.structs import replace

from pushlane.core.errors import UnknownFormat
from pushlane.lanes.durable import write_durably
from pushlane.lanes.stored import as_json
from pushlane.producers.outbox.records import HEAD_BYTES, pack, scan
from pushlane.producers.outbox.segment import SUFFIX, Cursor, SpoolSegment
from pushlane.producers.outbox.store import READ_BYTES, Added, Batch, BatchStore, Header

log = logging.getLogger("pushlane.producer")

HEADER = "task.json"
SEGMENT_BYTES = 8 * 1024 * 1024

SetAside = Callable[[Path], Path]


class Spool(BatchStore):
    """The spool of one task, in a folder of its own that nobody else may have open.

    `set_aside` moves a corrupt file away, and says where to. `lost` counts the seqs that corrupt
    records have taken, since it was opened. A file is ended when it has `segment_bytes`. Raises
    UnknownFormat when a newer version has written it.
    """

    holds_room = False

    def __init__(
        self, folder: Path, header: Header, set_aside: SetAside, segment_bytes: int
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
            log.warning(
                "%s cannot note what is sent: %s",
                self._folder,
                error.strerror,
                extra={"action": "spool_full"},
            )

    def sync(self) -> None:
        for segment in self._segments:
            segment.sync()

    def seal(self) -> None:
        self.header = replace(self.header, is_sealed=True)
        self.write_header()

    def note_added(self, added: Added) -> None:
        self.header = replace(self.header, added=added)
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
        for found in scan(last.read(0), last.first_seq):
            self.next_seq = max(self.next_seq, found.next_seq)
            if found.is_torn:
                last.cut(found.start)
            elif found.batch is None:
                last.is_bad = True  # nothing more is written behind it

    def _writable(self) -> SpoolSegment:
        last = self._segments[-1]
        if last.size >= self._segment_bytes or last.is_bad:
            last.sync()
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
            "%s holds %d bytes that are no record any more, from byte %d on: what they held is "
            "lost, the rest is sent, and the file will be set aside",
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
