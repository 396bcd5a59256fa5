"""Says where the wait of each push went: what its lane did from when it could go to when it went.

Nothing is noted push by push: a push's part is what its lane had at its dispatch less what it had
when the push was due, which is worked out once for all that share both (docs/why.md).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from pushlane.core.lane import Job, Lane
from pushlane.core.names import is_pool
from pushlane.core.push import MAX_PUSH_BYTES, Push
from pushlane.core.task import SteadyTime
from pushlane.dispatcher.lane_times import PARKED, LaneTimes, LineTimes, Parts, state_of
from pushlane.model.due import eligible_ms
from pushlane.model.waits import Cause, pack, unpack, whole

_MOST_TOLD = MAX_PUSH_BYTES - 64
_LOOK_EVERY_S = 1.0
_STEP_MS = 1_000.0
_STAYED_S = 60.0
_ALIKE = 128  # waits are alike that differ by less than this part of them

_ASIDE: dict[str, Cause] = {
    **PARKED,
    "claim": Cause.CLAIM,
    "tried": Cause.TRIED,
    "quiet": Cause.QUIET,
}

_carried_of = attrgetter("waits", "attempt", "due_at_ms", "not_before_ms")


class Waits:
    """Keeps what the lanes of a line do, and says where the waits of their pushes went.

    All goes by the monotonic clock, which is tied to the wall's: a step of that changes nothing
    until it has stayed for a while.
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
            since_ms, self._chosen_ms = now_ms - self._chosen_ms, now_ms
            lanes = [job.lane for job in jobs]
            if lanes.count(lanes[0]) == len(lanes):  # nearly as quick as no look at them
                self._times(lanes[0], now_ms).chose(since_ms, now_ms)
            else:
                for lane, count in Counter(lanes).items():
                    self._times(lane, now_ms).chose(since_ms * count / len(lanes), now_ms)
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
        is_plain = (
            due_ms == submitted_ms
            and not any([push.waits for push in pushes])
            and not any([job.aside for job in jobs])
        )
        lanes = [job.lane for job in jobs]
        if is_plain and lanes.count(lanes[0]) == len(lanes):
            waited = [until - due for until, due in zip(until_ms, due_ms, strict=True)]
            least_ms, spread_ms = min(waited), abs(due_ms[-1] - due_ms[0])
            if min(due_ms) > 0 and max(waited) - least_ms + spread_ms < least_ms / _ALIKE:
                return self._alike(jobs[0], due_ms[0], until_ms[0], waited)
        now_ms = time.monotonic() * 1000
        keys: list[Any] = list(zip(lanes, due_ms, until_ms, strict=True))
        if not is_plain:
            own = [id(job.task) for job in jobs], [job.aside for job in jobs]
            carried = map(_carried_of, pushes)
            keys = list(zip(keys, submitted_ms, *own, carried, strict=True))
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
