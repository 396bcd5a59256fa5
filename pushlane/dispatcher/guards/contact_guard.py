"""Drops pushes whose recipient must not be sent to, or has had enough for today.

That is suppression and frequency caps. Both are asked in one call for many pushes, after what their
recipient has had already is sorted out, so that no duplicate takes a place. While nothing is
suppressed and no cap is set, no push gets here. A push that is counted keeps its place whatever
becomes of it, unless it dies and surely has not arrived: then it gives it back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pushlane.backends.backend import Backend
from pushlane.core.lane import Job
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome
from pushlane.core.settle import Settler
from pushlane.core.task import Task
from pushlane.dispatcher.guards.store_guard import StoreGuard
from pushlane.dispatcher.stats import CAPPED, SUPPRESSED, Stats
from pushlane.lanes.frequency_caps import Calendar, FrequencyCaps
from pushlane.lanes.recipient_hash import Hasher, kept_hasher
from pushlane.lanes.suppression import EVERYWHERE, SuppressionScope
from pushlane.model.limits import Limits
from pushlane.model.recipients import CapDay
from pushlane.settings import Settings

_CapPlace = tuple[CapDay, int]

_ADDRESS = "address"
_AGAIN_S = 1.0
_LOOK_S = 0.5


class ContactGuard(StoreGuard):
    """The guard of recipients who are suppressed or capped, at one sink."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        settler: Settler,
        stats: Stats,
        clock_ms: Callable[[], int],
    ) -> None:
        super().__init__(settings, settler, stats, repeat_s=_AGAIN_S)
        self._backend = backend
        self._sink = settler.sink
        self._sink_scope = SuppressionScope("sink", settler.sink)
        self._counted: dict[Job, _CapPlace] = {}  # of those in flight
        self._calendar = Calendar(clock_ms)
        self._hasher: Hasher | None = None
        self._caps: FrequencyCaps | None = None
        self._told = asyncio.Event()
        self._scopes: Mapping[SuppressionScope, int] | None = None
        self._is_idle = False
        self._checks = self._batched(self._check)
        self._returns = self._batched(self._give_back)

    def on_limits(self, limits: Limits) -> None:
        """Go by these limits from now on."""
        self._caps = FrequencyCaps(limits)
        self._told.set()
        self._look()

    def on_dead_address(self) -> None:
        """Ask about this sink's addresses from now on, not only from the next look on."""
        if self._scopes is not None and self._sink_scope not in self._scopes:
            self._scopes = {**self._scopes, self._sink_scope: 1}
            self._look()

    def concerns(self, task: Task) -> bool:
        """Tell whether pushes of an app have to be asked about."""
        if self._is_idle:
            return False
        caps, scopes = self._caps, self._scopes
        if caps is None or scopes is None:  # nobody has answered yet
            return True
        return (
            EVERYWHERE in scopes
            or self._sink_scope in scopes
            or SuppressionScope("app", task.app) in scopes
            or caps.has(task.app)
        )

    async def run(self) -> None:
        await asyncio.gather(self._follow(), super().run())

    async def _admit(self, jobs: list[Job]) -> list[Job]:
        reasons = await self._checks.ask(jobs)
        if not any(reasons):
            return jobs
        for job, reason in zip(jobs, reasons, strict=True):
            if reason:
                self._counted.pop(job, None)
                self._drop(job, reason)
        return [job for job, reason in zip(jobs, reasons, strict=True) if not reason]

    async def conclude(
        self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
    ) -> list[Outcome | None]:
        """Give back the places of pushes that are dead and have not arrived."""
        freed = [
            job
            for job, outcome in zip(jobs, outcomes, strict=True)
            if outcome is not DELIVERED and job in self._counted and _has_not_arrived(outcome)
        ]
        if freed:
            await self._returns.ask(freed)
        for job in jobs:
            self._counted.pop(job, None)
        return list(outcomes)

    async def _follow(self) -> None:
        """Look up every moment whether anything is suppressed, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._store.ask(self._read_scopes, 0)

    async def _read_scopes(self) -> None:
        self._scopes = await self._backend.suppressions.counts()
        self._look()

    def _look(self) -> None:
        self._is_idle = not self._scopes and self._scopes is not None and _is_none(self._caps)
        self.changed()

    async def _learn(self) -> Hasher:
        """Read what is not known yet: limits and scopes may be told only after the first push."""
        if self._scopes is None:
            await self._read_scopes()
        await self._told.wait()
        if self._hasher is None:
            self._hasher = await kept_hasher(self._backend.documents)
        return self._hasher

    async def _check(self, jobs: list[Job]) -> list[str]:
        """Return for each push why it is dropped, an empty text for those that may go."""
        hasher = await self._learn()
        hashes = hasher.hashes([job.push.recipient for job in jobs])
        reasons = await self._suppressed(jobs, hashes, hasher) if self._scopes else {}
        pairs: Iterable[tuple[Job, int]] = zip(jobs, hashes, strict=True)
        if reasons:
            pairs = [pair for pair in pairs if id(pair[0]) not in reasons]
        capped = [] if _is_none(self._caps) else await self._capped(pairs, hasher)
        if not reasons and not capped:
            return [""] * len(jobs)
        reasons |= dict.fromkeys(capped, CAPPED)
        return [reasons.get(id(job), "") for job in jobs]

    async def _suppressed(
        self, jobs: list[Job], hashes: list[int], hasher: Hasher
    ) -> dict[int, str]:
        """Return the ids of jobs that must not go, each with the reason."""
        asked = self._asked(jobs, hashes, hasher)
        questions = {scope: [one for one, _ in some] for scope, some in asked.items()}
        answers = await self._backend.suppressions.find(questions)
        found = {scope: set(hits) for scope, hits in answers.items()}
        reasons: dict[int, str] = {}
        for scope, hits in found.items():
            reason = _ADDRESS if scope == self._sink_scope else SUPPRESSED
            for one, job in asked[scope] if hits else ():
                if one in hits and reasons.get(id(job)) != SUPPRESSED:
                    reasons[id(job)] = reason
        return reasons

    def _asked(
        self, jobs: list[Job], hashes: list[int], hasher: Hasher
    ) -> dict[SuppressionScope, list[tuple[int, Job]]]:
        """Return by scope what may be suppressed there: only scopes that have any."""
        scopes = self._scopes or {}
        asked: dict[SuppressionScope, list[tuple[int, Job]]] = defaultdict(list)
        pairs = list(zip(hashes, jobs, strict=True))
        if EVERYWHERE in scopes:
            asked[EVERYWHERE] = pairs
        if self._sink_scope in scopes:
            addresses = hasher.hashes([job.push.address(self._sink) for job in jobs])
            asked[self._sink_scope] = list(zip(addresses, jobs, strict=True))
        if apps := {scope.name: scope for scope in scopes if scope.kind == "app"}:
            for one, job in pairs:
                if own := apps.get(job.task.app):
                    asked[own].append((one, job))
        return asked

    async def _capped(self, pairs: Iterable[tuple[Job, int]], hasher: Hasher) -> list[int]:
        """Count pushes against their caps; return the ids of jobs for which there is no room."""
        places: dict[tuple[int, str], _CapPlace | None] = {}
        groups: dict[CapDay, dict[str, Job]] = defaultdict(dict)
        for job, one in pairs:
            push, task = job.push, job.task
            kind = id(task), push.zone
            if kind in places:
                place = places[kind]
            else:
                place = places[kind] = self._place(task, push.zone or task.zone, hasher)
            if place is not None:
                on, salt = place
                self._counted[job] = on, one ^ salt
                groups[on][f"{push.task_id}-{push.seq}"] = job
        refused = [await self._count(on, jobs) for on, jobs in groups.items()]
        return [id(job) for jobs in refused for job in jobs]

    def _place(self, task: Task, zone: str, hasher: Hasher) -> _CapPlace | None:
        """Return today's cap of a task, and what makes its app's keys; None without a cap."""
        cap = self._caps.of(task.app, task.level) if self._caps else None
        if cap is None:
            return None
        on = CapDay(self._calendar.day(zone), task.level, cap)
        return on, hasher.hashes([f"app:{task.app}"])[0]

    async def _count(self, on: CapDay, jobs: dict[str, Job]) -> list[Job]:
        """Return those for which there is no room on the day."""
        keys = {token: self._counted[job][1] for token, job in jobs.items()}
        refused = await self._backend.recipient_windows.count(on, keys)
        return [jobs[token] for token in refused]

    async def _give_back(self, jobs: list[Job]) -> list[None]:
        groups: dict[CapDay, dict[str, int]] = defaultdict(dict)
        for job in jobs:
            if place := self._counted.get(job):
                on, key = place
                groups[on][job.push.push_id] = key
        for on, keys in groups.items():
            await self._backend.recipient_windows.uncount(on, keys)
        return [None] * len(jobs)

    def _drop(self, job: Job, reason: str) -> None:
        """Finish a push; one of which only the address is suppressed may go on to another sink."""
        if reason == _ADDRESS:
            outcome = self._settler.passed_on(job, Outcome.dead("its address is suppressed"))
            if outcome.goes_to:
                return self._settler.settle(job, outcome)
            reason = SUPPRESSED
        self._stats.dropped[reason] += 1
        return self._settler.end(job, Kind.DROPPED, reason)


def _is_none(caps: FrequencyCaps | None) -> bool:
    return caps is not None and caps.is_none


def _has_not_arrived(outcome: Outcome | None) -> bool:
    return (
        outcome is not None and outcome.kind is Kind.DEAD and outcome.arrival is not Arrival.UNKNOWN
    )
