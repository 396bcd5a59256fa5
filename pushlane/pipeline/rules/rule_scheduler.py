"""Leads the rules: notes what comes due or is asked for, and carries out one run at a time.

The process that holds the lease does this, and the others stand by. A leader that loses the lease
stops its run where it is, and the next leader resumes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.backends.contact import REGISTRY, Contact
from pushlane.backends.leases import Leader
from pushlane.backends.ports import Fence
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.model import task_changes
from pushlane.pipeline.rules.history import (
    History,
    Run,
    RunState,
    iso_utc,
    next_due_ms,
    note_due,
    request_run,
    requests,
    withdraw_run,
)
from pushlane.pipeline.rules.rule import Rule
from pushlane.pipeline.rules.rule_store import LEASE, RuleRecord, RuleStore
from pushlane.pipeline.rules.runner import Expand, RuleStats, Runner
from pushlane.util.errors import Superseded

log = logging.getLogger("pushlane.rules")

LOOK_S = 3.0
"""The time between looks; each renews the lease, so it is under a third of a lease."""


class RunId(NamedTuple):
    rule: str
    at_ms: int


@dataclass(eq=False)
class RuleScheduler:
    """Notes and runs what is due while it leads; with `only`, no other run is carried out.

    `contact` is told when the registry answers, and of its start and stop, `stats` of each look.
    """

    store: RuleStore
    runner: Runner
    leader: Leader
    clock: RealClock
    only: RunId | None = None
    contact: Contact = field(default_factory=lambda: Contact(REGISTRY))
    stats: RuleStats = field(default_factory=RuleStats)

    def __post_init__(self) -> None:
        self._fence: Fence | None = None
        self._current: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._stopping = self._is_away = False
        self._is_new = True

    @property
    def leads(self) -> bool:
        return self._fence is not None

    def stop(self) -> None:
        """Make `run` end soon; a run under way is left for the next leader."""
        self._stopping = True
        self.contact.stopping()
        self._wake.set()

    async def run(self, *, once: bool = False) -> None:
        """Lead until stopped; or `once`, until nothing is left to do now or another process leads.

        Raises Unreachable if a service does not answer; only `once`, else it is waited for.
        """
        self.contact[REGISTRY].asked()
        try:
            while not self._stopping:
                self._wake.clear()
                wait_s = await (self._lead() if once else self._look())
                if once and self._current is None:
                    return
                await self.clock.wait(self._wake, wait_s)
        finally:
            await self._halt()
            await self._resign()

    async def _look(self) -> float:
        """Check the lease and the rules once, and return the seconds until the next check."""
        try:
            wait_s = await self._lead()
        except Unreachable as error:
            if not self._is_away:
                log.warning("the rules wait: %s", error, extra={"action": "service_lost"})
            self._is_away = True
            return LOOK_S
        self._is_away = False
        return wait_s

    async def _lead(self) -> float:
        fence = await self.leader.fence()
        self.contact[REGISTRY].heard()
        self.contact.started()
        if fence != self._fence or self._is_new:
            await self._halt()
            self._fence, self._is_new = fence, False
            said = "leading the rules" if fence else "another process leads the rules"
            log.info(said, extra={"action": "leads" if fence else "stands_by"})
        if fence is None:
            self.stats.looked(0, leads=False)
            return LOOK_S
        await self._collect()
        records = [await self._noted(record, fence) for record in await self.store.records()]
        self.stats.looked(sum(len(one.history.open) for one in records), leads=True)
        if self._current is None and (chosen := self._choose(records)):
            work = self.runner.carry_out(chosen.rule, chosen.at_ms, fence.number)
            self._current = asyncio.create_task(work, name=f"rule {chosen.rule}")
            self._current.add_done_callback(lambda _: self._wake.set())
        return self._wait_s(records)

    async def _noted(self, record: RuleRecord, fence: Fence) -> RuleRecord:
        """Store what came due for this rule, and return its record after that."""
        rule, now_ms = record.rule, self.clock.now_ms()
        noted = partial(note_due, rule, now_ms=now_ms, fence=fence.number)
        if noted(record.history) == record.history:
            return record
        return RuleRecord(rule, await self.store.change_history(rule.name, noted))

    def _choose(self, records: Iterable[RuleRecord]) -> RunId | None:
        """Choose the next run: a begun one first, then the one that is due for longest."""
        ready = [
            (not run.has_begun, run.at_ms, record.rule.name)
            for record in records
            for run in _ready(record, self.clock.now_ms())
            if self.only in (None, (record.rule.name, run.at_ms))
        ]
        if not ready:
            return None
        _, at_ms, name = min(ready)
        return RunId(name, at_ms)

    def _wait_s(self, records: Iterable[RuleRecord]) -> float:
        """Return the seconds until something is due, at most those until the next look."""
        now_ms = self.clock.now_ms()
        times = [at_ms for record in records for at_ms in _times(record) if at_ms > now_ms]
        return min([LOOK_S, *((at_ms - now_ms) / 1000 for at_ms in times)])

    async def _collect(self) -> None:
        """Handle the errors of the current run if it has ended."""
        if self._current is None or not self._current.done():
            return
        current, self._current = self._current, None
        try:
            await current
        except Superseded as error:
            log.warning("%s", error, extra={"action": "superseded"})
            self.leader.step_down()
        except PushlaneError as error:
            log.warning("%s: %s", current.get_name(), error, extra={"action": "run_left"})

    async def _halt(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.cancel()
            await asyncio.gather(current, return_exceptions=True)

    async def _resign(self) -> None:
        if self._fence is None:
            return
        try:
            await self.leader.resign()
        except Unreachable:  # the lease ends by itself
            log.warning("the lease could not be given back", extra={"action": "service_lost"})


def _ready(record: RuleRecord, now_ms: int) -> list[Run]:
    """Return the runs of a rule that can be carried out now; a rule has one run at a time."""
    begun = [run for run in record.history.open if run.has_begun]
    if not begun:
        return record.history.open
    return [run for run in begun if run.state is RunState.RUNNING or run.retry_at_ms <= now_ms]


def _times(record: RuleRecord) -> list[int]:
    """Return the times at which there may be something to do for a rule."""
    due_ms = next_due_ms(record.rule, record.history)
    retries = [run.retry_at_ms for run in record.history.open if run.state is RunState.WAITING]
    return [*retries, *([] if due_ms is None else [due_ms])]


class RealClock:
    """The clock of the operating system and the event loop; tests have another one."""

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        return task_changes.now_ms()

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait until the event is set, but at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()


_LOOK_S = 1.0


async def request_now(store: RuleStore, name: str, now_ms: int, *, joins: bool = False) -> int:
    """Request a run of its own, and return the time that it is known by.

    That time is never a whole second, since those are times of schedules. One that `joins` is the
    same as an earlier one that has not begun.
    """
    await store.record(name)
    requested: list[int] = []

    def edit(history: History) -> History:
        waiting = [run for run in requests(history) if run.at_ms % 1000]
        if joins and waiting:
            requested.append(waiting[0].at_ms)
            return history
        at_ms = now_ms
        while at_ms % 1000 == 0 or history.find(at_ms):
            at_ms += 1
        requested.append(at_ms)
        return request_run(at_ms)(history)

    await store.change_history(name, edit)
    return requested[-1]


async def request_again(store: RuleStore, name: str, at_ms: int, now_ms: int) -> int:
    """Request the run of a time that was due, which is made only if it was not made yet.

    Raises BadInput if the rule was not due then, or there is no such rule.
    """
    record = await store.record(name)
    if record.history.find(at_ms) is None:
        _require_due(record.rule, at_ms, now_ms)
    await store.change_history(name, request_run(at_ms))
    return at_ms


async def wait_for_end(
    backend: Backend, wanted: RunId, expand: Expand, clock: RealClock, tell: Callable[[str], None]
) -> Run:
    """Wait until the run has ended, made here or by the process that leads the rules."""
    store = RuleStore(backend.documents)
    runner = Runner(store, backend.registry, expand, clock.now_ms)
    last_note = ""
    while (run := await _find_run(store, wanted)).state.is_open:
        leader = Leader(backend.lease, LEASE, secrets.token_hex(8))
        scheduler = RuleScheduler(store, runner, leader, clock, only=wanted)
        await scheduler.run(once=True)
        run = await _find_run(store, wanted)
        reason = _waiting_reason(run, scheduler.leads)
        if reason and reason != last_note:
            last_note = reason
            tell(reason)
        if reason:
            await clock.wait(asyncio.Event(), _LOOK_S)
    return run


async def withdraw_request(store: RuleStore, wanted: RunId) -> None:
    """Withdraw a requested run that has not begun, because nobody waits for it any more."""
    await store.change_history(wanted.rule, withdraw_run(wanted.at_ms))


def _waiting_reason(run: Run, leads: bool) -> str:
    """Return why the run has not ended; empty if it has, or is about to begin here."""
    if run.state is RunState.WAITING:
        return f"it is tried again at {iso_utc(run.retry_at_ms)}: {run.reason}"
    if run.state.is_open and not leads:
        return "another process leads the rules, and makes this run when its turn comes"
    return "this run waits for an earlier one of its rule" if run.state.is_open else ""


async def _find_run(store: RuleStore, wanted: RunId) -> Run:
    run = (await store.history(wanted.rule)).find(wanted.at_ms)
    if run is None:
        raise BadInput(f"rule {wanted.rule!r} was removed before its run ended")
    return run


def _require_due(rule: Rule, at_ms: int, now_ms: int) -> None:
    if at_ms > now_ms:
        raise BadInput(f"{iso_utc(at_ms)} is still to come; leave --at out to run it now")
    if rule.schedule.first_after(at_ms - 1) != at_ms:
        near = rule.schedule.first_after(at_ms)
        hint = f"; the next time after it is {iso_utc(near)}" if near else ""
        raise BadInput(
            f"rule {rule.name!r} ({rule.cron}, {rule.zone}) is not due at {iso_utc(at_ms)}{hint}"
        )
