"""Quiet hours: when recipients are left alone, by the clock on their own wall.

Pure. A time is quiet when that clock shows a time within the hours, so an hour that a change of
the clocks skips is never quiet, and one that comes twice is quiet twice.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from pushlane.core.errors import BadInput
from pushlane.lanes.dates import LAST_MS, in_range_ms

_DAY_S = 86_400
_LATEST_S = LAST_MS // 1000 - 4 * _DAY_S  # what is added to it has a date too
_FORM = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)")


class QuietHours(msgspec.Struct, frozen=True):
    """From `start_s` up to `end_s`, seconds of the day; over midnight when the end is first."""

    start_s: int
    end_s: int

    def __str__(self) -> str:
        return f"{_clock(self.start_s)}-{_clock(self.end_s)}"

    def holds(self, wall_s: int) -> bool:
        """Return whether it is quiet at this second of the day."""
        if self.start_s < self.end_s:
            return self.start_s <= wall_s < self.end_s
        return wall_s >= self.start_s or wall_s < self.end_s


@lru_cache(maxsize=256)
def parse_quiet(text: str) -> QuietHours:
    """Return the hours in a text like `22:00-08:00`.

    Raises:
        BadInput: not of that form, or the same time twice.
    """
    found = _FORM.fullmatch(text.strip())
    start_h, start_min, end_h, end_min = map(int, found.groups()) if found else (0, 0, 0, 0)
    if not found or end_h * 60 + end_min > 24 * 60:
        raise BadInput(f"quiet hours {text!r} are not of the form HH:MM-HH:MM; try 22:00-08:00")
    start_s = start_h * 3600 + start_min * 60
    end_s = (end_h * 3600 + end_min * 60) % _DAY_S
    if start_s == end_s:
        raise BadInput(
            f"quiet hours {text!r} begin and end at the same time: that is never or always; leave "
            "them out, or pause the task"
        )
    return QuietHours(start_s, end_s)


def quiet_until_ms(hours: QuietHours, zone: ZoneInfo, at_ms: int) -> int:
    """Return the first time from `at_ms` on that is not quiet: `at_ms` itself when it is not.

    Assumes that a zone's clocks are changed at most once within these hours. Before 1970 it is as
    quiet as at the beginning of that year, and from the last days of 9999 on as it is on them.
    """
    at_s = min(in_range_ms(at_ms) // 1000, _LATEST_S)
    wall_s, offset_s = _wall_s(at_s, zone)
    if not hours.holds(wall_s):
        return at_ms
    while hours.holds(wall_s):
        end_s = at_s + (hours.end_s - wall_s) % _DAY_S
        at_s = _change_s(zone, at_s, end_s, offset_s)
        wall_s, offset_s = _wall_s(at_s, zone)
    return max(at_ms, at_s * 1000)


def _change_s(zone: ZoneInfo, from_s: int, to_s: int, offset_s: int) -> int:
    """Return when the clocks are changed in between, `to_s` when they are not."""
    if _wall_s(to_s, zone)[1] == offset_s:
        return to_s
    while to_s - from_s > 1:
        middle_s = (from_s + to_s) // 2
        if _wall_s(middle_s, zone)[1] == offset_s:
            from_s = middle_s
        else:
            to_s = middle_s
    return to_s


def _wall_s(at_s: int, zone: ZoneInfo) -> tuple[int, int]:
    """Return the time on the wall as a second of the day, and how far it is ahead of UTC."""
    wall = datetime.fromtimestamp(at_s, zone)
    offset = wall.utcoffset()
    offset_s = offset.days * _DAY_S + offset.seconds if offset is not None else 0
    return wall.hour * 3600 + wall.minute * 60 + wall.second, offset_s


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}"
