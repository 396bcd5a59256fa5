"""Drops what a recipient has had already, or is to have in a newer form: dedupe and collapse.

Stands between the loop and the sink, before the gate. A push of a collapse key holds its
recipient's turn during delivery, so a newer one waits for its outcome. Other pushes never get here.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Sequence

from pushlane.dispatcher.guards.call_batcher import CallBatcher
from pushlane.dispatcher.guards.degradable_call import DegradableCall
from pushlane.dispatcher.job import Job, by_owner, parted
from pushlane.dispatcher.settlement.outcomes import Outcomes
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.stats import DUPLICATE, SUPERSEDED, Stats
from pushlane.lanes.ports import RecipientTurn, RecipientWindows
from pushlane.lanes.push import Kind, Outcome
from pushlane.lanes.recipient_window import Mark, collapse_mark, dedupe_mark
from pushlane.lanes.settings import Settings

_BUSY_AGAIN_S = 1.0


class RecipientGuard:
    """The guard of pushes that others to their recipient may make needless."""

    def __init__(
        self,
        marks: RecipientWindows,
        settings: Settings,
        outcomes: Outcomes,
        settler: Settler,
        stats: Stats,
    ) -> None:
        self._marks = marks
        self._ttl_s = settings.sink_timeout_s + settings.claim_timeout_s
        self._outcomes = outcomes
        self._settler = settler
        self._stats = stats
        self._reach = DegradableCall(stats, waits=settings.ledger_away == "wait")
        self._process = secrets.token_hex(6)
        self._calls = itertools.count(1)
        self._firsts = CallBatcher(self._first)
        self._enters = CallBatcher(self._enter)
        self._leaves = CallBatcher(self._leave)

    def applies(self, job: Job) -> bool:
        return job.task.dedupe or bool(job.push.collapse)

    async def run(self) -> None:
        await asyncio.gather(self._firsts.run(), self._enters.run(), self._leaves.run())

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        """Those to deliver now. The others are taken care of."""
        jobs, repeats = parted(jobs)
        for job in repeats:
            self._outcomes.later(job, _BUSY_AGAIN_S)
        if deduped := [job for job in jobs if job.task.dedupe]:
            gone = self._duplicates(deduped, await self._firsts.ask(deduped))
            jobs = [job for job in jobs if id(job) not in gone]
        if collapsing := [job for job in jobs if job.push.collapse]:
            gone = self._not_in_turn(collapsing, await self._enters.ask(collapsing))
            jobs = [job for job in jobs if id(job) not in gone]
        return jobs

    async def conclude(
        self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
    ) -> list[Outcome | None]:
        """They are no longer on their way: the next may enter."""
        if entered := [job for job in jobs if job.turn_of]:
            await self._leaves.ask(entered)
        return list(outcomes)

    def _duplicates(self, jobs: list[Job], answers: Sequence[bool | None]) -> set[int]:
        """Takes care of those that are not the first, and names them."""
        gone = [job for job, is_first in zip(jobs, answers, strict=True) if is_first is False]
        for job in gone:
            self._drop(job, DUPLICATE)
        return set(map(id, gone))

    def _not_in_turn(self, jobs: list[Job], turns: Sequence[RecipientTurn | None]) -> set[int]:
        """Takes care of those that may not go now, and names them."""
        gone = set()
        for job, turn in zip(jobs, turns, strict=True):
            if turn is RecipientTurn.OVER:
                self._drop(job, SUPERSEDED)
                gone.add(id(job))
            elif turn is RecipientTurn.BUSY:
                self._outcomes.later(job, _BUSY_AGAIN_S)
                gone.add(id(job))
        return gone

    def _drop(self, job: Job, reason: str) -> None:
        self._stats.dropped[reason] += 1
        self._stats.outcomes[job.lane.level, Kind.DROPPED] += 1
        self._settler.finish(job, Kind.DROPPED, reason)

    async def _first(self, jobs: list[Job]) -> Sequence[bool | None]:
        marks = [dedupe_mark(job.push) for job in jobs]
        answers = await self._reach.ask(lambda: self._marks.first(marks), len(jobs))
        return [None] * len(jobs) if answers is None else answers

    async def _enter(self, jobs: list[Job]) -> Sequence[RecipientTurn | None]:
        """A call is its own owner: even here, two attempts at a push do not go at once."""
        owner = f"{self._process}-{next(self._calls)}"
        marks = _collapse_marks(jobs)
        turns = await self._reach.ask(
            lambda: self._marks.enter(marks, owner, self._ttl_s), len(jobs)
        )
        if turns is None:
            return [None] * len(jobs)
        for job, turn in zip(jobs, turns, strict=True):
            job.turn_of = owner if turn is RecipientTurn.GO else ""
        return turns

    async def _leave(self, jobs: list[Job]) -> Sequence[None]:
        owned = by_owner(jobs, lambda job: job.turn_of)
        await asyncio.gather(*(self._leave_of(owner, owned[owner]) for owner in owned))
        return [None] * len(jobs)

    async def _leave_of(self, owner: str, jobs: list[Job]) -> None:
        marks = _collapse_marks(jobs)
        await self._reach.ask(lambda: self._marks.leave(marks, owner), len(jobs))


def _collapse_marks(jobs: Sequence[Job]) -> list[Mark]:
    return [collapse_mark(job.task.app, job.push) for job in jobs]
