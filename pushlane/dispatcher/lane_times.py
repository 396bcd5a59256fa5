"""Tells what lanes did when, in milliseconds: the states that each was in, and for how long.

A lane is at any moment in one state, and its line keeps it or does not. All that is kept of both is
sums, and some samples of what the sums were before (docs/why.md).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from operator import sub
from sys import getsizeof

from pushlane.core.lane import Lane, Why
from pushlane.model.waits import Cause

_MOST_SAMPLES = 48
_MOST_NUMBERS = 400
_THINNED = 3  # one in so many
_LEAST_GAP_MS = 10.0
_GAP_PART = 64

PARKED: dict[str, Cause] = {
    Why.KEYS: Cause.KEYS,
    Why.BUDGET: Cause.LIMIT,
    Why.LOOK_UP: Cause.REGISTRY,
    Why.REFUSED: Cause.BREAKER,
}
"""The cause of a wait by what a push is parked for."""

_OF_LANE: dict[str, Cause] = {
    Why.FORMAT: Cause.FORMAT,
    Why.DOUBT: Cause.REGISTRY,
    Why.HELD: Cause.PAUSED,
    Why.CROWDED: Cause.DURABLE,
    Why.LATER_FULL: Cause.DELAY,
    **PARKED,
}
_OVER = {
    Cause.BREAKER: frozenset((Cause.FORMAT, Cause.REGISTRY, Cause.PAUSED)),
    Cause.DURABLE: frozenset(Cause) - {Cause.FEED},
}
"""The causes of a lane that count although its line waits, by what keeps the line."""

_STATES = (Why.FORMAT, Why.DOUBT, Why.HELD, Why.BUDGET)
_RANK = {why: rank for rank, why in enumerate(Why)}

Parts = dict[Cause, float]


def reasons_of(lane: Lane) -> Iterator[Why]:
    """Yield for what a lane waits: what blocks all of it first, the gravest before the others.

    If too much is parked to go on, that ends with what most of it waits for.
    """
    yield from sorted(lane.blocked, key=_RANK.__getitem__)
    if lane.later_full:
        yield Why.LATER_FULL
    if lane.is_stuck and lane.parked:
        yield Counter(lane.parked.values()).most_common(1)[0][0]


def state_of(lane: Lane) -> Cause | None:
    """Return what a lane waits for, None when it is ready: the first that holds."""
    if lane.may_move:
        return None
    for why in _STATES:
        if why in lane.blocked:
            return _OF_LANE[why]
    if lane.is_stuck and lane.parked:
        return _OF_LANE[Counter(lane.parked.values()).most_common(1)[0][0]]
    if Why.CROWDED in lane.blocked:
        return Cause.DURABLE
    return Cause.DELAY if lane.later_full and lane.main.messages else Cause.FEED


class Course:
    """Adds up how long each of several causes lasted: in all that is the time since `began_ms`.

    Of what the sums were before it keeps at most 48 samples, fewer where there are many causes:
    between two it is taken for even. Those that tell least are dropped first, the older the sooner.
    Times are milliseconds on a monotonic clock. A cause of None is that there is none.
    """

    __slots__ = ("_causes", "_now_ms", "_rows", "_sums", "began_ms")

    def __init__(self, began_ms: float) -> None:
        self.began_ms = self._now_ms = began_ms
        self._causes: list[Cause | None] = []
        self._sums = array("d")
        self._rows = array("d", [began_ms])  # of each sample its time, and the sums then

    def lasted(self, from_ms: float, to_ms: float) -> dict[Cause | None, float]:
        """Return how long each cause lasted between two times since it began."""
        before, after = self._numbers(from_ms), self._numbers(to_ms)
        return dict(zip(self._causes, map(sub, after, before), strict=True))

    def samples_ms(self) -> array[float]:
        """Return the times of which it keeps samples."""
        return self._rows[:: len(self._causes) + 1]

    def size(self) -> int:
        """Return about how many bytes it holds."""
        return sum(map(getsizeof, (self, self._causes, self._sums, self._rows)))

    def _count(self, cause: Cause | None, spent_ms: float) -> None:
        """Count on a cause, which lasted for so long."""
        if cause not in self._causes:
            rows, width = self._rows, len(self._causes) + 1
            self._rows = array("d")
            for start in range(0, len(rows), width):
                self._rows += rows[start : start + width]
                self._rows.append(0.0)
            self._causes.append(cause)
            self._sums.append(0.0)
        self._sums[self._causes.index(cause)] += spent_ms

    def _sample(self, gap_ms: float) -> None:
        """Keep what the sums are now, unless the last sample is nearer than that."""
        rows, width = self._rows, len(self._causes) + 1
        if self._now_ms < rows[-width] + gap_ms:
            return
        rows.append(self._now_ms)
        rows += self._sums
        if len(rows) > min(_MOST_SAMPLES * width, _MOST_NUMBERS):
            self._thin()

    def _thin(self) -> None:
        """Drop some samples, none beside another: those that an even course would hide best."""
        rows, width = self._rows, len(self._causes) + 1
        samples = [rows[start : start + width] for start in range(0, len(rows), width)]

        def told(place: int) -> float:
            before, sample, after = samples[place - 1 : place + 2]
            part = (sample[0] - before[0]) / (after[0] - before[0])
            missed = sum(
                abs(now - one * (1 - part) - other * part)
                for one, now, other in zip(before[1:], sample[1:], after[1:], strict=True)
            )
            return (missed + (after[0] - before[0]) / 1_000) / (self._now_ms - sample[0] + 1.0)

        inner = range(1, len(samples) - 1, 2)
        dropped = set(nsmallest(len(samples) // _THINNED, inner, key=told))
        self._rows = array("d")
        for place, sample in enumerate(samples):
            if place not in dropped:
                self._rows += sample

    def _numbers(self, at_ms: float) -> list[float]:
        """Return what the sums were then, between samples by an even course."""
        rows, width = self._rows, len(self._causes) + 1
        is_recent = at_ms >= rows[-width]
        place = len(rows) if is_recent else width * bisect_right(self.samples_ms(), at_ms)
        if not place:
            return [0.0] * len(self._causes)
        at_last = place == len(rows)
        after = array("d", (self._now_ms, *self._sums)) if at_last else rows[place : place + width]
        before = rows[place - width : place]
        span_ms = after[0] - before[0]
        part = min(1.0, (at_ms - before[0]) / span_ms) if span_ms > 0 else 1.0
        pairs = zip(before[1:], after[1:], strict=True)
        return [one * (1 - part) + other * part for one, other in pairs]


class LineTimes(Course):
    """Adds up how long a line took no pushes, or fewer than it has slots for, by `cause`.

    That is what keeps it now, since `since_ms`; None while it takes all.
    """

    __slots__ = ("cause", "since_ms")

    def __init__(self, began_ms: float) -> None:
        super().__init__(began_ms)
        self.cause: Cause | None = None
        self.since_ms = began_ms

    def turn(self, cause: Cause | None, now_ms: float) -> None:
        """Note what keeps it from now on."""
        if cause is not self.cause:
            self._go_on(now_ms)
            self._sample(_LEAST_GAP_MS / 2)
            self.cause, self.since_ms = cause, now_ms

    def pieces(
        self, from_ms: float, to_ms: float
    ) -> Iterator[tuple[float, dict[Cause | None, float]]]:
        """Yield what kept it between two times for how long, in pieces, each until when."""
        self._go_on(to_ms)
        times_ms = self.samples_ms()
        inner = times_ms[bisect_right(times_ms, from_ms) : bisect_left(times_ms, to_ms)]
        for until_ms in (*inner, to_ms):
            yield until_ms, self.lasted(from_ms, until_ms)
            from_ms = until_ms

    def _go_on(self, now_ms: float) -> None:
        if now_ms > self._now_ms:
            self._count(self.cause, now_ms - self._now_ms)
            self._now_ms = now_ms


class LaneTimes(Course):
    """The milliseconds that a lane has spent in each state since `began_ms`: they sum to its age.

    `state` is what it waits for now, None when it is ready.
    """

    __slots__ = ("_credit_ms", "_line", "state")

    def __init__(self, began_ms: float, line: LineTimes) -> None:
        super().__init__(began_ms)
        self.state: Cause | None = Cause.FEED
        self._credit_ms = 0.0
        self._line = line

    def turn(self, state: Cause | None, now_ms: float) -> None:
        """Be in this state from now on."""
        if state is not self.state:
            self._go_on(now_ms)
            self._sample(_LEAST_GAP_MS / 2)
            self.state = state

    def chose(self, part_ms: float, now_ms: float) -> None:
        """Hear of a round in which pushes of it were chosen: its part of the time since the last.

        That is slot time, as far as it was ready, once the numbers are brought up to the round.
        """
        self._credit_ms = min(self._credit_ms + part_ms, now_ms - self._now_ms)

    def look(self, at_ms: float, waited_ms: float) -> None:
        """Bring the numbers up to the last round: whose turn it is behind it is not known yet.

        Samples are as far apart as a wait that long needs.
        """
        self._go_on(at_ms)
        self._sample(max(_LEAST_GAP_MS, waited_ms / _GAP_PART))

    def between(self, from_ms: float, to_ms: float) -> Parts:
        """Return the milliseconds of each cause between two times since it began.

        Ready time that no round has divided yet is told as the turns of others.
        """
        lasted = self.lasted(from_ms, to_ms)
        parts = {cause: part_ms for cause, part_ms in lasted.items() if cause is not None}
        for _, of_line in self._pieces(max(from_ms, self._now_ms), to_ms):
            for kept_by, part_ms in of_line.items():
                cause = self._cause(kept_by) or Cause.SHARE
                parts[cause] = parts.get(cause, 0.0) + part_ms
        return parts

    def _go_on(self, now_ms: float) -> None:
        for until_ms, of_line in self._pieces(self._now_ms, now_ms):
            for cause, part_ms in of_line.items():
                self._spend(min(self._now_ms + part_ms, until_ms), cause)
            self._spend(until_ms, self._line.cause)  # what is lost by rounding
            if until_ms < now_ms:
                self._sample(_LEAST_GAP_MS / 2)
        self._credit_ms = 0.0

    def _pieces(
        self, from_ms: float, to_ms: float
    ) -> Iterable[tuple[float, dict[Cause | None, float]]]:
        """Return what kept its line between two times, in pieces, each until when."""
        if from_ms >= to_ms:
            return ()
        line = self._line
        if line.since_ms > from_ms:
            return line.pieces(from_ms, to_ms)
        return ((to_ms, {line.cause: to_ms - from_ms}),)

    def _cause(self, of_line: Cause | None) -> Cause | None:
        """Return what it waits for now if this keeps its line, None when it is ready."""
        is_kept = of_line is not None and self.state not in _OVER[of_line]
        return of_line if is_kept else self.state

    def _spend(self, until_ms: float, of_line: Cause | None) -> None:
        spent = until_ms - self._now_ms
        if spent <= 0:
            return
        self._now_ms = until_ms
        cause = self._cause(of_line)
        if cause is None:
            slot = min(self._credit_ms, spent)
            self._credit_ms -= slot
            self._count(Cause.SLOT, slot)
            cause, spent = Cause.SHARE, spent - slot
        self._count(cause, spent)
