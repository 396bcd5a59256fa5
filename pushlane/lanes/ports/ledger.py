"""The ledger port: the first to claim a push may deliver it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from pushlane.core.push import Push


class ClaimResult(StrEnum):
    """The ledger's answer to a claim on a push."""

    WON = "won"
    """The push is the caller's: nobody claimed it before, or the earlier claim was released."""

    UNKNOWN = "unknown"
    """The push is the caller's, but an earlier claim ran out, so it may have been sent already."""

    HELD = "held"
    """The push is another's, whose claim still runs."""

    CONFIRMED = "confirmed"
    """The push was delivered."""


class Ledger(Protocol):
    """Decides who may deliver a push: the first to claim it, as long as the ledger remembers.

    It forgets a claim that ran out, and a confirmation, after a window of time. Calls are batches,
    atomic for each push, and harmless when repeated. No push may be named twice in one call.
    """

    async def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> Sequence[ClaimResult]:
        """Return one result a push, in the same order. What is won or unknown is held for `ttl_s`.

        The owner of a claim gets the same result again, and its time starts anew. Two attempts at
        one push need different owners, in one process too. A durable claim outlives a power cut,
        as far as the store does.
        """

    async def confirm(self, pushes: Sequence[Push]) -> None:
        """Record that these pushes are delivered, whoever has claimed them."""

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        """Free the pushes that this owner still claims, since it did not deliver them."""
