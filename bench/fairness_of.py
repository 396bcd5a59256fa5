"""How fair an order of deliveries is: pure functions over the order in which a sink got them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

WINDOW = 100


def share_error(levels: Sequence[str], entitled: Mapping[str, float]) -> float:
    """The worst difference, in picks, between any window of 100 picks and what is due in it.

    `entitled` gives each level's share; shares add up to 1.
    """
    if len(levels) < WINDOW:
        raise ValueError(f"{len(levels)} picks are fewer than one window of {WINDOW}")
    counts = Counter(levels[:WINDOW])
    worst = _error(counts, entitled)
    for gone, come in zip(levels, levels[WINDOW:], strict=False):
        counts[gone] -= 1
        counts[come] += 1
        worst = max(worst, _error(counts, entitled))
    return worst


def _error(counts: Mapping[str, int], entitled: Mapping[str, float]) -> float:
    return max(abs(counts.get(level, 0) - share * WINDOW) for level, share in entitled.items())


def longest_gap(levels: Sequence[str], level: str) -> int:
    """The most picks from one of this level to its next, 1 meaning that they follow each other."""
    longest = last = 0
    for place, other in enumerate(levels, start=1):
        if other == level:
            longest = max(longest, place - last)
            last = place
    return max(longest, len(levels) + 1 - last)


def jain(amounts: Iterable[float]) -> float:
    """Jain's fairness index: 1 when all got the same, 1/n when one got all.

    Source: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for
    resource allocation in shared computer systems", DEC-TR-301, 1984.
    """
    values = list(amounts)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0
