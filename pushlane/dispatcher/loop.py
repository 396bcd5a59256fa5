"""The core loop: slot, turn, push, off it goes.

A slot is taken before the lane is chosen, and the lane before the message, so the choice is as late
as it can be. The loop never waits for a lane: one with nothing at hand leaves the ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from pushlane.dispatcher.admission import Admission
from pushlane.dispatcher.budgets.budget_gate import BudgetGate
from pushlane.dispatcher.delivery_pool import DeliveryPool
from pushlane.dispatcher.heads import Heads
from pushlane.dispatcher.intake import STALE_S, Intake
from pushlane.dispatcher.job import Job
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.reader_opener import ReaderOpener
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.shares import Shares
from pushlane.lanes.task import Level

_SKIPPED_A_ROUND = 256
_SKIPPED_IN_A_ROW = 32
_FIRST_LANES_S = 2.0
_HASTY_S = 10.0


class Loop:
    """Fills slots with pushes in the scheduler's order until it is told to stop."""

    def __init__(
        self,
        scheduler: Scheduler[OpenLane],
        shares: Shares[OpenLane],
        ring: LaneRing,
        opener: ReaderOpener,
        intake: Intake,
        admission: Admission,
        gate: BudgetGate,
        outage: Outage,
        pool: DeliveryPool,
        settler: Settler,
        awake: asyncio.Event,
    ) -> None:
        self._scheduler = scheduler
        self._shares = shares
        self._ring = ring
        self._opener = opener
        self._intake = intake
        self._admission = admission
        self._gate = gate
        self._outage = outage
        self._heads = Heads(scheduler, ring, intake, admission)
        self._pool = pool
        self._settler = settler
        self._awake = awake
        self._stopping = False
        self._refilling: OpenLane | None = None
        self._refill_by = 0.0
        self._hasty_until_s: dict[Level, float] = {}  # of levels that were waited for in vain

    def stop(self) -> None:
        """Take no more; what is in flight goes on."""
        self._stopping = True
        self._awake.set()

    async def run(self) -> None:
        """Fill slots until `stop`."""
        await self._opener.first_opened(_FIRST_LANES_S)  # else all slots go to those open first
        while not self._stopping:
            self._pool.raise_failure()
            self._awake.clear()
            self._shares.look(time.monotonic())
            may_fill = self._may_fill()
            jobs, skipped = self._fill() if may_fill else ([], 0)
            if jobs:
                self._outage.admit(jobs)
                self._pool.launch(jobs)
            if jobs or skipped:
                await asyncio.sleep(0)
            else:
                await self._rest(self._outage.wake_in_s() if may_fill else None)

    def _fill(self) -> tuple[list[Job], int]:
        """Take pushes for the free slots, at most a batch, in the order of their turns.

        Returns them, and how many were skipped.
        """
        room = self._outage.room(self._pool.room)
        return self._choose() if room and self._outage.is_choosy else self._take(room)

    def _take(self, room: int) -> tuple[list[Job], int]:
        """Take up to `room` pushes, each from the lane whose turn it is.

        A push that may not go now is skipped and costs its lane no turn. But a lane steps aside
        when many of its pushes are skipped in a row, so that others do not wait for all of them.
        """
        jobs: list[Job] = []
        aside: list[OpenLane] = []
        skipped = skipped_in_a_row = 0
        oldest_s = time.monotonic() - STALE_S
        while len(jobs) < room and skipped < _SKIPPED_A_ROUND:
            if (lane := self._scheduler.pick()) is None:
                break
            taken = lane.take(oldest_s)
            if (taken is None or taken.message.is_spent) and lane.is_low:
                self._intake.fill(lane)
            if taken is None:
                if self._starve(lane):
                    break
            elif (job := self._admission.admit(lane, taken)) is not None:
                self._scheduler.charge()
                jobs.append(job)
                skipped_in_a_row = 0
            else:
                skipped += 1
                skipped_in_a_row += 1
                if skipped_in_a_row >= _SKIPPED_IN_A_ROW:
                    self._scheduler.rest(lane)
                    aside.append(lane)
                    skipped_in_a_row = 0
        for lane in aside:
            self._ring.released(lane)
        return jobs, skipped

    def _choose(self) -> tuple[list[Job], int]:
        """Choose the one push to try a failing sink with."""
        heads, skipped = self._heads.gather()
        if not (heads or skipped) and self._outage.recall():
            heads, skipped = self._heads.gather()
        if not heads:
            return [], skipped
        chosen = self._outage.choose(heads)
        self._gate.over(job for job in heads if job is not chosen)
        self._scheduler.hold(chosen.lane.level)
        return [chosen], skipped

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
        return self._refilling is None and not self._settler.is_late

    async def _rest(self, sink_wait_s: float | None) -> None:
        """Wait for a change, no longer than the sink, or a level, may be waited for."""
        waits_s = [] if sink_wait_s is None else [sink_wait_s]
        if self._refilling is not None:
            waits_s.append(max(0.0, self._refill_by - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(waits_s, default=None)):
                await self._awake.wait()

    def _starve(self, lane: OpenLane) -> bool:
        """Take out a lane with nothing at hand; tell whether its level should be waited for."""
        self._ring.starve(lane)
        is_hasty = time.monotonic() < self._hasty_until_s.get(lane.level, 0.0)
        goes_on = is_hasty or self._scheduler.has_ready(lane.level)
        wait_s = 0.0 if goes_on else lane.refill_wait_s()
        if wait_s:
            self._refilling = lane
            self._refill_by = time.monotonic() + wait_s
        return wait_s > 0
