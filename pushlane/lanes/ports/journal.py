"""The journal port: the durable record behind a fast registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol


class JournalPage(NamedTuple):
    """Some records of a journal, the oldest append first. A key may come again, in later pages too.

    `is_first` says that the reading begins here. Pages before it are to be forgotten. `position` is
    the place behind its last record, in the journal's own form; empty is before all.
    """

    records: Sequence[tuple[str, bytes]]
    is_first: bool = False
    position: bytes = b""


class Journal(Protocol):
    """The durable record of a fast registry: written first, and read to rebuild the registry.

    The last body of a key is the one that counts; earlier ones may go. An empty body removes the
    key, and may go as well.
    """

    async def append(self, key: str, body: bytes) -> None:
        """Return once the body is durable."""

    def pages(self) -> AsyncGenerator[JournalPage, None]:
        """Read it from the beginning to the end, at least one page, without holding it all.

        Removals may be missing. So whoever fills an old copy from this has to remove every key that
        the copy has besides.
        """

    def follow(self, after: bytes) -> AsyncGenerator[JournalPage, None]:
        """Read on behind a position, for ever: an empty page says that there is no more for now.

        Where records behind the position have gone, it begins with the next that is there.
        """

    async def close(self) -> None:
        """Close the connection; everything appended stays."""
