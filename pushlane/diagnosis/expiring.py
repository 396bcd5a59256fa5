"""Tells of a task that it will not be through before it expires, and what would let it. Pure."""

from __future__ import annotations

import math

from pushlane.core.task import Task
from pushlane.diagnosis.situation import due_text

_CLOSE = 0.02  # of the time to its end: nobody can tell it better


def expiring_text(
    task: Task, left: int | None, ends_at_ms: float | None, now_ms: int
) -> str | None:
    """Return that a task expires before its end, and about how many pushes will with it.

    None where it does not, has expired already, or nobody can tell.
    """
    expires_ms = task.expires_at_ms
    if not left or ends_at_ms is None or expires_ms <= now_ms:
        return None
    late = expiring_pushes(left, expires_ms, task.not_before_ms, ends_at_ms, now_ms)
    if late is None:
        return None
    expires, ends = due_text(expires_ms, now_ms), due_text(round(ends_at_ms), now_ms)
    pushes = "1 push" if late == 1 else f"about {late:,} pushes"
    return f"it expires at {expires}, before its end at {ends}: {pushes} will expire"


def expiring_pushes(
    left: int, expires_ms: int, not_before_ms: int, ends_ms: float, now_ms: int
) -> int | None:
    """Return about how many of the pushes left expire before their turn, at an even rate.

    None for a task that ends in time. Times are Unix ms.
    """
    if ends_ms - expires_ms <= _CLOSE * (ends_ms - now_ms):
        return None
    starts_ms = max(now_ms, not_before_ms)
    late_ms = ends_ms - max(expires_ms, starts_ms)
    return _about(left * late_ms / max(1.0, ends_ms - starts_ms))


def _about(count: float) -> int:
    """Return a count in two digits, which is as well as it is known."""
    count = max(1, round(count))
    return round(count, min(0, 1 - math.floor(math.log10(count))))
