"""Formats times for people: an age, or a time with its offset."""

from __future__ import annotations

from datetime import datetime

from pushlane.producers.times import UNIT_S


def age_text(since_ms: int, now_ms: int) -> str:
    """Return the age in its largest unit: `5s`, `12m`, `3h`, `9d`; a dash for an unset time."""
    if not since_ms:
        return "-"
    age_s = max(0, now_ms - since_ms) // 1000
    for unit, unit_s in UNIT_S.items():
        if age_s >= unit_s:
            return f"{age_s // unit_s}{unit}"
    return "0s"


def time_text(at_ms: int) -> str:
    """Return local time to the second, with its offset; a dash for an unset time."""
    if not at_ms:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
