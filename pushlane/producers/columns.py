"""Reads from columns when a row's push may go: its start, its expiry and its recipient's zone.

Read from the row alone, never from the time of the submit, so that a repeat makes the same pushes.
A reason names columns; of what they hold it shows only what looks like a zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pushlane.lanes.suggestions import nearest
from pushlane.lanes.zones import UTC, find_zone, known_zone
from pushlane.model.times import FIRST_MS, LAST_MS
from pushlane.producers.rows import BadRow
from pushlane.producers.task_options import TaskOptions

_SECONDS = re.compile(r"\d+(\.\d+)?")
_LIKE_A_ZONE = re.compile(r"[A-Za-z_]{2,20}(/[A-Za-z_+-]{2,20}){1,2}")
_MOST_HINTS = 100  # looking for the nearest zone takes milliseconds


RowTimes = tuple[int, int, str]
"""When a push may go and when it expires (Unix milliseconds, 0 for now and never), and its zone."""

Read = Callable[[Sequence[Any]], RowTimes | BadRow]


def read_times(options: TaskOptions, names: Sequence[str]) -> Read | None:
    """Return a function from a row's values, in the order of `names`, to its times, if any."""
    columns = time_columns(options)
    if not columns:
        return None
    at = {column: names.index(column) for column in columns.values()}
    zone_of = _zone_reader(options.zone_column, options.zone)

    def read(values: Sequence[Any]) -> RowTimes | BadRow:
        def value(column: str) -> Any:
            return values[at[column]] if column else None

        zone = zone_of(value(options.zone_column))
        if isinstance(zone, BadRow):
            return zone
        times = []
        for column in (options.not_before_column, options.expires_column):
            at_ms = moment_ms(value(column), zone)
            if at_ms is None:
                return _no_time(column)
            times.append(at_ms)
        start_ms, expires_at_ms = times
        if expires_at_ms and expires_at_ms <= start_ms:
            return _EXPIRES_FIRST
        return start_ms, expires_at_ms, zone.key if value(options.zone_column) else ""

    return read


def time_columns(options: TaskOptions) -> dict[str, str]:
    """Return the columns that times are read from, by what they hold."""
    columns = {
        "start": options.not_before_column,
        "expiry": options.expires_column,
        "time zone": options.zone_column,
    }
    return {role: column for role, column in columns.items() if column}


def moment_ms(value: Any, zone: ZoneInfo) -> int | None:
    """Return a time as Unix milliseconds, 0 for no value, None when it cannot be read.

    ISO text, Unix seconds, or what Parquet holds. Without a zone of its own it is in `zone`.
    """
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return 0
    try:
        at_ms = int(_seconds(value, zone) * 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return at_ms if FIRST_MS <= at_ms <= LAST_MS else None


def _seconds(value: Any, zone: ZoneInfo) -> float:
    if isinstance(value, str):
        value = Decimal(value) if _SECONDS.fullmatch(value) else datetime.fromisoformat(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=zone)
        return moment.timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), zone).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    return float(value)


def _zone_reader(column: str, default: str) -> Callable[[Any], ZoneInfo | BadRow]:
    """Return a function from what a row holds as its zone to the zone."""
    otherwise = find_zone(default) if default else UTC
    known: dict[str, ZoneInfo] = {}
    hints = 0

    def zone_of(value: Any) -> ZoneInfo | BadRow:
        nonlocal hints
        name = value.strip() if isinstance(value, str) else value
        if name is None or name == "":
            return otherwise
        if not isinstance(name, str):
            return _no_zone(column, "", with_hint=False)
        zone = known.get(name) or known_zone(name)
        if zone is None:
            hints += 1
            return _no_zone(column, name, with_hint=hints <= _MOST_HINTS)
        known[name] = zone
        return zone

    return zone_of


def _no_zone(column: str, name: str, *, with_hint: bool) -> BadRow:
    if not _LIKE_A_ZONE.fullmatch(name):
        return BadRow(f"has no IANA time zone like Europe/Berlin in {column!r}")
    near = nearest(name, available_timezones()) if with_hint else None
    hint = f" (nearest: {near})" if near else ""
    return BadRow(f"has the unknown time zone {name!r} in {column!r}{hint}")


def _no_time(column: str) -> BadRow:
    return BadRow(
        f"has no time in {column!r}: it takes an ISO time like 2030-01-31T18:00+01:00 or Unix "
        "seconds, from 2001 to 3000"
    )


_EXPIRES_FIRST = BadRow("expires before it may start")
