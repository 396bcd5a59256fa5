"""Bounds the time for which a lease, a claim, a turn, a place or a process's word can last.

All of them end at a time of the wall clock. When that is set back while their holder is dead, the
end is further away than they can last: then they are over. A step that is smaller keeps them for as
long as it was.
"""

from __future__ import annotations

_LONGEST_MS = 900_000  # far more than any time to live, but for claims at a very slow sink


def latest_ms(now_ms: int, ttl_ms: int = 0) -> int:
    """Return the latest end that something can have now; those of its kind are for `ttl_ms`."""
    return now_ms + max(_LONGEST_MS, 2 * ttl_ms)


def is_held(until_ms: int, now_ms: int) -> bool:
    """Return whether what ends at `until_ms` lasts still."""
    return now_ms < until_ms <= latest_ms(now_ms)
