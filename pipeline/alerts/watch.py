"""Checks all alert rules: measures each, stores the messages to send, then sends them.

A message is stored before it is sent and until it was taken. After a kill at any moment it is at
most repeated under the same Idempotency-Key, and never lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError, Unreachable
from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.alerts import firing
from pushlane.pipeline.alerts.alert_rule import AlertRule
from pushlane.pipeline.alerts.alert_store import AlertStore, StoredAlertState
from pushlane.pipeline.alerts.alert_webhook import Webhook
from pushlane.pipeline.alerts.firing import AlertMessage
from pushlane.pipeline.alerts.measure import Measured, lag_of, measure
from pushlane.pipeline.reports.counts import Key

Send = Callable[[str, AlertMessage], Awaitable[str]]


@dataclass(frozen=True)
class AlertCheck:
    """One check of one rule: the figures found, the messages sent, and any problem."""

    rule: AlertRule
    found: dict[Key, Measured]
    told: list[AlertMessage]
    problem: str = ""


class AlertWatcher:
    """Checks rules once per call.

    `send` posts a message and returns why it could not; `lag` returns how many bodies of the log
    the store has not read.
    """

    def __init__(
        self, store: AlertStore, root: Path, send: Send, lag: Callable[[], Awaitable[int | None]]
    ) -> None:
        self._store = store
        self._root = root
        self._send = send
        self._lag = lag

    async def check_all(self, now_ms: int) -> list[AlertCheck]:
        """Check every rule; a rule that fails does not keep the others from being checked."""
        lag = await self._lag()
        return [await self._check(rule, now_ms, lag) for rule in await self._store.rules()]

    async def _check(self, rule: AlertRule, now_ms: int, lag: int | None) -> AlertCheck:
        try:
            found = await asyncio.to_thread(measure, self._root, rule, now_ms, lag)
        except PushlaneError as error:
            return AlertCheck(rule, {}, [], str(error))
        known = await self._store.load_state(rule.name)
        state = firing.next_state(rule, known.state, found, now_ms)
        kept = await self._store.save_state(rule.name, state, known)
        if kept is None:
            return AlertCheck(rule, found, [], "another process looks after this alert as well")
        messages, problem = await self._send_pending(rule, kept, now_ms)
        return AlertCheck(rule, found, messages, problem)

    async def _send_pending(
        self, rule: AlertRule, known: StoredAlertState, now_ms: int
    ) -> tuple[list[AlertMessage], str]:
        told: list[AlertMessage] = []
        for name, group in list(known.state.items()):
            if group.pending is None:
                continue
            why = await self._send(rule.url, group.pending)
            if why:
                return told, f"the webhook on {rule.host} did not take it: {why}"
            told.append(group.pending)
            kept = await self._store.save_state(
                rule.name, firing.after_delivery(known.state, name, now_ms), known
            )
            if kept is None:
                return told, "another process looks after this alert as well"
            known = kept
        return told, ""


async def serve(
    backend: Backend,
    root: Path,
    every_s: float | None,
    stop: asyncio.Event,
    on_looks: Callable[[list[AlertCheck]], None],
    on_problem: Callable[[str], None],
) -> int:
    """Check all rules every `every_s` seconds until stopped, or once if that is None.

    Return how many rules had a problem in the last round. A backend that does not answer is asked
    again in the next round.

    Raises:
        Unreachable: it does not answer the only look.
    """
    async with Webhook() as webhook:
        watcher = AlertWatcher(
            AlertStore(backend.documents),
            root,
            webhook.send,
            lambda: lag_of(backend.receipts, root),
        )
        while True:
            problems = 0
            try:
                looks = await watcher.check_all(now_ms())
                on_looks(looks)
                problems = sum(bool(look.problem) for look in looks)
            except Unreachable as error:
                if every_s is None:
                    raise
                on_problem(str(error))
            if every_s is None or await _stopped(stop, every_s):
                return problems


async def _stopped(stop: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), within_s)
    return stop.is_set()
