"""Finds the push that ends every process which delivers it, where a sink runs somebody's own code.

A process leaves a mark in the ledger while it lives and takes it away when it stops. One that finds
a mark comes after a process that died, or beside one that runs. It claims what it delivers, until
it has lived for a while: so the next one knows what was in flight when this one died. That is a
strike. A push with strikes is delivered apart from others, and buried after the last: a poison ends
its crash loop, and what only flew beside it is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pushlane.backends.guard_ports import (
    ClaimResult,
    Ledger,
)
from pushlane.core.lane import Job
from pushlane.core.push import Outcome, Push
from pushlane.core.settle import Settler
from pushlane.core.task import Task
from pushlane.dispatcher.guards.store_guard import StoreGuard
from pushlane.dispatcher.stats import Stats
from pushlane.settings import Settings
from pushlane.util.log_ids import ids_of

log = logging.getLogger("pushlane.poison_guard")

MARK = Push("~alive", 1, "")
STRIKES = 3
YOUNG_S = 30.0
_AT_ONCE = 10  # with one strike: in one of so many slots; with more, one at a time
_AGAIN_S = 1.0
_MARK_TTL_S = 60.0


class PoisonGuard(StoreGuard):
    """The guard against poison, where a sink runs somebody's own code."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        settler: Settler,
        stats: Stats,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, settler, stats, repeat_s=_AGAIN_S)
        self._ledger = ledger
        self._most = max(1, settings.slots // _AT_ONCE)
        self._clock_s = clock_s
        self._old_at_s = clock_s() + YOUNG_S
        self._found_no_mark = False  # as long as it is not known
        self._in_flight = 0
        self._held: set[tuple[str, int]] = set()  # claims of our own that are not let go of yet
        self._claims = self._batched_take(self._claim)
        self._releases = self._batched_give_back(self._release)

    async def run(self) -> None:
        await asyncio.gather(self._keep_mark(), self._grow_old(), super().run())

    async def close(self) -> None:
        """Take the mark away, since this process ends well.

        Raises:
            Unreachable: the mark stays, and the next process believes that this one died.
        """
        await self._ledger.release([MARK], self._process)

    def concerns(self, task: Task) -> bool:
        return not self._found_no_mark and self._clock_s() < self._old_at_s

    def concerns_push(self, push: Push) -> bool:
        return push.strikes != 0

    async def _admit(self, jobs: list[Job]) -> list[Job]:
        for job in jobs:
            if _place(job) in self._held:
                self._settler.later(job, _AGAIN_S)
        jobs = [job for job in jobs if _place(job) not in self._held]
        if not jobs:
            return []
        strikes = jobs[0].push.strikes
        if strikes and self._in_flight >= (self._most if strikes == 1 else 1):
            self._settler.later(jobs[0], _AGAIN_S * random.uniform(0.5, 1.5))
            return []
        self._in_flight += bool(strikes)
        places = set(map(_place, jobs))
        self._held |= places
        results = await self._claims.ask(jobs)
        going = [job for job, result in zip(jobs, results, strict=True) if self._goes(job, result)]
        self._held -= places.difference(map(_place, going))
        for job in set(jobs).difference(going):
            self._owners.pop(job, None)
        self._in_flight -= bool(strikes and not going)
        return going

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Release the claims: the pushes are no longer on their way, and this process lives."""
        self._in_flight -= bool(jobs[0].push.strikes)
        await self._releases.ask(jobs)
        self._held.difference_update(map(_place, jobs))

    def _goes(self, job: Job, result: ClaimResult | None) -> bool:
        """Tell whether to deliver the push now; if not, count a strike against it.

        A claim that is still there is that of a process which let go of the push: the broker gives
        a message to one at a time.
        """
        if result in (None, ClaimResult.WON):
            return True
        self._strike(job)
        return False

    def _strike(self, job: Job) -> None:
        strikes = max(job.push.strikes, 0) + 1
        log.warning(
            "push %s was in flight when a dispatcher died, %d of %d times",
            job.push.push_id,
            strikes,
            STRIKES,
            extra={"action": "push_strike", "task": job.push.task_id, **ids_of(job.push)},
        )
        job.push = replace(job.push, strikes=strikes)
        if strikes < STRIKES:
            self._settler.later(job, 0.0)
            return
        reason = f"poison: {STRIKES} dispatchers died while delivering it"
        self._settler.settle(job, Outcome.dead(reason))

    async def _claim(self, jobs: list[Job], owner: str) -> Sequence[ClaimResult]:
        for job in jobs:  # before the call, which may get through although it fails
            self._owners[job] = owner
        return await self._ledger.claim([_claim_of(job) for job in jobs], owner, self._ttl_s)

    async def _release(self, jobs: list[Job], owner: str) -> None:
        await self._ledger.release([_claim_of(job) for job in jobs], owner)

    async def _keep_mark(self) -> None:
        """Leave the mark, unless another process has it; go on until cancelled."""
        self._found_no_mark = await self._leave_mark() == [ClaimResult.WON]
        self.changed()
        while True:
            await asyncio.sleep(_MARK_TTL_S / 3)
            await self._leave_mark()

    async def _grow_old(self) -> None:
        """Concern fewer pushes once it is old enough, though the ledger may be away."""
        await asyncio.sleep(YOUNG_S)
        self.changed()

    async def _leave_mark(self) -> Sequence[ClaimResult] | None:
        return await self._ask(lambda: self._ledger.claim([MARK], self._process, _MARK_TTL_S), 0)


def _place(job: Job) -> tuple[str, int]:
    return job.push.task_id, job.push.seq


def _claim_of(job: Job) -> Push:
    """Return what is claimed: for each strike anew, and apart from the push's own delivery."""
    return Push(f"{job.push.task_id}~{job.push.strikes}", job.push.seq, "")
