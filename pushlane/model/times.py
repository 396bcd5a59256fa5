"""Times as people write them: `2h`, `09:00`, an ISO time. Inside they are Unix milliseconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.util.conversion import duration_ms, iso_ms, moment_ms, shown

FIRST_MS = 978_307_200_000  # the year 2001: a number below it is no time in seconds
LAST_MS = 32_503_680_000_000  # the year 3000: what shows times can still show it
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")


def parse_expiry(text: str, now_ms: int) -> int:
    """Return when a task expires: a duration from now on (`90s`, `1h30m`, `2d`), or an ISO time.

    An ISO time without a zone is local.

    Raises:
        BadInput: neither of them, or a time that has passed.
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
    """Return the length of a duration in milliseconds.

    Raises:
        BadInput: it is no duration.
    """
    return _length_ms("age", text)


def parse_start(not_before: str, delay: str, now_ms: int) -> int:
    """Return when a task starts: at a time of day or ISO time, or after a duration; 0 for now.

    A time of day is the next one, and local, as is an ISO time without a zone.

    Raises:
        BadInput: both are given, one cannot be read, or the time has passed.
    """
    if not_before and delay:
        raise BadInput("--not-before and --delay both say when the task starts; give one of them")
    if delay:
        length_ms = _length_ms("delay", delay)
        return now_ms + length_ms if length_ms else 0
    return _start_ms(not_before, now_ms) if not_before else 0


def parse_since(text: str, now_ms: int) -> int:
    """Return a time in the past: a duration ago, or an ISO time, which is local without a zone.

    Raises:
        BadInput: neither of them, or a time to come.
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


def _start_ms(text: str, now_ms: int) -> int:
    start_ms = _next_ms(text, now_ms) if _TIME_OF_DAY.fullmatch(text) else iso_ms(text)
    if start_ms is None:
        raise BadInput(
            f"start {text!r} is neither a time of day like 09:00 nor an ISO time like "
            "2030-01-31T18:00+01:00; for a duration use --delay"
        )
    if start_ms <= now_ms:
        raise BadInput(f"start {text!r} has passed; leave --not-before out to start now")
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
    """Return a start that a program gives, 0 for now: as any time, or as a time of day.

    Raises:
        BadInput: it is no time.
    """

    def read(text: str) -> int | None:
        return _next_ms(text, now_ms) if _TIME_OF_DAY.fullmatch(text) else None

    return moment_ms(what, value, now_ms, read)


def given_since_ms(what: str, value: Any, now_ms: int) -> int:
    """Return a time in the past that a program gives; a text is as in `parse_since`.

    Raises:
        BadInput: it is no time, or one to come.
    """
    numeral = value.strip().isdecimal() if isinstance(value, str) else False
    if isinstance(value, str) and not numeral:
        return parse_since(value, now_ms)
    since_ms = moment_ms(what, -value if isinstance(value, timedelta) else value, now_ms)
    if not 0 <= since_ms <= now_ms:
        raise BadInput(f"{what} {shown(value)} is no time that has passed; give an earlier one")
    return since_ms


def _length_ms(what: str, text: str, otherwise: str = "") -> int:
    length_ms = duration_ms(text)
    if length_ms is None:
        raise BadInput(f"{what} {text!r} is not a duration like 90s, 2h or 1d12h{otherwise}")
    return length_ms
