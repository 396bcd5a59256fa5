"""Frequency caps: how many pushes a recipient gets from an app in a day, by level and in all.

Pure. A day is the calendar day in the push's zone, else in its task's, else in UTC; pushes of all
zones with the same date count together. An app without a cap of its own has that of `app/*`, each
such app by itself: apps that are to share a cap have to be one app.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from pushlane.core.task import Level
from pushlane.core.turns import EVERY_APP
from pushlane.lanes.zones import zone_or_utc
from pushlane.model.limits import Limits
from pushlane.model.recipients import NO_CAP, Cap

ALL_LEVELS = "all"

_UNIX_DAY = datetime(1970, 1, 1).toordinal()
_MOST_ZONES = 1_024


class FrequencyCaps:
    """The caps that are set, by app and level."""

    def __init__(self, limits: Limits) -> None:
        self._apps = {
            subject.name: limit.recipient_a_day
            for subject, limit in limits.items()
            if subject.kind == "app" and limit.recipient_a_day
        }
        self._every = self._apps.pop(EVERY_APP, {})

    @property
    def is_none(self) -> bool:
        return not (self._apps or self._every)

    def has(self, app: str) -> bool:
        """Return whether any cap holds for an app."""
        return bool(self._apps.get(app, self._every))

    def of(self, app: str, level: Level) -> Cap | None:
        """Return what holds for an app's pushes of a level; None when nothing does."""
        given = self._apps.get(app, self._every)
        if level not in given and ALL_LEVELS not in given:
            return None
        return Cap(given.get(level, NO_CAP), given.get(ALL_LEVELS, NO_CAP))


class Calendar:
    """Tells the date in a zone, in days since 1970; looks into a zone's rules once a day."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._known: dict[str, tuple[int, int]] = {}

    def day(self, zone: str) -> int:
        """Return today's date in a zone: in UTC for one that this machine does not know."""
        now_ms = self._clock_ms()
        day, ends_ms = self._known.get(zone, (0, 0))
        if now_ms >= ends_ms:
            if len(self._known) >= _MOST_ZONES:
                self._known.clear()
            day, ends_ms = self._known[zone] = _looked_up(zone, now_ms)
        return day


def _looked_up(zone: str, now_ms: int) -> tuple[int, int]:
    """Return the date in a zone, and the Unix time in milliseconds at which it ends."""
    rules = zone_or_utc(zone)
    wall = datetime.fromtimestamp(now_ms / 1000, rules)
    morrow = wall.date() + timedelta(days=1)
    end = datetime(morrow.year, morrow.month, morrow.day, tzinfo=rules)
    return wall.toordinal() - _UNIX_DAY, round(end.timestamp() * 1000)
