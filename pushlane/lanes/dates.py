"""The range of times in which calendars count: 1970 to 9999, in Unix milliseconds.

A push may hold any number of 64 bits as a time. Whoever makes a date of one brings it into this
range first, so that no push can end a process.
"""

from __future__ import annotations

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def in_range_ms(at_ms: int) -> int:
    """Return the time, or the end of the range that it is nearest to."""
    return min(max(at_ms, 0), LAST_MS)
