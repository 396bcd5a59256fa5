"""Requests runs by hand, now or once more for a time that was due, and reason for their end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from pushlane.backends.backend import Backend
from pushlane.backends.leases import Leader
from pushlane.core.errors import BadInput
from pushlane.pipeline.rules.history import History, Run, RunState, iso_utc
from pushlane.pipeline.rules.rule import Rule
from pushlane.pipeline.rules.rule_scheduler import LEASE, Clock, RuleScheduler, RunId
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.pipeline.rules.run_transitions import request_run, withdraw_run
from pushlane.pipeline.rules.runner import Expand, Runner

_LOOK_S = 1.0


async def request_now(store: RuleStore, name: str, now_ms: int) -> int:
    """Request a run of its own, and return the time that it is known by.

    That time is never a whole second, since those are times of schedules.
    """
    await store.record(name)
    requested: list[int] = []

    def edit(history: History) -> History:
        at_ms = now_ms
        while at_ms % 1000 == 0 or history.find(at_ms):
            at_ms += 1
        requested.append(at_ms)
        return request_run(at_ms)(history)

    await store.change_history(name, edit)
    return requested[-1]


async def request_again(store: RuleStore, name: str, at_ms: int, now_ms: int) -> int:
    """Request the run of a time that was due, which is made only if it was not made yet.

    Raises:
        BadInput: the rule was not due then, or there is no such rule.
    """
    record = await store.record(name)
    if record.history.find(at_ms) is None:
        _require_due(record.rule, at_ms, now_ms)
    await store.change_history(name, request_run(at_ms))
    return at_ms


async def wait_for_end(
    backend: Backend, wanted: RunId, expand: Expand, clock: Clock, tell: Callable[[str], None]
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
