"""The suppressions port: hashes of recipients and addresses that must not be sent to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pushlane.lanes.suppression import SuppressionScope


class Suppressions(Protocol):
    """Keeps keyed hashes by scope (see `lanes.recipient_hash`) until they are removed.

    There may be millions. Calls are batches, durable and harmless when repeated.
    """

    async def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        """Suppress these in the scope; return how many were not suppressed there before."""

    async def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        """Suppress these no longer in the scope; return how many were."""

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove all of a scope."""

    async def counts(self) -> dict[SuppressionScope, int]:
        """Return how many are suppressed in each scope that has any. Cheap: asked every second."""

    async def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> Mapping[SuppressionScope, Collection[int]]:
        """Return by scope those of the hashes that are suppressed there."""
