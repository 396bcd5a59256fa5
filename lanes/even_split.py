"""Shares of a limit, as even as what there is allows. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def spread(available: Sequence[int], most: int) -> list[int]:
    """How much to take of each, `most` over all: who has little gives its room to the others."""
    shares = [0] * len(available)
    left = most
    by_size = sorted(range(len(available)), key=lambda index: available[index])
    for position, index in enumerate(by_size):
        fair = -(-left // (len(by_size) - position))
        shares[index] = min(available[index], fair)
        left -= shares[index]
    return shares
