"""What of a period is known from a sample only, in words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pushlane.pipeline.reports.query import Period
from pushlane.pipeline.store import Interval, Store
from pushlane.pipeline.store.reading import ADDITIVE

DAY_MS = 86_400_000
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


def notes(store: Store, period: Period) -> list[str]:
    """What a reader of this period has to know, a line each."""
    return [*_gone(store, period), *_sampled(sampled(store, period))]


def _gone(store: Store, period: Period) -> list[str]:
    """Detail rows may be kept for a shorter time than counts."""
    details, counts = (_first_ms(store, tables) for tables in (("detail",), ADDITIVE))
    if details is None or counts is None or counts // DAY_MS >= details // DAY_MS:
        return []
    if period.since_ms >= details:
        return []
    return [
        f"detail rows are kept from {utc_text(details)} on: --rows, and counts by several "
        "attributes, by attribute and reason, or of events by attribute, know none before"
    ]


def _first_ms(store: Store, tables: Iterable[str]) -> int | None:
    return min((each.min_ms for table in tables for each in store.entries(table)), default=None)


def _sampled(intervals: list[Interval]) -> list[str]:
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
