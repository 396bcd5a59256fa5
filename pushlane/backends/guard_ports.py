"""The ports that gates and guards ask: claims of pushes, limits, and what is known of recipients.

What holds for all ports is said in `core.ports`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from pushlane.core.push import Push
from pushlane.model.recipients import (
    AddressDeath,
    CapDay,
    DeadAddressPage,
    DeadAddressQuery,
    Mark,
    SuppressionScope,
)


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

    A claim that ran out, and a confirmation, is forgotten after a window of time. Calls are
    batches, atomic for each push, and harmless when repeated. No call names a push twice.
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
    """The answer to a `TokenAsk`: so many tokens are granted.

    With none granted, `wait_s` is the time in seconds after which `least` of them may be there.
    """

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
    """The key of one counter of a hard total: a subject, and the name of the limit's field.

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
    """How much of its limits a subject uses now, over all processes.

    `in_flight` counts the places that are held. `spent` has, by the name of the limit's field, what
    is spent of a hard total or leased to be spent.
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


class RecipientTurn(StrEnum):
    """The answer to a push that wants to go to its recipient."""

    GO = "go"
    """The push is the newest, and nothing else is on its way there."""
    BUSY = "busy"
    """The push is the newest, and an older one is on its way."""
    OVER = "over"
    """There is a newer push."""


class RecipientWindows(Protocol):
    """Remembers by a hash, for a window of time, what was sent to a recipient or waits for it.

    Calls are batches, atomic for each mark, and harmless when repeated. Marks of one call may have
    the same key, but not the same token too.
    """

    async def first(self, marks: Sequence[Mark], window_s: float | None = None) -> Sequence[bool]:
        """Return for each mark whether it is the first with its key; asked again, it still is.

        It is remembered for `window_s`, or as long as recipients are; a key that is asked for with
        a window is never asked for without one.
        """

    async def announce(self, marks: Sequence[Mark]) -> None:
        """Record that pushes with these tokens exist: the highest of a key is the newest."""

    async def enter(
        self, marks: Sequence[Mark], owner: str, ttl_s: float
    ) -> Sequence[RecipientTurn]:
        """Announce the marks, and let the newest of each key go, one at a time.

        The next may enter when that one has left, or after `ttl_s`. The owner of a turn gets the
        same answer again.
        """

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        """Record that these are no longer on their way, as far as they were this owner's."""

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> Collection[str]:
        """Count pushes to recipients on a day, each once; return those for which there is no room.

        `keys` has for each push its token, without spaces and colons, and the key of its recipient.
        A push has room when fewer than the cap allows were counted with its key on that day, of its
        level and in all. One that was counted has room whenever it is asked for again. What was
        counted is forgotten when the day is over everywhere.
        """

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        """Give back the room of pushes that were counted."""


class Suppressions(Protocol):
    """Keeps keyed hashes by scope (see `model.recipients`) until they are removed.

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
