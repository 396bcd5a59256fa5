"""A line of time as SVG, drawn on the server: so it is there without a script. Pure.

It has rates above, and below what was held, each on a track of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pushlane.operations.hour import MarkView, SpanView

WIDTH, HEIGHT = 720, 120
"""The picture's own units; the page gives it its size."""

_MOST_LINES = 5
_MOST_TRACKS = 8
_LEAST_MS = 300_000
_GAP_MS = 30_000
_LEAST_WIDTH = 2.0


@dataclass(frozen=True)
class Line:
    """A line with its name, in pieces of `x,y` points: between two of them nobody looked.

    `last_per_s` is None where that is not of now.
    """

    name: str
    pieces: Sequence[str]
    last_per_s: float | None


@dataclass(frozen=True)
class Mark:
    """A change at a place from left to right, with what it was, for people."""

    x: float
    at_ms: int
    text: str


@dataclass(frozen=True)
class Bar:
    """A time from left to right, with what was then, and of which kind."""

    x: float
    width: float
    kind: str
    text: str


@dataclass(frozen=True)
class Track:
    """All times of one thing, and the last of them."""

    name: str
    bars: Sequence[Bar]
    last: Spell


class Spell(NamedTuple):
    """A state of some kind over a time (Unix ms); `until_ms` is None while it lasts.

    It `may_begin_sooner` or `may_end_later` where nobody knows.
    """

    name: str
    kind: str
    text: str
    from_ms: int
    until_ms: int | None
    may_begin_sooner: bool = False
    may_end_later: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture of rates: from `from_ms` at its left to `at_ms` at its right (Unix ms).

    It reaches from 0 at its foot to `most_per_s` at its top. `tracks` lie below it, on the same
    line of time; so many as `tracks_left_out` found no room.
    """

    lines: Sequence[Line]
    marks: Sequence[Mark]
    most_per_s: float
    from_ms: int
    at_ms: int
    tracks: Sequence[Track] = ()
    tracks_left_out: int = 0
    width: int = WIDTH
    height: int = HEIGHT


Points = Sequence[tuple[int, Mapping[str, float | None]]]
"""Pushes a second by name, at each time (Unix ms): None is unknown, and 0 is none."""


def chart(
    points: Points,
    marks: Sequence[tuple[int, str]],
    at_ms: int,
    spells: Sequence[Spell] = (),
    *,
    from_ms: int | None = None,
    gap_ms: int = _GAP_MS,
) -> Chart:
    """Draw what went a second by name, from points in the order of their time.

    Between points further apart than `gap_ms` there is no line. It begins with the first of them
    unless `from_ms` says when, and then spans five minutes at least. Spells of a name and kind
    share a track; the tracks of those that ended last are shown.
    """
    if from_ms is None:
        from_ms = min(points[0][0] if points else at_ms, at_ms - _LEAST_MS)
    from_ms = min(from_ms, at_ms - 1)

    def x(time_ms: int) -> float:
        return WIDTH * (time_ms - from_ms) / (at_ms - from_ms)

    names: dict[str, float] = {}
    for _, per_s in points:
        for name, value in per_s.items():
            names[name] = max(names.get(name, 0.0), value or 0.0)
    most = _round_up(max(names.values(), default=0.0))
    largest = sorted(names, key=lambda name: -names[name])[:_MOST_LINES]
    last = points[-1][1] if points and at_ms - points[-1][0] <= gap_ms else None
    lines = [
        Line(
            name,
            _pieces(points, name, x, most, gap_ms),
            None if last is None else last.get(name, 0.0),
        )
        for name in sorted(largest)
    ]
    there = [
        Mark(x(time_ms), time_ms, text) for time_ms, text in marks if from_ms <= time_ms <= at_ms
    ]
    drawn = tracks(spells, from_ms, at_ms)
    shown = drawn[:_MOST_TRACKS]
    return Chart(lines, there, most, from_ms, at_ms, shown, len(drawn) - len(shown))


def marks_of(marks: Sequence[MarkView]) -> list[tuple[int, str]]:
    """Return changes as they are drawn: when, and what by whom."""
    return [(one.at_ms, f"{one.operation} of {one.subject} by {one.who}") for one in marks]


def spell_of(one: SpanView, names: Mapping[str, str]) -> Spell:
    """Return a span as it is drawn; `names` are those of tasks by their ids."""
    kind, _, task_id = one.what.partition("/")
    name = (names.get(task_id) if kind == "task" else "") or one.what or "everything"
    if one.sink and one.what != f"sink/{one.sink}":
        name = f"{name} at sink {one.sink}"
    times = (one.from_ms, one.until_ms, one.may_begin_sooner, one.may_end_later)
    why = f"rests: {one.why}" if one.kind == "rests" else one.why
    return Spell(name, one.kind, why, *times)


def tracks(spells: Sequence[Spell], from_ms: int, at_ms: int) -> list[Track]:
    """Draw spells on a line of time, a track for each name and kind; what ended last is first."""
    there = [one for one in spells if one.until_ms is None or one.until_ms >= from_ms]
    there.sort(key=lambda one: (at_ms if one.until_ms is None else one.until_ms, one.from_ms))
    same: dict[tuple[str, str], list[Spell]] = {}
    for one in reversed(there):
        same.setdefault((one.name, one.kind), []).append(one)
    return [
        Track(some[0].name, [_bar(one, from_ms, at_ms) for one in reversed(some)], some[0])
        for some in same.values()
    ]


def _bar(spell: Spell, from_ms: int, at_ms: int) -> Bar:
    until_ms = at_ms if spell.until_ms is None else min(spell.until_ms, at_ms)
    begun_ms = min(max(spell.from_ms, from_ms), until_ms)
    scale = WIDTH / (at_ms - from_ms)
    width = max(_LEAST_WIDTH, scale * (until_ms - begun_ms))
    x = min(scale * (begun_ms - from_ms), WIDTH - width)
    return Bar(x, width, spell.kind, spell.text)


def _pieces(
    points: Points, name: str, x: Callable[[int], float], most: float, gap_ms: int
) -> list[str]:
    pieces: list[list[str]] = []
    before_ms: float = -math.inf
    for time_ms, per_s in points:
        value = per_s.get(name, 0.0)
        if value is None:
            before_ms = -math.inf
            continue
        if time_ms - before_ms > gap_ms:
            pieces.append([])
        y = HEIGHT * (1 - value / most) if most else HEIGHT
        pieces[-1].append(f"{x(time_ms):.1f},{y:.1f}")
        before_ms = time_ms
    return [" ".join(piece) for piece in pieces]


def _round_up(value: float) -> float:
    """Return the next of 1, 2 or 5 times a power of ten; 0 for none."""
    if value <= 0:
        return 0.0
    step = 1.0
    while step * 10 < value:
        step *= 10
    while step >= value:
        step /= 10
    return next(each * step for each in (1, 2, 5, 10) if each * step >= value)
