"""The core loop: slot, turn, push, off it goes.

A slot is free before the lane is chosen, and the lane is before the message, so the choice is as
late as it can be. The loop never waits for a lane: one with nothing at hand takes no turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from pushlane.core.admission import Admission
from pushlane.core.endings import Flusher
from pushlane.core.intake import STALE_S, Intake
from pushlane.core.lane import Job, Lane
from pushlane.core.lanes import Lanes
from pushlane.core.slots import Breaker, Slots
from pushlane.core.task import Level

MOST_HEADS = 64
_SKIPPED_A_ROUND = 256
_SKIPPED_IN_A_ROW = 32
_HASTY_S = 10.0


class Loop:
    """Fills slots with pushes in the scheduler's order until it is told to stop.

    `look` is called once a round, with a monotonic time, before anything is chosen.
    """

    def __init__(
        self,
        lanes: Lanes,
        intake: Intake,
        admission: Admission,
        breaker: Breaker,
        slots: Slots,
        flusher: Flusher,
        look: Callable[[float], None],
    ) -> None:
        self._lanes = lanes
        self._turns = lanes.turns
        self._intake = intake
        self._admission = admission
        self._breaker = breaker
        self._slots = slots
        self._flusher = flusher
        self._look = look
        self._stopping = False
        self._refilling: Lane | None = None
        self._refill_by = 0.0
        self._hasty_until_s: dict[Level, float] = {}  # of levels that were waited for in vain

    def stop(self) -> None:
        """Take no more; what is in flight goes on."""
        self._stopping = True
        self._lanes.wake()

    async def run(self) -> None:
        """Fill slots until `stop`."""
        awake = self._lanes.awake
        while not self._stopping:
            self._slots.raise_failure()
            awake.clear()
            self._lanes.take_marks()
            self._look(time.monotonic())
            may_fill = self._may_fill()
            jobs, skipped = self._fill() if may_fill else ([], 0)
            self._lanes.chose(jobs)
            if jobs:
                self._slots.launch(jobs)
            if jobs or skipped:
                await asyncio.sleep(0)
            else:
                await self._rest(self._breaker.wake_in_s() if may_fill else None)

    def _fill(self) -> tuple[list[Job], int]:
        """Take pushes for the free slots, at most a batch, in the order of their turns.

        Returns them, and how many were skipped.
        """
        room = self._breaker.room(self._slots.room)
        return self._choose() if room and self._breaker.is_choosy else self._take(room)

    def _take(self, room: int) -> tuple[list[Job], int]:
        """Take up to `room` pushes, each from the lane whose turn it is.

        A push that may not go now is skipped and costs its lane no turn. But a lane steps aside
        when many of its pushes are skipped in a row, so that others do not wait for all of them.
        """
        jobs: list[Job] = []
        aside: list[Lane] = []
        skipped = skipped_in_a_row = 0
        oldest_s = time.monotonic() - STALE_S
        lanes, turns, admits = self._lanes, self._turns, self._admission.admits
        while len(jobs) < room and skipped < _SKIPPED_A_ROUND:
            if lanes.marked:
                lanes.take_marks()
            if (lane := turns.pick()) is None:
                break
            job = lane.take(oldest_s) or self._intake.retake(lane, oldest_s)
            if (job is None or job.message.is_spent) and lane.is_low:
                self._intake.fill(lane)
            if job is None:
                skipped += self._lanes.rest(lane)
                if self._is_missed(lane):
                    break
            elif admits(job):
                turns.charge()
                jobs.append(job)
                skipped_in_a_row = 0
            else:
                skipped += 1
                skipped_in_a_row += 1
                if skipped_in_a_row >= _SKIPPED_IN_A_ROW:
                    self._lanes.step_aside(lane)
                    aside.append(lane)
                    skipped_in_a_row = 0
        self._lanes.come_back(aside)
        return jobs, skipped

    def _choose(self) -> tuple[list[Job], int]:
        """Choose the one push to try a failing sink with. No turn is charged: it is a probe."""
        heads, skipped = self._heads()
        if not (heads or skipped) and self._breaker.recall():
            heads, skipped = self._heads()
        if not heads:
            return [], skipped
        chosen = self._breaker.choose(heads)
        self._admission.took_back([job for job in heads if job is not chosen])
        self._turns.slot_taken(chosen.lane.level)
        return [chosen], skipped

    def _heads(self) -> tuple[list[Job], int]:
        """Take one push of each ready lane, then the next of each, until there are enough.

        Returns those that may go, and how many were skipped: these are taken care of.
        """
        jobs: list[Job] = []
        skipped = 0
        seen: list[Lane] = []
        while len(jobs) < MOST_HEADS and skipped < _SKIPPED_A_ROUND:
            self._lanes.take_marks()
            if (lane := self._turns.pick()) is None:
                if not seen:
                    break
                self._lanes.come_back(seen)
                seen = []
                continue
            oldest_s = time.monotonic() - STALE_S
            job = lane.take(oldest_s) or self._intake.retake(lane, oldest_s)
            if lane.is_low:
                self._intake.fill(lane)
            if job is None:
                skipped += self._lanes.rest(lane)
            elif self._admission.admits(job):
                jobs.append(job)
                self._lanes.step_aside(lane)
                seen.append(lane)
            else:
                skipped += 1
        self._lanes.come_back(seen)
        return jobs, skipped

    def _may_fill(self) -> bool:
        """Tell whether no level is about to get what it has next.

        A level that is only empty because we are faster than the store keeps its turn: without
        this, its share would go to the others. It is waited for shortly, and only when the reader
        knows that more is coming.
        """
        lane = self._refilling
        if lane is not None and (lane.fed or time.monotonic() >= self._refill_by):
            if not lane.fed:
                self._hasty_until_s[lane.level] = time.monotonic() + _HASTY_S
            self._refilling = None
        return self._refilling is None and not self._flusher.is_late

    async def _rest(self, sink_wait_s: float | None) -> None:
        """Wait for a change, no longer than the sink, or a level, may be waited for."""
        waits_s = [] if sink_wait_s is None else [sink_wait_s]
        if self._refilling is not None:
            waits_s.append(max(0.0, self._refill_by - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(waits_s, default=None)):
                await self._lanes.awake.wait()

    def _is_missed(self, lane: Lane) -> bool:
        """Tell whether the level of a lane with nothing at hand should be waited for."""
        is_hasty = time.monotonic() < self._hasty_until_s.get(lane.level, 0.0)
        goes_on = is_hasty or self._turns.has_ready(lane.level)
        wait_s = 0.0 if goes_on else lane.refill_wait_s()
        if wait_s:
            self._refilling = lane
            self._refill_by = time.monotonic() + wait_s
        return wait_s > 0
