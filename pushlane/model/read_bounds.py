"""What one read through all receipts may take: of their log, or of the store of reports."""

from __future__ import annotations

from typing import NamedTuple


class ReadBounds(NamedTuple):
    """The bounds of a read; those that are None are not there.

    `most_receipts` of the log are counted at most, `memory` is that of queries on the store. A read
    that `gives_way` takes half of the time that there is, and leaves the rest to others. A page of
    the log ends after `page_s`, with what was found.
    """

    at_once: int | None = None
    most_s: float | None = None
    most_receipts: int = 5_000_000
    most_rows: int = 1_000_000
    memory: str = "2GB"
    gives_way: bool = False
    page_s: float | None = None


NO_BOUNDS = ReadBounds()
"""Of a command, which has a process of its own."""

AT_A_SERVER = ReadBounds(
    at_once=2,
    most_s=50.0,
    most_receipts=1_000_000,
    most_rows=10_000,
    memory="512MB",
    gives_way=True,
    page_s=1.0,
)
"""Of a process that answers others meanwhile; a client waits for 60 s."""
