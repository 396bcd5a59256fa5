"""Where a period begins or ends inside an hour or day that counts are kept by, in words."""

from __future__ import annotations

from pushlane.pipeline.reports.engine import ROLLED_UP_MS, Files
from pushlane.pipeline.reports.query import Period
from pushlane.pipeline.reports.sampling import utc_text


def notes(store: Files, period: Period) -> list[str]:
    """One line for each end that cuts such a step: its first instant decides for all of it."""
    ends = {period.since_ms: "is left out", period.until_ms: "is counted as a whole"}
    found = ((_cut(store, end_ms), what) for end_ms, what in ends.items())
    return [
        f"counts are kept by the {word} there: that of {utc_text(start_ms)} {what}"
        for (word, start_ms), what in found
        if word
    ]


def _cut(store: Files, end_ms: int) -> tuple[str, int]:
    """The longest step that may hold counts on both sides; no word for none."""
    for table, step_ms in reversed(ROLLED_UP_MS.items()):
        start_ms = end_ms - end_ms % step_ms
        if start_ms < end_ms and store.files(table, start_ms, start_ms + 1):
            return table.removesuffix("s"), start_ms
    return "", 0
