"""Drops what a recipient has had already, must not be sent, or cannot be sent to any more.

`RecipientGuard` has keys of pushes, dedupe and collapse. A push of a collapse key holds its
recipient's turn during delivery, so a newer one waits for its outcome.

`ContactGuard` has suppression and frequency caps. Both are asked in one call for many pushes, after
duplicates are sorted out, so that none of them takes a place. While nothing is suppressed and no
cap is set, no push gets there. A push that is counted keeps its place whatever becomes of it,
unless it dies and surely has not arrived: then it gives it back.

`DeadAddressRecorder` stands beside the settling of pushes, and holds none up. It records what a
sink's provider calls dead, so that no running task sends there again: what it heard waits in
memory, bounded, until the store has it. What is lost with a process, or heard while too much waits,
is found out again by the next push to that address.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import (
    RecipientTurn,
    RecipientWindows,
)
from pushlane.core.lane import Job
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Push, Scope
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.slots import Batch
from pushlane.core.task import Task
from pushlane.dispatcher.guards.store_guard import StoreGuard
from pushlane.dispatcher.stats import (
    CAPPED,
    DUPLICATE,
    DUPLICATE_KEY,
    SUPERSEDED,
    SUPPRESSED,
    Stats,
)
from pushlane.model.limits import Calendar, FrequencyCaps, Limits
from pushlane.model.recipients import (
    EVERYWHERE,
    REASON_LONGEST,
    AddressDeath,
    CapDay,
    Hasher,
    Mark,
    SuppressionScope,
    collapse_mark,
    dedupe_mark,
    kept_hasher,
    key_mark,
)
from pushlane.settings import Settings
from pushlane.util.retrying import whenever

_BUSY_AGAIN_S = 1.0


class RecipientGuard(StoreGuard):
    """The guard of pushes that others to their recipient may make needless."""

    def __init__(
        self, windows: RecipientWindows, settings: Settings, settler: Settler, stats: Stats
    ) -> None:
        super().__init__(settings, settler, stats, repeat_s=_BUSY_AGAIN_S)
        self._windows = windows
        self._key_window_s = settings.key_window_s
        self._keys = self._batched(self._first_of_key)
        self._firsts = self._batched(self._first)
        self._enters = self._batched_take(self._enter)
        self._leaves = self._batched_give_back(self._leave)

    def concerns(self, task: Task) -> bool:
        return task.dedupe

    def concerns_push(self, push: Push) -> bool:
        return bool(push.collapse or push.key)

    async def _admit(self, jobs: list[Job]) -> list[Job]:
        gone: set[Job] = set()
        if keyed := [job for job in jobs if job.push.key]:
            for job, is_first in zip(keyed, await self._keys.ask(keyed), strict=True):
                if is_first is False:
                    self._drop(job, DUPLICATE_KEY)
                    gone.add(job)
        if deduped := [job for job in jobs if job.task.dedupe and job not in gone]:
            for job, is_first in zip(deduped, await self._firsts.ask(deduped), strict=True):
                if is_first is False:
                    self._drop(job, DUPLICATE)
                    gone.add(job)
        if collapsing := [job for job in jobs if job.push.collapse and job not in gone]:
            for job, turn in zip(collapsing, await self._enters.ask(collapsing), strict=True):
                if turn is RecipientTurn.OVER:
                    self._drop(job, SUPERSEDED)
                    gone.add(job)
                elif turn is RecipientTurn.BUSY:
                    self._settler.later(job, _BUSY_AGAIN_S)
                    gone.add(job)
        return [job for job in jobs if job not in gone]

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Let the next push of the same recipient enter: these are no longer on their way."""
        if entered := [job for job in jobs if job in self._owners]:
            await self._leaves.ask(entered)

    def _drop(self, job: Job, reason: str) -> None:
        self._stats.dropped[reason] += 1
        self._settler.end(job, Kind.DROPPED, reason)

    async def _first_of_key(self, jobs: list[Job]) -> Sequence[bool]:
        marks = [key_mark(job.task.app, job.push) for job in jobs]
        return await self._windows.first(marks, self._key_window_s)

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

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
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

    async def _follow(self) -> None:
        """Look up every moment whether anything is suppressed, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._ask(self._read_scopes, 0)

    async def _read_scopes(self) -> None:
        before, self._scopes = self._scopes, await self._backend.suppressions.counts()
        if before is None or before.keys() != self._scopes.keys():
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


log = logging.getLogger("pushlane.dead_addresses")

_MOST_WAITING = 10_000
_AT_ONCE = 100  # to encrypt so many takes 5 ms
_LONGEST_SEALED = 4_096


@dataclass(eq=False, repr=False)
class DeadAddressRecorder:
    """Hears of dead addresses of one sink; `tell` is called when some have been suppressed.

    Raises:
        BadInput: the setting `address_key` is no key.
    """

    backend: Backend
    sink: str
    settings: Settings
    stats: Stats
    clock_ms: Callable[[], int]
    tell: Callable[[], None]

    def __post_init__(self) -> None:
        self._seal = _sealing(self.settings)
        self._hasher: Hasher | None = None
        self._waiting: dict[str, AddressDeath] = {}  # by address, without its hash yet
        self._due = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_full = False

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that go: nothing is known of their addresses yet."""

    def landed(self, batch: Batch, now_s: float) -> None:
        if batch.outcomes:
            self.hear(batch.sent, batch.outcomes)

    def hear(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        """Note those of these pushes whose address the sink has called dead."""
        for job, outcome in zip(jobs, outcomes, strict=True):
            is_gone = outcome.kind is Kind.DEAD and outcome.scope is Scope.RECIPIENT
            if is_gone and job.push.address(self.sink):
                self._note(job, outcome)

    async def run(self) -> None:
        await whenever(self._due, self._record_all, Backoff(log, "the store of dead addresses"))

    async def drain(self, timeout_s: float) -> None:
        """Wait until nothing waits to be recorded, as far as time allows."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            log.warning(
                "%d dead addresses are not recorded: they will be found out again",
                len(self._waiting),
                extra={"action": "dead_addresses_left"},
            )

    def _note(self, job: Job, outcome: Outcome) -> None:
        address = job.push.address(self.sink)
        if address not in self._waiting and len(self._waiting) >= _MOST_WAITING:
            self._tell_full()
            return
        told_ms = outcome.gone_at_ms if outcome.gone_at_ms > 0 else job.dispatched_at_ms
        died_at_ms = min(told_ms, self.clock_ms())
        before = self._waiting.get(address)
        if before is None or before.died_at_ms < died_at_ms:
            reason = outcome.reason[:REASON_LONGEST]
            self._waiting[address] = AddressDeath(0, died_at_ms, reason, job.task.app)
        self._empty.clear()
        self._due.set()

    def _tell_full(self) -> None:
        if not self._is_full:
            log.warning(
                "%d dead addresses wait to be recorded; more are left to be found out again",
                _MOST_WAITING,
                extra={"action": "dead_addresses_full"},
            )
        self._is_full = True

    async def _record_all(self) -> None:
        while some := list(islice(self._waiting.items(), _AT_ONCE)):
            await self._record(some)
            for address, death in some:
                if self._waiting[address] is death:  # nothing newer was heard meanwhile
                    del self._waiting[address]
        self._is_full = False
        self._empty.set()

    async def _record(self, heard: list[tuple[str, AddressDeath]]) -> None:
        if self._hasher is None:
            self._hasher = await kept_hasher(self.backend.documents)
        hashes = self._hasher.hashes([address for address, _ in heard])
        deaths = {
            one: death._replace(hash=one, sealed=self._sealed(address))
            for one, (address, death) in zip(hashes, heard, strict=True)
        }
        port = self.backend.dead_addresses
        recorded = await port.record(self.sink, list(deaths.values()), self.clock_ms())
        for one in recorded:
            self.stats.address_died(deaths[one].reason)
        self.tell()

    def _sealed(self, address: str) -> str:
        """Return what is kept of an address: nothing of one that is too long for any token."""
        return self._seal(address) if len(address) <= _LONGEST_SEALED else ""


def _sealing(settings: Settings) -> Callable[[str], str]:
    """Return what encrypts an address; without a key nothing is kept of it."""
    if settings.address_key is None:
        return lambda address: ""
    from pushlane.model.address_seal import AddressSeal  # slow to import, and rarely needed

    return AddressSeal(settings.address_key).sealed
