"""Reads the times that a task is to have from now on, as people and programs give them."""

from __future__ import annotations

from datetime import datetime, timedelta

from pushlane.core.errors import BadInput
from pushlane.model.task_changes import NewTimes
from pushlane.model.times import given_start_ms, parse_expiry, parse_start
from pushlane.util.conversion import moment_ms, text

NOW = "now"
NONE = "none"

Moment = int | datetime | timedelta | str


def read_new_times(
    not_before: str | None,
    delay: str | None,
    expires: str | None,
    quiet: str | None,
    zone: str | None,
    now_ms: int,
) -> NewTimes:
    """Return the times in texts as `submit` takes them; `now` is a start, and `none` takes away.

    Raises BadInput when there is none, two are for the start, or one cannot be read.
    """
    start_ms = None
    if not_before is not None or delay is not None:
        at = "" if _is(not_before, NOW) and delay is None else not_before or ""
        start_ms = parse_start(at, delay or "", now_ms, "give --not-before now")
    expires_at_ms = None
    if expires is not None:
        expires_at_ms = 0 if _is(expires, NONE) else parse_expiry(expires, now_ms)
    return _some(
        NewTimes(
            not_before_ms=start_ms,
            expires_at_ms=expires_at_ms,
            quiet="" if _is(quiet, NONE) else quiet,
            zone=zone,
        ),
        "--not-before, --delay, --expires, --quiet or --zone",
    )


def given_new_times(
    not_before_ms: Moment | None,
    expires_at_ms: Moment | None,
    quiet: str | None,
    zone: str | None,
    now_ms: int,
) -> NewTimes:
    """Return the times that a program gives, each as it has just one meaning.

    Raises BadInput when there is none, or one cannot be read.
    """
    start_ms = expiry_ms = None
    if not_before_ms is not None:
        is_now = _is(not_before_ms, NOW)
        start_ms = 0 if is_now else given_start_ms("not_before_ms", not_before_ms, now_ms)
    if expires_at_ms is not None:
        is_none = _is(expires_at_ms, NONE)
        expiry_ms = 0 if is_none else moment_ms("expires_at_ms", expires_at_ms, now_ms)
    return _some(
        NewTimes(
            not_before_ms=start_ms,
            expires_at_ms=expiry_ms,
            quiet="" if _is(quiet, NONE) else None if quiet is None else text("quiet", quiet),
            zone=None if zone is None else text("zone", zone),
        ),
        "not_before_ms, expires_at_ms, quiet or zone",
    )


def _is(given: object, word: str) -> bool:
    return isinstance(given, str) and given.strip().lower() == word


def _some(times: NewTimes, names: str) -> NewTimes:
    if times == NewTimes():
        raise BadInput(f"there is nothing to change; give {names}")
    return times
