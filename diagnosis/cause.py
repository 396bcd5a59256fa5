"""One thing that a task waits for, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pushlane.lanes.presence import Resting, continued


@dataclass(frozen=True)
class Cause:
    """One thing that a task waits for. `name` is for programs, `since_ms` 0 where not known.

    One that is `final` holds all of the task. One `at_later` holds pushes that went on to a sink
    behind the first: when those will be through is not known.
    """

    name: str
    detail: str
    do: str = ""
    since_ms: int = 0
    final: bool = False
    at_later: bool = False


def clock(at_ms: int) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def resting_since(one: Resting, again_at_ms: int | None = None) -> str:
    """Return why something rests, since when, and when it is tried next if that is known.

    `again_at_ms` goes over the time that it says itself, as the first of several processes tries.
    """
    next_ms = one.again_at_ms if again_at_ms is None else again_at_ms
    next_try = f"; next try {clock(next_ms)}" if next_ms else ""
    return continued(one.why, f"since {clock(one.since_ms)}{next_try}", by=", ")
