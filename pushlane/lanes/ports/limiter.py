"""The limiter port: rates, in-flight caps and totals that all processes share, leased in parts.

A process leases a little ahead and spends it in memory, so that no push waits for the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class TokenAsk(NamedTuple):
    """A wish for tokens of a subject's rate: up to `wanted`, but no fewer than `least`.

    `burst` is how many tokens gather at most while nobody asks. More than that may be asked for:
    then the subject goes into debt, and gets nothing more until that is paid off.
    """

    subject: str
    rate_per_s: float
    burst: float
    wanted: float
    least: float


class TokenGrant(NamedTuple):
    """How many tokens were granted; when none were, `wait_s` is when `least` may be there."""

    tokens: float
    wait_s: float


class TokenReturn(NamedTuple):
    """Tokens of a subject that were not used; no more than `burst` are kept."""

    subject: str
    burst: float
    tokens: float


class PlaceAsk(NamedTuple):
    """A wish for places under a subject's in-flight cap, `wanted` in all.

    `in_use` is how many pushes of this holder are in flight now: so many are counted as its own in
    any case, since they cannot be called back.
    """

    subject: str
    cap: int
    wanted: int
    in_use: int


class Tally(NamedTuple):
    """What a hard total counts: `what` is the name of the limit's field.

    `day` is the day in UTC of a daily total, like 2026-11-23, and empty for others.
    """

    subject: str
    what: str
    day: str = ""


class TotalAsk(NamedTuple):
    """A wish to have been allotted `wanted` of a tally in all, of which `used` is spent already.

    `holder` is one life of one process's share: numbers of a holder only count its own.
    """

    tally: Tally
    limit: float
    holder: str
    used: float
    wanted: float


class Usage(NamedTuple):
    """What the store knows of a subject: places that are held, and what its tallies have spent.

    What processes have leased and not spent yet is in it.
    """

    in_flight: int
    spent: dict[str, float]


class Limiter(Protocol):
    """Leases what limits allow: all processes together never get more than that.

    Calls are batches, one answer an ask in the same order, and each ask is atomic. No subject or
    tally of one holder may be asked for twice in a call. A limit comes with each ask, so that a
    change of it counts from the next one on.
    """

    async def lease_tokens(self, asks: Sequence[TokenAsk]) -> Sequence[TokenGrant]:
        """Take tokens of rates. In any time no more is granted than the rate and one burst.

        The burst is that of one push when it costs more.
        """

    async def return_tokens(self, returns: Sequence[TokenReturn]) -> None:
        """Give back tokens that were granted and not used. Repeated, it may give back too many."""

    async def hold_places(
        self, asks: Sequence[PlaceAsk], holder: str, ttl_s: float
    ) -> Sequence[int]:
        """Return how many places the holder may fill from now on, for `ttl_s`.

        These may be fewer than it had, or even uses: then it fills none until enough have landed,
        so that holders who all want more than there is come to have about the same. One that has
        none comes before who has any. Fewer than it has may be wanted, which gives the others back.
        Harmless when repeated.
        """

    async def lease_totals(self, asks: Sequence[TotalAsk]) -> Sequence[float]:
        """Return how much the holder is allotted in all from now on; harmless when repeated.

        All holders' parts are never more than the limit, unless it is lowered. Less than it has may
        be wanted, but never less than it used. What a holder was allotted and never gave back
        counts as spent.
        """

    async def usage(self, subjects: Sequence[str], day: str) -> Sequence[Usage]:
        """Return what is held and spent of each subject, of daily totals that of this day."""

    async def forget(self, subjects: Sequence[str]) -> None:
        """Forget all that is held and spent of these subjects: totals begin at nothing again."""
