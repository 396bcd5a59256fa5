"""The port of dead addresses: suppressed at their sink, and recorded for who owns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pushlane.lanes.dead_address import AddressDeath, DeadAddressPage, DeadAddressQuery


class DeadAddresses(Protocol):
    """Keeps a record of each dead address until it is registered again or its time is over.

    There may be millions. Calls are batches, durable and harmless when repeated. What suppresses
    and what records, or undoes both, is one step: nothing is ever only half dead. A time of 0 is
    none.
    """

    async def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        """Suppress these addresses at the sink, and record those that have no record yet.

        One that was registered since it died is left alone. Each hash is named once. Returns the
        hashes that were recorded, now, at `at_ms`.
        """

    async def register(self, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        """Let these live: they are not suppressed at the sink any more, and have no record.

        `at_ms` is remembered, so that the news of an earlier death, when it comes late, changes
        nothing. Returns how many were suppressed.
        """

    async def page(self, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        """Return some of the records that fit, by when they were made."""

    async def forget(self, before_ms: int, most: int) -> int:
        """Forget records and registrations of before then, at most so many of each, oldest first.

        What is suppressed stays so. Returns how many were forgotten.
        """
