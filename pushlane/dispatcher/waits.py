"""Where the wait of each push went: what its lane did, from when it could go to when it went.

A lane is at any moment in one state, and keeps the milliseconds spent in each. Nothing is noted
push by push: a push's part is what its lane had at its dispatch less what it had when the push was
due, which is worked out once for all that share both (docs/why.md).
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter, sub
from sys import getsizeof

from pushlane.core.lane import Job, Lane, Why
from pushlane.core.names import is_pool
from pushlane.core.push import Push
from pushlane.core.task import TIE_MS
from pushlane.model.due import eligible_ms
from pushlane.model.waits import Cause, pack, unpack, whole

_MOST_SAMPLES = 48
_THINNED = 16
_LEAST_GAP_MS = 10.0
_GAP_PART = 64
_MOST_TURNS = 256
_ALIKE = 128  # waits are alike that differ by less than this part of them

_ASIDE = {
    Why.KEYS: Cause.KEYS,
    Why.BUDGET: Cause.LIMIT,
    Why.LOOK_UP: Cause.REGISTRY,
    Why.REFUSED: Cause.BREAKER,
    "claim": Cause.CLAIM,
    "tried": Cause.TRIED,
    "quiet": Cause.QUIET,
}
_OF_LANE = {
    Why.FORMAT: Cause.FORMAT,
    Why.DOUBT: Cause.REGISTRY,
    Why.HELD: Cause.PAUSED,
    Why.CROWDED: Cause.DURABLE,
    Why.LATER_FULL: Cause.DELAY,
    **_ASIDE,
}
_OVER = {
    Cause.BREAKER: frozenset((Cause.FORMAT, Cause.REGISTRY, Cause.PAUSED)),
    Cause.DURABLE: frozenset(Cause) - {Cause.FEED},
}
"""What a lane waits for although its line waits, too."""

_STATES = (Why.FORMAT, Why.DOUBT, Why.HELD, Why.BUDGET)
_RANK = {why: rank for rank, why in enumerate(Why)}

Parts = dict[Cause, float]

_lane_of = attrgetter("lane")
_task_of = attrgetter("task")
_aside_of = attrgetter("aside")
_waits_of = attrgetter("waits")


def waits_of(lane: Lane) -> Iterator[Why]:
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


class LineTimes:
    """When a line took no pushes, or fewer than it has slots for: its last turns from cause to
    cause, None while it takes all. Times are milliseconds on a monotonic clock.
    """

    def __init__(self, began_ms: float) -> None:
        self._turns: list[tuple[float, Cause | None]] = [(began_ms, None)]

    @property
    def since_ms(self) -> float:
        """When it turned last."""
        return self._turns[-1][0]

    @property
    def cause(self) -> Cause | None:
        return self._turns[-1][1]

    def turn(self, cause: Cause | None, now_ms: float) -> None:
        """Note what keeps it from now on."""
        if cause is not self.cause:
            self._turns.append((now_ms, cause))
            if len(self._turns) > _MOST_TURNS:
                del self._turns[: _MOST_TURNS // 2]

    def between(self, from_ms: float, to_ms: float) -> Iterator[tuple[float, Cause | None]]:
        """Yield what kept it between two times, each until when; what is forgotten counts as the
        first that is known.
        """
        first = max(0, bisect_right(self._turns, from_ms, key=_at) - 1)
        for place in range(first, len(self._turns)):
            is_last = place + 1 == len(self._turns) or self._turns[place + 1][0] >= to_ms
            yield to_ms if is_last else self._turns[place + 1][0], self._turns[place][1]
            if is_last:
                return


def _at(turn: tuple[float, Cause | None]) -> float:
    return turn[0]


class LaneTimes:
    """The milliseconds that a lane has spent in each state since `began_ms`: they sum to its age.

    Of what they were before it keeps at most 48 samples: between two it is taken for even. Those
    that tell least are dropped first, the older the sooner.
    """

    __slots__ = (
        "_columns",
        "_credit_ms",
        "_line",
        "_now_ms",
        "_samples",
        "_sums",
        "began_ms",
        "state",
    )

    def __init__(self, began_ms: float, line: LineTimes) -> None:
        self.began_ms = self._now_ms = began_ms
        self.state: Cause | None = Cause.FEED
        self._credit_ms = 0.0
        self._line = line
        self._sums: Parts = {}
        self._samples = array("d", [began_ms])
        self._columns: dict[Cause, array[float]] = {}

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
        """Bring the numbers up to this time: of whose turn it was behind the last round nothing is
        known yet. Samples are as far apart as a wait that long needs.
        """
        self._go_on(at_ms)
        self._sample(max(_LEAST_GAP_MS, waited_ms / _GAP_PART))

    def between(self, from_ms: float, to_ms: float) -> Parts:
        """Return the milliseconds of each cause between two times since it began."""
        before, after = self._numbers(from_ms), self._numbers(to_ms)
        return {cause: part - before.get(cause, 0.0) for cause, part in after.items()}

    def size(self) -> int:
        """Return about how many bytes it holds."""
        kept = (self, self._sums, self._samples, self._columns, *self._columns.values())
        return sum(map(getsizeof, kept))

    def _go_on(self, now_ms: float) -> None:
        if now_ms <= self._now_ms:
            return
        if self._line.since_ms <= self._now_ms:
            self._spend(now_ms, self._line.cause)
        else:
            for until_ms, cause in self._line.between(self._now_ms, now_ms):
                self._spend(until_ms, cause)
                self._sample(_LEAST_GAP_MS / 2)
        self._credit_ms = 0.0

    def _spend(self, until_ms: float, of_line: Cause | None) -> None:
        spent = until_ms - self._now_ms
        self._now_ms = until_ms
        cause, sums = self.state, self._sums
        if of_line is not None and cause not in _OVER[of_line]:
            cause = of_line
        if cause is None:
            slot = min(self._credit_ms, spent)
            self._credit_ms -= slot
            sums[Cause.SLOT] = sums.get(Cause.SLOT, 0.0) + slot
            cause, spent = Cause.SHARE, spent - slot
        sums[cause] = sums.get(cause, 0.0) + spent

    def _sample(self, gap_ms: float) -> None:
        samples = self._samples
        if self._now_ms < samples[-1] + gap_ms:
            return
        for cause, number in self._sums.items():
            if (column := self._columns.get(cause)) is None:
                column = self._columns[cause] = array("d", bytes(8 * len(samples)))
            column.append(number)
        samples.append(self._now_ms)
        if len(samples) > _MOST_SAMPLES:
            self._thin()

    def _thin(self) -> None:
        """Drop some samples, none beside another: those that an even course would hide best."""
        samples, now_ms = self._samples, self._now_ms

        def told(place: int) -> float:
            before, at_ms, after = samples[place - 1 : place + 2]
            part = (at_ms - before) / (after - before)
            missed = sum(
                abs(column[place] - column[place - 1] * (1 - part) - column[place + 1] * part)
                for column in self._columns.values()
            )
            return (missed + (after - before) / 1_000) / (now_ms - at_ms + 1.0)

        dropped = nsmallest(_THINNED, range(1, len(samples) - 1, 2), key=told)
        for place in sorted(dropped, reverse=True):
            del samples[place]
            for column in self._columns.values():
                del column[place]

    def _numbers(self, at_ms: float) -> Parts:
        """Return what the sums were then, between samples by an even course."""
        samples = self._samples
        place = bisect_right(samples, at_ms)
        if place == len(samples):  # behind the last sample
            span_ms = self._now_ms - samples[-1]
            part = min(1.0, (at_ms - samples[-1]) / span_ms) if span_ms > 0 else 1.0
            return {
                cause: number * part + self._sampled(cause, -1) * (1 - part)
                for cause, number in self._sums.items()
            }
        if not place:
            return {}
        part = (at_ms - samples[place - 1]) / (samples[place] - samples[place - 1])
        return {
            cause: column[place] * part + column[place - 1] * (1 - part)
            for cause, column in self._columns.items()
        }

    def _sampled(self, cause: Cause, place: int) -> float:
        column = self._columns.get(cause)
        return column[place] if column is not None else 0.0


class Waits:
    """Keeps what the lanes of a line do, and says where the waits of their pushes went.

    All goes by the monotonic clock, which was tied to the wall's once: a step changes nothing.
    """

    def __init__(self) -> None:
        now_ms = time.monotonic() * 1000
        self._line = LineTimes(now_ms)
        self._chosen_ms = now_ms

    def note(self, cause: Cause | None) -> None:
        """Hear what keeps the line from taking as many pushes as it has slots for."""
        if cause is not self._line.cause:
            self._line.turn(cause, time.monotonic() * 1000)

    def watch(self, jobs: Sequence[Job], changed: Iterable[Lane]) -> None:
        """Hear of a round of the loop: the jobs chosen, and the lanes that may have changed.

        The time since the last round in which any was chosen goes to their lanes, by their parts.
        """
        if not (jobs or changed):
            return
        now_ms = time.monotonic() * 1000
        if jobs:
            each_ms = (now_ms - self._chosen_ms) / len(jobs)
            self._chosen_ms = now_ms
            for lane, count in Counter(map(_lane_of, jobs)).items():
                self._times(lane, now_ms).chose(each_ms * count, now_ms)
        for lane in changed:
            self._times(lane, now_ms).turn(state_of(lane), now_ms)

    def _times(self, lane: Lane, now_ms: float) -> LaneTimes:
        if lane.times is None:
            lane.times = LaneTimes(now_ms, self._line)
        times: LaneTimes = lane.times
        return times

    def columns(
        self,
        jobs: Sequence[Job],
        pushes: Sequence[Push],
        submitted_ms: Sequence[int],
        due_ms: Sequence[int],
        until_ms: Sequence[int],
    ) -> dict[str, list[int]]:
        """Return a column for each cause that occurs: whole milliseconds of each of these pushes.

        Each has waited since it was submitted, and since it was due for its lane, until it went to
        its sink, or ended without (Unix ms).
        """
        is_plain = not any(map(_waits_of, pushes)) and not any(map(_aside_of, jobs))
        if is_plain and due_ms == submitted_ms and len(set(map(_lane_of, jobs))) == 1:
            waited = list(map(sub, until_ms, due_ms))
            least_ms, spread_ms = min(waited), abs(due_ms[-1] - due_ms[0])
            if due_ms[0] and max(waited) - least_ms + spread_ms < least_ms / _ALIKE:
                return self._alike(jobs[0], due_ms[0], until_ms[0], waited)
        now_ms = time.monotonic() * 1000
        own = map(_lane_of, jobs), map(id, map(_task_of, jobs)), map(_aside_of, jobs)
        carried = map(_waits_of, pushes)
        keys = list(zip(*own, carried, submitted_ms, due_ms, until_ms, strict=True))
        found = {
            key: self._parts(jobs[row], due_ms[row], until_ms[row], now_ms)
            for key, row in dict(zip(keys, range(len(jobs)), strict=True)).items()
        }
        rows = [found[key] for key in keys]
        causes = [one for one in Cause if any(one in parts for parts in found.values())]
        return {cause.value: [row.get(cause, 0) for row in rows] for cause in causes}

    def _alike(
        self, job: Job, due_ms: int, until_ms: int, waited: Sequence[int]
    ) -> dict[str, list[int]]:
        """Do as `columns` for pushes of a lane that `waited` long and nearly together: all went
        where this one's went. What they differ by is in the largest part.
        """
        parts = self._parts(job, due_ms, until_ms, time.monotonic() * 1000)
        largest = max(parts, key=parts.__getitem__)
        columns = {cause.value: [part] * len(waited) for cause, part in parts.items()}
        others_ms = sum(parts.values()) - parts[largest]
        columns[largest.value] = [spent_ms - others_ms for spent_ms in waited]
        return columns

    def carried(self, job: Job, at_ms: int, attempt: int, delay_s: float) -> bytes | None:
        """Return what a push carries that is written again as this attempt, not before a delay.

        Its sink has answered at `at_ms` (Unix ms), 0 for now. The delay is told now: whatever the
        wall clock does until then, it is that of the retry, or of what the push waited for apart.
        """
        submitted_ms = job.push.submitted_at_ms
        if submitted_ms <= 0:
            return None
        now_ms = time.monotonic() * 1000
        at_ms = at_ms or int(now_ms + TIE_MS)
        sent_ms = job.dispatched_at_ms
        due_ms = eligible_ms(job.task, job.push)
        parts: dict[Cause, int] = dict(self._parts(job, due_ms, sent_ms or at_ms, now_ms))
        if sent_ms:
            parts[Cause.TRIED] = parts.get(Cause.TRIED, 0) + max(0, at_ms - sent_ms)
        if delay_ms := int(delay_s * 1000):
            why = "" if sent_ms else next((why for why, _ in reversed(job.aside) if why), "")
            cause = _ASIDE.get(why, Cause.RETRY)
            parts[cause] = parts.get(cause, 0) + delay_ms
        put_down_ms = at_ms + delay_ms
        return pack(whole(parts, max(0, put_down_ms - submitted_ms)), put_down_ms, attempt)

    def _parts(self, job: Job, due_ms: int, until_ms: int, now_ms: float) -> dict[Cause, int]:
        """Return the parts of a push's wait in whole milliseconds: they are its wait together."""
        push = job.push
        submitted_ms = push.submitted_at_ms
        if not 0 < submitted_ms < until_ms:  # not known, or by a clock that is ahead of ours
            return {}
        parts: Parts = {}
        at_ms = float(submitted_ms)
        if (carried := unpack(push.waits or b"", submitted_ms)) is not None:
            parts.update(carried.parts)
            at_ms = max(at_ms, carried.put_down_ms)
        if at_ms > until_ms:  # it ended before its backoff did
            parts[Cause.RETRY] = max(0.0, parts.get(Cause.RETRY, 0.0) - (at_ms - until_ms))
        attempt = carried.attempt if carried is not None else 1
        is_told = attempt == min(max(push.attempt, 1), 255)  # else by a version that tells nothing
        for cause, end_ms in (
            (Cause.START, job.task.not_before_ms),
            (Cause.DELAY, push.not_before_ms),
            (Cause.UNSEEN, 0 if is_told else push.due_at_ms),
            (Cause.QUIET, due_ms),
        ):
            if at_ms < (end_ms := min(end_ms, until_ms)):
                parts[cause] = parts.get(cause, 0.0) + end_ms - at_ms
                at_ms = end_ms
        for from_ms, to_ms, aside in _stretches(job, at_ms - TIE_MS, until_ms - TIE_MS):
            if aside is not None:
                parts[aside] = parts.get(aside, 0.0) + to_ms - from_ms
            else:
                self._add(parts, job, from_ms, to_ms, now_ms)
        return whole(parts, until_ms - submitted_ms)

    def _add(self, parts: Parts, job: Job, from_ms: float, to_ms: float, now_ms: float) -> None:
        """Add what a push's lane did between two times; before it was open nobody knows.

        One that was sent had been chosen in a round: what came behind the last one is left out.
        """
        lane, times = job.lane, job.lane.times
        began_ms = to_ms if times is None else min(max(times.began_ms, from_ms), to_ms)
        if from_ms < began_ms:
            parts[Cause.UNSEEN] = parts.get(Cause.UNSEEN, 0.0) + began_ms - from_ms
        if times is None or began_ms >= to_ms:
            return
        times.look(self._chosen_ms if job.dispatched_at_ms else now_ms, now_ms - began_ms)
        for cause, part in times.between(began_ms, to_ms).items():
            if cause is Cause.SLOT and is_pool(lane.name):
                cause = Cause.POOL
            parts[cause] = parts.get(cause, 0.0) + part


def _stretches(
    job: Job, from_ms: float, to_ms: float
) -> Iterator[tuple[float, float, Cause | None]]:
    """Yield the time between these in stretches, each with what the push waited for apart from its
    lane; None with its lane. Milliseconds on a monotonic clock.
    """
    if from_ms >= to_ms:
        return
    aside: Cause | None = None
    for why, at_s in job.aside:
        at_ms = min(max(at_s * 1000, from_ms), to_ms)
        if from_ms < at_ms:
            yield from_ms, at_ms, aside
            from_ms = at_ms
        aside = _ASIDE.get(why)
    if from_ms < to_ms:
        yield from_ms, to_ms, aside
