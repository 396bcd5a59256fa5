"""How the wait of a push is told: a label and a sentence for each cause, and how parts are summed.

All that shows waits takes its words from here, so one push is told the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from pushlane.model.waits import Cause

NOT_TOLD = "not known: written by an older version"
OTHER = "other"
WAITED = "waited"
"""Stands for the whole of a wait, where others stand for the part of one cause."""

_MOST_PARTS = 4
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000}
_LARGE = 9.95

_WORDS = {
    Cause.START: ("start of its task", "The start of its task was still to come."),
    Cause.DELAY: (
        "its own delay",
        "Its own time was to come, or too many waited for theirs.",
    ),
    Cause.QUIET: ("quiet hours", "Its recipient had quiet hours."),
    Cause.FORMAT: ("a newer version", "Its lane needed a process of a newer version."),
    Cause.PAUSED: ("task paused", "Its task was paused."),
    Cause.BREAKER: ("sink resting", "The sink rested, or was tried with few slots."),
    Cause.LIMIT: ("limits", "A limit of its task, its app, its sink or of all had no room."),
    Cause.KEYS: ("earlier push of its key", "An earlier push of the same key came first."),
    Cause.DURABLE: ("outcomes not durable", "Outcomes of other pushes were not durable yet."),
    Cause.FEED: ("broker", "The broker had not handed it over yet."),
    Cause.REGISTRY: ("registry", "The registry was asked for its task."),
    Cause.SLOT: ("sink's capacity", "No slot was free, while its own task had turns."),
    Cause.POOL: ("pool lane", "No slot was free, while its pool lane had turns."),
    Cause.SHARE: ("others' turns", "Other tasks had their turns, by weights and quotas."),
    Cause.CLAIM: ("guards", "Checks before its delivery: claim, recipient, address."),
    Cause.UNSEEN: ("no dispatcher", "No running dispatcher had its lane open."),
    Cause.TRIED: ("earlier attempts", "Earlier attempts were at the sink."),
    Cause.RETRY: ("backoff", "It waited between two attempts."),
    WAITED: ("all together", "From when it was submitted to when it was sent."),
    OTHER: (OTHER, "All other causes."),
}


class Part(Protocol):
    """The part that one cause has in the waits of `n` pushes, `total_ms` in all."""

    @property
    def cause(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def total_ms(self) -> int: ...


class WaitPart(NamedTuple):
    """The part that one cause has in the waits of many pushes: `n` of them had it. Times are ms.

    Of the cause `WAITED` it is the whole wait of the `n` pushes of which parts are known. Quantiles
    are over the `n` pushes.
    """

    cause: str
    n: int
    total_ms: int
    p50_ms: int
    p95_ms: int


def label(cause: str) -> str:
    """Return what a cause is called, in a word or three; one of a newer version has its name."""
    return _WORDS.get(cause, (cause, ""))[0]


def sentence(cause: str) -> str:
    """Return what a cause means; an empty text of one that a newer version has."""
    return _WORDS.get(cause, (cause, ""))[1]


def parts_of(waits: Mapping[str, int], most: int = _MOST_PARTS) -> list[tuple[str, int]]:
    """Return causes with their ms, the largest first: at most so many, and then `OTHER`."""
    parts = sorted(((cause, ms) for cause, ms in waits.items() if ms > 0), key=lambda one: -one[1])
    rest = sum(ms for _, ms in parts[most:])
    return [*parts[:most], *([(OTHER, rest)] if rest else [])]


def told(waits: Mapping[str, int] | None) -> str:
    """Return where a wait went, like `41 min: 33 min quiet hours, 8 min others' turns`."""
    if waits is None:
        return NOT_TOLD
    parts = parts_of(waits)
    total = took_text(sum(ms for _, ms in parts))
    if len(parts) > 1:
        return f"{total}: " + ", ".join(f"{took_text(ms)} {label(cause)}" for cause, ms in parts)
    return f"{total}: {label(parts[0][0])}" if parts else total


def told_of_many(parts: Iterable[Part]) -> str:
    """Return the same of the mean of many pushes, by the parts of their waits; empty for none."""
    found = {one.cause: one for one in parts}
    whole = found.pop(WAITED, None)
    if whole is None or not whole.n:
        return ""
    return told({cause: round(one.total_ms / whole.n) for cause, one in found.items()})


def told_if_sent(waits: Mapping[str, int] | None, dispatched_at_ms: int | None) -> str:
    """Return the same of a receipt; a dash for an event, and for what was never sent."""
    return told(waits) if waits or dispatched_at_ms else "-"


def took_text(ms: float) -> str:
    """Return a duration in its largest unit, like `340 ms`, `3.2 s` or `41 min`."""
    for unit, unit_ms in _UNITS_MS.items():
        value = ms / unit_ms
        if value >= 1:
            number = f"{value:.0f}" if value >= _LARGE else f"{value:.1f}".removesuffix(".0")
            return f"{number} {unit}"
    return f"{ms:.0f} ms"


def untold_text(delivered: int, known: int) -> str:
    """Say of how many delivered pushes it is not known where their wait went; else nothing."""
    missing = delivered - known
    if missing <= 0:
        return ""
    which = "" if missing == delivered else f"{missing:,} of {delivered:,} "
    return (
        f"where the wait of {which}delivered pushes went is not known: an older version wrote "
        "their receipts"
    )
