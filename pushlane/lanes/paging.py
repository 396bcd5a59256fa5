"""Takes long lists in pages, so that others have their turn between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def paged(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield so many items at a time, fewer at the end."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
