"""One thing that a task waits for, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pushlane.lanes.zones import zone_or_utc
from pushlane.model.presence import Resting, continued


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


def due_text(at_ms: int, now_ms: int, zone: str = "") -> str:
    """Return a time to come, without its date within a day; with a zone by its clock, too.

    One that is an hour away or more is rounded up to a minute.
    """
    is_near = at_ms - now_ms < _HOUR_MS
    seconds = ":%S" if at_ms % _MINUTE_MS and is_near else ""
    at_ms = at_ms if is_near else -(-at_ms // _MINUTE_MS) * _MINUTE_MS
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    date = "%Y-%m-%d " if at_ms - now_ms >= _DAY_MS else ""
    local = f" ({at.astimezone(zone_or_utc(zone)):%H:%M} in {zone})" if zone else ""
    return f"{at.strftime(f'{date}%H:%M{seconds}')} UTC{local if zone != 'UTC' else ''}"


_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


def resting_since(one: Resting, again_at_ms: int | None = None) -> str:
    """Return why something rests, since when, and when it is tried next if that is known.

    `again_at_ms` goes over the time that it says itself, as the first of several processes tries.
    """
    next_ms = one.again_at_ms if again_at_ms is None else again_at_ms
    next_try = f"; next try {clock(next_ms)}" if next_ms else ""
    return continued(one.why, f"since {clock(one.since_ms)}{next_try}", by=", ")
