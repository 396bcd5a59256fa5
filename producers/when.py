"""What a request says of when: refused where it cannot be meant.

These are the times of a whole task; those of single rows are read in row_times.
"""

from __future__ import annotations

from pushlane.lanes.errors import BadInput
from pushlane.lanes.quiet import parse_quiet
from pushlane.lanes.zones import find_zone
from pushlane.producers.request import SubmitRequest

LAST_MS = 32_503_680_000_000  # the year 3000: what shows times can still show it


def validate_times(request: SubmitRequest, now_ms: int) -> None:
    """Raises BadInput for times that have passed or are in the wrong order, hours and zones."""
    _validate_hours(request)
    start_ms, expires_at_ms = request.not_before_ms, request.expires_at_ms
    if start_ms and start_ms <= now_ms:
        raise BadInput(
            f"the start is {_ago(start_ms, now_ms)} in the past; leave it out to start now (a task "
            "submitted with this key before keeps its start)"
        )
    if start_ms > LAST_MS:
        raise BadInput("the start is after the year 3000; pause the task instead")
    if expires_at_ms and expires_at_ms <= now_ms:
        raise BadInput(
            f"the expiry is {_ago(expires_at_ms, now_ms)} in the past: nothing would be sent"
        )
    if expires_at_ms > LAST_MS:
        raise BadInput("the expiry is after the year 3000; leave it out for one that never comes")
    if expires_at_ms and expires_at_ms <= start_ms:
        early_s = (start_ms - expires_at_ms) / 1000
        raise BadInput(
            f"the task would expire {early_s:.0f} s before it starts: nothing would be sent; give "
            "a later expiry or an earlier start"
        )


def _validate_hours(request: SubmitRequest) -> None:
    if request.quiet:
        parse_quiet(request.quiet)
    if request.zone:
        find_zone(request.zone)
    uses = (request.quiet, request.not_before_column, request.expires_column)
    if (request.zone or request.zone_column) and not any(uses):
        raise BadInput(
            "a time zone says nothing without quiet hours or a column of times; add --quiet "
            "22:00-08:00, --not-before-column or --expires-column, or leave the zone out"
        )


def _ago(at_ms: int, now_ms: int) -> str:
    return f"{(now_ms - at_ms) / 1000:.0f} s"
