"""What a limiter answers to one ask, from what it knows: for stores that decide in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pushlane.backends.guard_ports import (
    PlaceAsk,
    TokenAsk,
    TokenGrant,
    TotalAsk,
)


class Holding(NamedTuple):
    """What one holder has and wants of a cap, and when it last had any."""

    held: int
    wanted: int
    since_ms: int


def leased(
    ask: TokenAsk, known: tuple[float, int] | None, now: int
) -> tuple[TokenGrant, tuple[float, int]]:
    """Return what is granted of a rate, and the tokens that are left with the time of that."""
    tokens = ask.burst
    if known is not None:
        kept, at_ms = known
        tokens = min(ask.burst, kept + max(0, now - at_ms) * ask.rate_per_s / 1000)
    enough = min(ask.least, ask.burst)
    if tokens < enough:
        return TokenGrant(0.0, (enough - tokens) / ask.rate_per_s), (tokens, now)
    granted = max(ask.least, min(ask.wanted, tokens))
    return TokenGrant(granted, 0.0), (tokens - granted, now)


def placed(
    ask: PlaceAsk, known: Mapping[str, Holding], holder: str, now: int
) -> tuple[int, Holding]:
    """Return how many places a holder may fill, and what it holds from now on.

    What the others have, and what is due to them, is not to be had.
    """
    before = known.get(holder, Holding(0, 0, now))
    since_ms = now if before.held else before.since_ms
    others = [one for name, one in known.items() if name != holder]
    share = ask.cap // (1 + sum(one.wanted > 0 for one in others))
    taken = sum(max(one.held, _due(one, share, since_ms)) for one in others)
    places = max(0, min(ask.wanted, ask.cap - taken))
    held = max(ask.in_use, places)
    return places, Holding(held, ask.wanted, now if held else since_ms)


def _due(other: Holding, share: int, since_ms: int) -> int:
    """Return how many places are kept for another who waits for them."""
    if share:
        return min(other.wanted, share)
    return int(not other.held and other.wanted > 0 and other.since_ms < since_ms)


def allotted(ask: TotalAsk, known: Mapping[str, float]) -> float:
    """Return how much of a total a holder has from now on; `known` is what each has."""
    others = sum(amount for holder, amount in known.items() if holder != ask.holder)
    return max(ask.used, min(ask.wanted, ask.limit - others))
