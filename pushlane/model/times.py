"""Times: as people write them, on the clocks of time zones, and the hours that are quiet.

Inside, a time is Unix milliseconds. A push may hold any number of 64 bits as one: whoever makes a
date of it brings it into the range of calendars first, so that no push can end a process. Zones are
IANA names, from the machine's own data or else from the tzdata package.

A time is quiet when the clock on the recipient's wall shows a time within the hours, so an hour
that a change of the clocks skips is never quiet, and one that comes twice is quiet twice.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

from pushlane.core.errors import BadInput
from pushlane.util.conversion import duration_ms, iso_ms, moment_ms, shown
from pushlane.util.texts import did_you_mean

HOUR_MS = 3_600_000
LAST_DATE_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def in_range_ms(at_ms: int) -> int:
    """Return the time, or the end of the range that it is nearest to."""
    return min(max(at_ms, 0), LAST_DATE_MS)


UTC = ZoneInfo("UTC")


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this name. Raises BadInput when there is none; says which is near."""
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


FIRST_MS = 978_307_200_000  # the year 2001: a number below it is no time in seconds
LAST_MS = 32_503_680_000_000  # the year 3000: what shows times can still show it
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")


def parse_expiry(text: str, now_ms: int) -> int:
    """Return when a task expires: a duration from now on (`90s`, `1h30m`, `2d`), or an ISO time.

    An ISO time without a zone is local. Raises BadInput when it is neither of them, or a time that
    has passed.
    """
    length_ms = duration_ms(text)
    expires_at_ms = iso_ms(text) if length_ms is None else now_ms + length_ms
    if expires_at_ms is None:
        raise BadInput(
            f"expiry {text!r} is neither a duration like 90s, 2h or 1d12h nor an ISO time like "
            "2030-01-31T18:00+01:00"
        )
    if expires_at_ms <= now_ms:
        raise BadInput(f"expiry {text!r} has passed: nothing would be sent; give a later one")
    return expires_at_ms


def parse_age(text: str) -> int:
    """Return the length of a duration in milliseconds. Raises BadInput when it is no duration."""
    return _length_ms("age", text)


AT_ONCE = "leave --not-before out"


def parse_start(not_before: str, delay: str, now_ms: int, at_once: str = AT_ONCE) -> int:
    """Return when a task starts: at a time of day or ISO time, or after a duration; 0 for now.

    A time of day is the next one, and local, as is an ISO time without a zone. Raises BadInput when
    both are given, one cannot be read, or the time has passed; `at_once` is how to start now.
    """
    if not_before and delay:
        raise BadInput("--not-before and --delay both say when the task starts; give one of them")
    if delay:
        length_ms = _length_ms("delay", delay)
        return now_ms + length_ms if length_ms else 0
    return _start_ms(not_before, now_ms, at_once) if not_before else 0


def check_start(start_ms: int, now_ms: int, at_once: str) -> None:
    """Raise BadInput for a start that has passed or never comes; 0 is now. `at_once` says how."""
    if start_ms and start_ms <= now_ms:
        raise BadInput(f"the start is {_ago(start_ms, now_ms)} in the past; {at_once}")
    if start_ms > LAST_MS:
        raise BadInput("the start is after the year 3000; pause the task instead")


def check_expiry(expires_at_ms: int, now_ms: int) -> None:
    """Raise BadInput for an expiry that has passed or lies too far away; 0 is never."""
    if expires_at_ms and expires_at_ms <= now_ms:
        raise BadInput(
            f"the expiry is {_ago(expires_at_ms, now_ms)} in the past: nothing would be sent"
        )
    if expires_at_ms > LAST_MS:
        raise BadInput("the expiry is after the year 3000; leave it out for one that never comes")


def check_order(start_ms: int, expires_at_ms: int) -> None:
    """Raise BadInput for an expiry that is not after the start."""
    if expires_at_ms and expires_at_ms <= start_ms:
        early_s = (start_ms - expires_at_ms) / 1000
        raise BadInput(
            f"the task would expire {early_s:.0f} s before it starts: nothing would be sent; give "
            "a later expiry or an earlier start"
        )


def _ago(at_ms: int, now_ms: int) -> str:
    return f"{(now_ms - at_ms) / 1000:.0f} s"


def parse_since(text: str, now_ms: int) -> int:
    """Return a time in the past: a duration ago, or an ISO time, which is local without a zone.

    Raises BadInput when it is neither of them, or a time to come.
    """
    length_ms = duration_ms(text)
    since_ms = iso_ms(text) if length_ms is None else max(0, now_ms - length_ms)
    if since_ms is None:
        raise BadInput(
            f"since {text!r} is neither a duration like 90s, 2h or 1d12h nor an ISO time like "
            "2026-01-31T18:00+01:00"
        )
    if since_ms > now_ms:
        raise BadInput(f"since {text!r} is still to come; give a time that has passed")
    return since_ms


def parse_retention(text: str) -> float:
    """Return a duration in seconds; 0 keeps nothing. Raises BadInput for what is no duration."""
    return 0.0 if text == "0" else _length_ms("retention", text, ", nor 0 for none") / 1000


def _start_ms(text: str, now_ms: int, at_once: str) -> int:
    start_ms = _next_ms(text, now_ms) if _TIME_OF_DAY.fullmatch(text) else iso_ms(text)
    if start_ms is None:
        raise BadInput(
            f"start {text!r} is neither a time of day like 09:00 nor an ISO time like "
            "2030-01-31T18:00+01:00; for a duration use --delay"
        )
    if start_ms <= now_ms:
        raise BadInput(f"start {text!r} has passed; {at_once} to start now")
    return start_ms


def _next_ms(time_of_day: str, now_ms: int) -> int:
    """Return the next time, today or tomorrow, at which the local clock shows this."""
    hour, minute = map(int, time_of_day.split(":"))
    at = datetime.fromtimestamp(now_ms / 1000).replace(
        hour=hour, minute=minute, second=0, microsecond=0
    )
    if at.timestamp() * 1000 <= now_ms:
        at += timedelta(days=1)
    return int(at.timestamp() * 1000)


def given_start_ms(what: str, value: Any, now_ms: int) -> int:
    """Return a start that a program gives, 0 for now. Raises BadInput when it is no time."""

    def read(text: str) -> int | None:
        return _next_ms(text, now_ms) if _TIME_OF_DAY.fullmatch(text) else None

    return moment_ms(what, value, now_ms, read)


def given_since_ms(what: str, value: Any, now_ms: int) -> int:
    """Return a past time that a program gives. Raises BadInput for no time, or one to come."""
    numeral = value.strip().isdecimal() if isinstance(value, str) else False
    if isinstance(value, str) and not numeral:
        return parse_since(value, now_ms)
    since_ms = moment_ms(what, -value if isinstance(value, timedelta) else value, now_ms)
    if not 0 <= since_ms <= now_ms:
        raise BadInput(f"{what} {shown(value)} is not in the past; give an earlier time")
    return since_ms


def _length_ms(what: str, text: str, otherwise: str = "") -> int:
    length_ms = duration_ms(text)
    if length_ms is None:
        raise BadInput(f"{what} {text!r} is not a duration like 90s, 2h or 1d12h{otherwise}")
    return length_ms


_DAY_S = 86_400
_LATEST_S = LAST_DATE_MS // 1000 - 4 * _DAY_S  # what is added to it has a date too
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
    """Return the hours in a text like `22:00-08:00`. Raises BadInput when they cannot be."""
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
