"""Who may deliver, for tasks that promise more than at least once: asks the ledger.

Stands between the loop and the sink. A push is claimed before its delivery and confirmed after it,
all while it holds its slot, so what a kill leaves unknown is never more than what was in flight.
Tasks that promise at least once never get here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.backends.guard_ports import (
    ClaimResult,
    Ledger,
)
from pushlane.core.lane import Job
from pushlane.core.push import Kind, Outcome
from pushlane.core.settle import Settler
from pushlane.core.task import DeliveryMode, OnUnknown, Task
from pushlane.dispatcher.guards.store_guard import StoreGuard, claim_ttl_s
from pushlane.dispatcher.stats import Stats
from pushlane.settings import Settings

_DELIVERED_BEFORE = "delivered before"
_LOST = "its dispatcher was lost during delivery; it may have arrived"


class ClaimGuard(StoreGuard):
    """The guard of tasks that promise more than at least once; answers while `run` runs."""

    def __init__(self, ledger: Ledger, settings: Settings, settler: Settler, stats: Stats) -> None:
        super().__init__(settings, settler, stats, repeat_s=claim_ttl_s(settings))
        self._ledger = ledger
        self._claims = self._batched_take(self._claim)
        self._confirms = self._batched(self._confirm)
        self._releases = self._batched_give_back(self._release)

    def concerns(self, task: Task) -> bool:
        return task.delivery is not DeliveryMode.AT_LEAST_ONCE

    async def _admit(self, jobs: list[Job]) -> list[Job]:
        results = await self._claims.ask(jobs)
        return [job for job, result in zip(jobs, results, strict=True) if self._goes(job, result)]

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Tell the ledger how it went.

        A dead push keeps its claim: it may have arrived, and may come back until it is acked.
        """
        ended: list[Job] = []
        failed: list[Job] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job in self._owners and (outcome is None or outcome.kind is not Kind.DEAD):
                was_sent = outcome is not None and outcome.kind is not Kind.RETRY
                (ended if was_sent else failed).append(job)
        if ended:
            await self._confirms.ask(ended)
        if failed:
            await self._releases.ask(failed)
        for job in jobs:
            self._owners.pop(job, None)

    def _goes(self, job: Job, result: ClaimResult | None) -> bool:
        """Tell whether to deliver the push now; if not, take care of it."""
        if result is None:
            return True
        self._stats.claims[result] += 1
        if result is ClaimResult.HELD:  # until then its claim may still run
            self._settler.later(job, self._ttl_s)
        elif result is ClaimResult.CONFIRMED:
            self._settler.end_as_before(job, Kind.DELIVERED, _DELIVERED_BEFORE)
        elif result is not ClaimResult.UNKNOWN or self._may_go_again(job):
            return True
        self._owners.pop(job, None)
        return False

    def _may_go_again(self, job: Job) -> bool:
        """Tell whether a push goes whose process was lost during delivery, so that it may have
        arrived; if not, it is buried.
        """
        task = job.task
        if task.delivery is DeliveryMode.AT_MOST_ONCE or task.on_unknown is OnUnknown.BURY:
            self._settler.settle(job, Outcome.dead(_LOST))
            return False
        return True

    async def _claim(self, jobs: list[Job], owner: str) -> Sequence[ClaimResult]:
        pushes = [job.push for job in jobs]
        durable = any(job.task.delivery is DeliveryMode.AT_MOST_ONCE for job in jobs)
        results = await self._ledger.claim(pushes, owner, self._ttl_s, durable=durable)
        for job in jobs:
            self._owners[job] = owner
        return results

    async def _confirm(self, jobs: list[Job]) -> None:
        await self._ledger.confirm([job.push for job in jobs])

    async def _release(self, jobs: list[Job], owner: str) -> None:
        await self._ledger.release([job.push for job in jobs], owner)
