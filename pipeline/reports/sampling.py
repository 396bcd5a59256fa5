"""What of a period is known from a sample only, in words."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.reports.query import Period
from pipeline.store import Interval, Store

_MOST_SHOWN = 5


def sampled(store: Store, period: Period) -> list[Interval]:
    """The batches of the period whose detail rows are a sample, oldest first."""
    return [
        each
        for each in store.snapshot().intervals
        if each.state != "restored"
        and each.max_ms >= period.since_ms
        and each.min_ms < period.until_ms
    ]


def notes(intervals: list[Interval]) -> list[str]:
    """One line for each stretch of time, and what it means."""
    if not intervals:
        return []
    shown = [
        f"{utc_text(each.min_ms)} to {utc_text(each.max_ms)}: detail rows hold "
        f"{each.rate:.0%} of the delivered ({each.why})"
        for each in intervals[:_MOST_SHOWN]
    ]
    more = len(intervals) - len(shown)
    rest = [f"and {more} more such stretches"] if more > 0 else []
    return [
        *shown,
        *rest,
        "counts by attributes in these stretches are estimated from the sample; all others are "
        "exact",
    ]


def utc_text(at_ms: int) -> str:
    """To the minute, as reports show times."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
