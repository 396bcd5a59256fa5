"""Time zones by their IANA names, from the machine's own data or else from the tzdata package."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pushlane.core.errors import BadInput
from pushlane.lanes.suggestions import did_you_mean

UTC = ZoneInfo("UTC")


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this name.

    Raises:
        BadInput: there is none; says which is near.
    """
    zone = known_zone(name)
    if zone is None:
        hint = did_you_mean(name, available_timezones())
        raise BadInput(f"unknown time zone {name!r}; use an IANA name like Europe/Berlin{hint}")
    return zone


def zone_or_utc(name: str) -> ZoneInfo:
    """Return the zone in which a task or a push is kept to its hours.

    That is UTC without a name, and for one that this machine does not know: its data may be older
    than those of the machine that submitted.
    """
    return (known_zone(name) if name else None) or UTC


@lru_cache(maxsize=1024)
def known_zone(name: str) -> ZoneInfo | None:
    """Return the zone of this name, None when this machine knows none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones, or no zone file
        return None
