"""Finds the push that ends every process which delivers it, where a sink runs somebody's own code.

A process that starts where another died (see `liveness`) claims what it delivers, until it has
lived for a while: so the next one knows what was in flight when this one died. That is a strike. A
push with strikes is delivered apart from others, and buried after the last: a poison ends its crash
loop, and what only flew beside it is delivered.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pushlane.dispatcher.guards.call_batcher import CallBatcher
from pushlane.dispatcher.guards.degradable_call import DegradableCall
from pushlane.dispatcher.guards.liveness import Liveness
from pushlane.dispatcher.job import Job, by_owner, parted
from pushlane.dispatcher.settlement.outcomes import Outcomes
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.ports import ClaimResult, Ledger
from pushlane.lanes.push import Outcome, Push
from pushlane.lanes.settings import Settings

log = logging.getLogger("pushlane.suspects")

STRIKES = 3
YOUNG_S = 30.0
_AT_ONCE = 10  # with one strike: in one of so many slots; with more, one at a time
_AGAIN_S = 1.0


class PoisonGuard:
    """The guard against poison, where a sink runs somebody's own code."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        outcomes: Outcomes,
        stats: Stats,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._ttl_s = settings.sink_timeout_s + settings.claim_timeout_s
        self._most = max(1, settings.slots // _AT_ONCE)
        self._outcomes = outcomes
        self._reach = DegradableCall(stats, waits=settings.ledger_away == "wait")
        self._clock_s = clock_s
        self._old_at_s = clock_s() + YOUNG_S
        self._process = secrets.token_hex(6)
        self._alive = Liveness(ledger, self._reach, self._process)
        self._calls = itertools.count(1)
        self._flying = 0
        self._held: set[tuple[str, int]] = set()  # claims of our own that are not let go of yet
        self._claims = CallBatcher(self._claim)
        self._releases = CallBatcher(self._release)

    async def run(self) -> None:
        await asyncio.gather(self._alive.keep(), self._claims.run(), self._releases.run())

    async def close(self) -> None:
        """This process ends well. Raises Unreachable: the next one will not believe it."""
        await self._alive.take_away()

    def applies(self, job: Job) -> bool:
        if job.push.strikes:
            return True
        return not self._alive.found_none and self._clock_s() < self._old_at_s

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        """Those to deliver now. The others are taken care of."""
        jobs, repeats = parted(jobs)
        ours = [job for job in jobs if _place(job) in self._held]
        for job in (*repeats, *ours):
            self._outcomes.later(job, _AGAIN_S)
        jobs = [job for job in jobs if _place(job) not in self._held]
        if not jobs:
            return []
        strikes = jobs[0].push.strikes
        if strikes and self._flying >= (self._most if strikes == 1 else 1):
            self._outcomes.later(jobs[0], _AGAIN_S * random.uniform(0.5, 1.5))
            return []
        self._flying += bool(strikes)
        places = set(map(_place, jobs))
        self._held |= places
        results = await self._claims.ask(jobs)
        going = [job for job, result in zip(jobs, results, strict=True) if self._goes(job, result)]
        self._held -= places.difference(map(_place, going))
        self._flying -= bool(strikes and not going)
        return going

    async def conclude(
        self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
    ) -> list[Outcome | None]:
        """They are no longer on their way, and this process lives."""
        self._flying -= bool(jobs[0].push.strikes)
        await self._releases.ask(jobs)
        self._held.difference_update(map(_place, jobs))
        return list(outcomes)

    def _goes(self, job: Job, result: ClaimResult | None) -> bool:
        """A claim that is still there is that of a process which let go of the push: the broker
        gives a message to one at a time.
        """
        if result in (None, ClaimResult.WON):
            return True
        self._strike(job)
        return False

    def _strike(self, job: Job) -> None:
        strikes = job.push.strikes + 1
        log.warning(
            "push %s was in flight when a dispatcher died, %d of %d times",
            job.push.push_id,
            strikes,
            STRIKES,
            extra={"action": "push_strike", "task": job.push.task_id},
        )
        job.push = replace(job.push, strikes=strikes)
        if strikes < STRIKES:
            self._outcomes.later(job, 0.0)
            return
        reason = f"poison: {STRIKES} dispatchers died while delivering it"
        self._outcomes.settle(job, Outcome.dead(reason))

    async def _claim(self, jobs: list[Job]) -> Sequence[ClaimResult | None]:
        owner = f"{self._process}-{next(self._calls)}"
        claims = [_claim_of(job) for job in jobs]
        results = await self._reach.ask(
            lambda: self._ledger.claim(claims, owner, self._ttl_s), len(jobs)
        )
        for job in jobs:
            job.watched_by = owner
        return [None] * len(jobs) if results is None else results

    async def _release(self, jobs: list[Job]) -> Sequence[None]:
        for owner, owned in by_owner(jobs, lambda job: job.watched_by).items():
            await self._release_of(owner, [_claim_of(job) for job in owned])
        return [None] * len(jobs)

    async def _release_of(self, owner: str, pushes: list[Push]) -> None:
        await self._reach.ask(lambda: self._ledger.release(pushes, owner), len(pushes))


def _place(job: Job) -> tuple[str, int]:
    return job.push.task_id, job.push.seq


def _claim_of(job: Job) -> Push:
    """What is claimed: for each strike anew, and apart from the push's own delivery."""
    return Push(f"{job.push.task_id}~{job.push.strikes}", job.push.seq, "")
