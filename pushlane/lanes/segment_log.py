"""The parts that every crash-safe log of segments shares: whole appends, and search in damage.

Two logs use them, and each has a format of its own, since files of both are kept by earlier
versions: the log of receipts (lanes.embedded.receipts), which several processes share and read at
any position, and a producer's spool (producers.outbox), which one process reads once, in order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress


def write_all(handle: int, content: bytes, offset: int) -> None:
    """Write all of the content at this offset. Raises OSError when the disk does not take it."""
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written


def append(handle: int, content: bytes, size: int, *, durably: bool = False) -> int:
    """Append to a file of this size, all or nothing; returns the new size.

    Raises:
        OSError: the disk does not take it; what an error left behind is cut off again.
    """
    try:
        write_all(handle, content, size)
        if durably:
            os.fdatasync(handle)
    except OSError:
        with suppress(OSError):  # the next append writes over it, or finds it torn
            os.ftruncate(handle, size)
        raise
    return size + len(content)


def marks(content: bytes, mark: bytes, start: int = 0) -> Iterator[int]:
    """Yield every offset from `start` on at which a record may begin, for it begins with `mark`."""
    while (start := content.find(mark, start)) >= 0:
        yield start
        start += 1
