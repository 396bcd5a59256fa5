"""Where the wait of each push went: what its lane did, from when it could go to when it went.

A lane is at any moment in one state, and keeps the milliseconds spent in each. Nothing is noted
push by push: a push's part is what its lane had at its dispatch less what it had when the push was
due, which is worked out once for all that share both (docs/why.md).
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter, sub
from sys import getsizeof

from pushlane.core.lane import Job, Lane, Why
from pushlane.core.names import is_pool
from pushlane.core.push import MAX_PUSH_BYTES, Push
from pushlane.core.task import SteadyTime
from pushlane.model.due import eligible_ms
from pushlane.model.waits import Cause, pack, unpack, whole

_MOST_SAMPLES = 48
_MOST_NUMBERS = 400
_THINNED = 3  # one in so many
_LEAST_GAP_MS = 10.0
_GAP_PART = 64
_MOST_TOLD = MAX_PUSH_BYTES - 64
_LOOK_EVERY_S = 1.0
_STEP_MS = 1_000.0
_STAYED_S = 60.0
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
_carried_of = attrgetter("waits", "attempt", "due_at_ms", "not_before_ms")


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


class Course:
    """How long each of several causes lasted since `began_ms`: in all that is the time since then.

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
        place = width * bisect_right(self.samples_ms(), at_ms)
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
    """For how long a line took no pushes, or fewer than it has slots for, by `cause`: that is what
    keeps it now, since `since_ms`; None while it takes all.
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


class Waits:
    """Keeps what the lanes of a line do, and says where the waits of their pushes went.

    All goes by the monotonic clock, which was tied to the wall's once: a step changes nothing.
    """

    def __init__(self) -> None:
        self._looked_s = time.monotonic()
        self._stepped_s: float | None = None
        now_ms = self._looked_s * 1000
        self._line = LineTimes(now_ms)
        self._chosen_ms = now_ms

    def note(self, cause: Cause | None) -> None:
        """Hear what keeps the line from taking as many pushes as it has slots for."""
        if time.monotonic() >= self._looked_s + _LOOK_EVERY_S:
            self._look_at_wall()
        if cause is not self._line.cause:
            self._line.turn(cause, time.monotonic() * 1000)

    def _look_at_wall(self) -> None:
        """Follow the wall clock once a step of it has stayed: what waits by then is told as ever,
        and no process goes wrong for long that was suspended, or began before its clock was set.
        """
        self._looked_s = time.monotonic()
        tie_ms = time.time() * 1000 - self._looked_s * 1000
        if abs(tie_ms - SteadyTime.tie_ms) < _STEP_MS:
            self._stepped_s = None
        elif self._stepped_s is None:
            self._stepped_s = self._looked_s
        elif self._looked_s >= self._stepped_s + _STAYED_S:
            SteadyTime.tie_ms = tie_ms

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
            if min(due_ms) > 0 and max(waited) - least_ms + spread_ms < least_ms / _ALIKE:
                return self._alike(jobs[0], due_ms[0], until_ms[0], waited)
        now_ms = time.monotonic() * 1000
        own = map(_lane_of, jobs), map(id, map(_task_of, jobs)), map(_aside_of, jobs)
        carried = map(_carried_of, pushes)
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
        if submitted_ms <= 0 or len(job.body) > _MOST_TOLD:  # it would be more than a push may be
            return None
        now_ms = time.monotonic() * 1000
        at_ms = at_ms or SteadyTime.now_ms()
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
            (Cause.QUIET, due_ms if job.task.quiet else 0),
        ):
            if at_ms < (end_ms := min(end_ms, until_ms)):
                parts[cause] = parts.get(cause, 0.0) + end_ms - at_ms
                at_ms = end_ms
        tie_ms = SteadyTime.tie_ms
        for from_ms, to_ms, aside in _stretches(job, at_ms - tie_ms, until_ms - tie_ms):
            if aside is not None:
                parts[aside] = parts.get(aside, 0.0) + to_ms - from_ms
            else:
                self._add(parts, job.lane, from_ms, to_ms, now_ms)
        return whole(parts, until_ms - submitted_ms)

    def _add(self, parts: Parts, lane: Lane, from_ms: float, to_ms: float, now_ms: float) -> None:
        """Add what a lane did between two times; before it was open nobody knows."""
        times: LaneTimes | None = lane.times
        began_ms = to_ms if times is None else min(max(times.began_ms, from_ms), to_ms)
        if from_ms < began_ms:
            parts[Cause.UNSEEN] = parts.get(Cause.UNSEEN, 0.0) + began_ms - from_ms
        if times is None or began_ms >= to_ms:
            return
        times.look(self._chosen_ms, now_ms - began_ms)
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
