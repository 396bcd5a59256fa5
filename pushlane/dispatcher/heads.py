"""The next pushes of several lanes, while so few may go that it matters which.

They come as jobs, off the lanes; whoever asks chooses one and gives the others back. No turn is
charged: what goes then is a probe.
"""

from __future__ import annotations

import time

from pushlane.dispatcher.admission import Admission
from pushlane.dispatcher.intake import STALE_S, Intake
from pushlane.dispatcher.job import Job
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.scheduler import Scheduler

MOST_HEADS = 64
_MOST_SKIPPED = 256


class Heads:
    """Looks at one push of each ready lane, then at the next of each, until there are enough."""

    def __init__(
        self,
        scheduler: Scheduler[OpenLane],
        ring: LaneRing,
        intake: Intake,
        admission: Admission,
    ) -> None:
        self._scheduler = scheduler
        self._ring = ring
        self._intake = intake
        self._admission = admission

    def gather(self) -> tuple[list[Job], int]:
        """Return those that may go, and how many were skipped: these are taken care of."""
        jobs: list[Job] = []
        skipped = 0
        seen: list[OpenLane] = []
        while len(jobs) < MOST_HEADS and skipped < _MOST_SKIPPED:
            lane = self._scheduler.pick()
            if lane is None:
                if not seen:
                    break
                self._release(seen)
                seen = []
                continue
            taken = lane.take(time.monotonic() - STALE_S)
            if lane.is_low:
                self._intake.fill(lane)
            if taken is None:
                self._ring.starve(lane)
            elif (job := self._admission.admit(lane, taken)) is None:
                skipped += 1
            else:
                jobs.append(job)
                self._scheduler.rest(lane)
                seen.append(lane)
        self._release(seen)
        return jobs, skipped

    def _release(self, lanes: list[OpenLane]) -> None:
        for lane in lanes:
            self._ring.released(lane)
