"""The newest segment of a partition: recovered when others have changed it, and appended to."""

from __future__ import annotations

import os

from pushlane.lanes.embedded.receipts.records import LogSegment, is_torn, whole_until
from pushlane.lanes.segment_log import append


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
        whole = whole_until(self.file, start, size)
        if whole < size:
            if is_torn(self.file, whole, size):
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
