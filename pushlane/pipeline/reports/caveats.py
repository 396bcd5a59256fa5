"""Notes on an answer: what of its period is sampled, no longer kept, or cut by its ends."""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.pipeline.reports.engine import ROLLED_UP_MS
from pushlane.pipeline.reports.query import Period, utc_text
from pushlane.pipeline.store import SampledBatch, Store
from pushlane.pipeline.store.reading import ADDITIVE

DAY_MS = 86_400_000
_MOST_SHOWN = 5


def sampled(store: Store, period: Period) -> list[SampledBatch]:
    """Return the batches of the period whose detail rows are a sample, oldest first."""
    return [
        each
        for each in store.snapshot().intervals
        if each.state != "restored"
        and each.max_ms >= period.since_ms
        and each.min_ms < period.until_ms
    ]


def notes(store: Store, period: Period) -> list[str]:
    """Return what a reader of this period has to know, one line each."""
    return [
        *_cut_steps(store, period),
        *_gone(store, period),
        *_sampled(sampled(store, period)),
    ]


def _gone(store: Store, period: Period) -> list[str]:
    """Note if the period has counts whose detail rows are no longer kept."""
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


def _sampled(intervals: list[SampledBatch]) -> list[str]:
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


def _cut_steps(store: Store, period: Period) -> list[str]:
    """Note each end of the period that cuts an hour or day by which counts are kept.

    The first instant of such a step decides for all of it.
    """
    ends = {period.since_ms: "is left out", period.until_ms: "is counted as a whole"}
    found = ((_cut(store, end_ms), what) for end_ms, what in ends.items())
    return [
        f"counts are kept by the {word} there: that of {utc_text(start_ms)} {what}"
        for (word, start_ms), what in found
        if word
    ]


def _cut(store: Store, end_ms: int) -> tuple[str, int]:
    """Return the longest step that may hold counts on both sides of the end; no word for none."""
    for table, step_ms in reversed(ROLLED_UP_MS.items()):
        start_ms = end_ms - end_ms % step_ms
        if start_ms < end_ms and store.files(table, start_ms, start_ms + 1):
            return table.removesuffix("s"), start_ms
    return "", 0
