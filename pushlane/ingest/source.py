"""The port of a source of records, and what it tells whoever makes pushes of them.

A source gives a process some of its partitions, and takes them away again, as processes come and
go. Everything here is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pushlane.core.errors import UserError
from pushlane.ingest.record import Record


class Given(NamedTuple):
    """A partition that this process has from now on.

    `source_id` is another for a source of the same name that was made anew. It has records from the
    offset `low` to below `high`.
    """

    partition: str
    source_id: str
    low: int
    high: int


class SourceChanged(UserError):
    """The source is not the one that was read before: all of it would be passed over in silence."""


class Receiver(Protocol):
    """Makes pushes of the records."""

    async def given(self, partitions: Sequence[Given]) -> Mapping[str, int]:
        """Take partitions over; return the offset from which each is to be read.

        Raises SourceChanged, and BadInput for records that are gone (`--on-gap`).
        """

    def take(self, partition: str, records: Sequence[Record]) -> None:
        """Take the next records of a partition; never waits. May ask for a pause."""

    def sought(self, partition: str) -> None:
        """Know that what comes from now on is from the offset of the last `seek` on."""

    async def let_go(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """Bring to an end what is in progress, some seconds at most; return what to commit."""

    def lost(self, partitions: Sequence[str]) -> None:
        """Drop partitions that others may have already; nothing of them is committed."""


class RecordSource(Protocol):
    """A topic, or something like it."""

    name: str

    @property
    def trouble(self) -> str:
        """Why it gives nothing now; empty when nothing is wrong."""

    async def run(self, receiver: Receiver) -> None:
        """Read until `close`; all that is given is taken away again before it returns.

        Raises Unreachable, Denied, and BadInput for no such source.
        """

    def pause(self, partition: str) -> None:
        """Give no more records of a partition; some may be on their way."""

    def resume(self, partition: str) -> None:
        """Give records of a partition again."""

    def seek(self, partition: str, offset: int) -> None:
        """Go on with this offset; tell `Receiver.sought` before the first record of there."""

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Note how far partitions are done, for the source's own tools. Raises Unreachable."""

    async def offset_at(self, partition: str, at_ms: int) -> int:
        """Return the first offset of this Unix time or later; the end where there is none."""

    async def ends(self) -> Mapping[str, int]:
        """Return the end of each partition that this process has, as far as it is known."""

    def close(self) -> None:
        """End `run`. Harmless when repeated."""
