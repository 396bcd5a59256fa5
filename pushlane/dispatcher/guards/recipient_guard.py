"""Drops what a recipient has had already, or is to have in a newer form: dedupe and collapse.

Stands between the loop and the sink, before claims are made. A push of a collapse key
holds its recipient's turn during delivery, so a newer one waits for its outcome. Other pushes never
get here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.core.lane import Job
from pushlane.core.push import Kind, Outcome, Push
from pushlane.core.settle import Settler
from pushlane.core.task import Task
from pushlane.dispatcher.guards.store_guard import StoreGuard
from pushlane.dispatcher.stats import DUPLICATE, SUPERSEDED, Stats
from pushlane.lanes.ports import RecipientTurn, RecipientWindows
from pushlane.model.recipients import Mark, collapse_mark, dedupe_mark
from pushlane.settings import Settings

_BUSY_AGAIN_S = 1.0


class RecipientGuard(StoreGuard):
    """The guard of pushes that others to their recipient may make needless."""

    def __init__(
        self,
        windows: RecipientWindows,
        settings: Settings,
        settler: Settler,
        stats: Stats,
    ) -> None:
        super().__init__(settings, settler, stats, repeat_s=_BUSY_AGAIN_S)
        self._windows = windows
        self._firsts = self._batched(self._first)
        self._enters = self._batched_take(self._enter)
        self._leaves = self._batched_give_back(self._leave)

    def concerns(self, task: Task) -> bool:
        return task.dedupe

    def concerns_push(self, push: Push) -> bool:
        return bool(push.collapse)

    async def _admit(self, jobs: list[Job]) -> list[Job]:
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
        """Let the next push of the same recipient enter: these are no longer on their way."""
        if entered := [job for job in jobs if job in self._owners]:
            await self._leaves.ask(entered)
        return list(outcomes)

    def _duplicates(self, jobs: list[Job], answers: Sequence[bool | None]) -> set[int]:
        """Take care of those that are not the first, and return their ids."""
        gone = [job for job, is_first in zip(jobs, answers, strict=True) if is_first is False]
        for job in gone:
            self._drop(job, DUPLICATE)
        return set(map(id, gone))

    def _not_in_turn(self, jobs: list[Job], turns: Sequence[RecipientTurn | None]) -> set[int]:
        """Take care of those that may not go now, and return their ids."""
        gone = set()
        for job, turn in zip(jobs, turns, strict=True):
            if turn is RecipientTurn.OVER:
                self._drop(job, SUPERSEDED)
                gone.add(id(job))
            elif turn is RecipientTurn.BUSY:
                self._settler.later(job, _BUSY_AGAIN_S)
                gone.add(id(job))
        return gone

    def _drop(self, job: Job, reason: str) -> None:
        self._stats.dropped[reason] += 1
        self._settler.end(job, Kind.DROPPED, reason)

    async def _first(self, jobs: list[Job]) -> Sequence[bool]:
        return await self._windows.first([dedupe_mark(job.push) for job in jobs])

    async def _enter(self, jobs: list[Job], owner: str) -> Sequence[RecipientTurn]:
        turns = await self._windows.enter(_collapse_marks(jobs), owner, self._ttl_s)
        for job, turn in zip(jobs, turns, strict=True):
            if turn is RecipientTurn.GO:
                self._owners[job] = owner
        return turns

    async def _leave(self, jobs: list[Job], owner: str) -> None:
        await self._windows.leave(_collapse_marks(jobs), owner)


def _collapse_marks(jobs: Sequence[Job]) -> list[Mark]:
    return [collapse_mark(job.task.app, job.push) for job in jobs]
