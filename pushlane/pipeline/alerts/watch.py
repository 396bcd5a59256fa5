"""Watches alert rules: measures each when it is due, stores the messages to send, then sends them.

A message is stored before it is sent and until it was taken. After a kill at any moment it is at
most repeated under the same Idempotency-Key, and never lost. A webhook is told at an address that
was checked: whoever may save a rule must not reach what only this process can.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.task import now_ms
from pushlane.pipeline.alerts import measure as firing
from pushlane.pipeline.alerts.alert_rule import AlertRule
from pushlane.pipeline.alerts.alert_store import AlertLook, AlertMessage, AlertStore
from pushlane.pipeline.alerts.measure import Measured, lag_of, measure
from pushlane.pipeline.reports.answers import Key
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.metrics import Exporter, MetricMaker, ReadMetric
from pushlane.util.url_guard import CheckedUrl, UrlGuard

log = logging.getLogger("pushlane.shelf")

Send = Callable[[str, AlertMessage], Awaitable[str]]


@dataclass(frozen=True)
class AlertCheck:
    """One check of one rule: the figures found, the messages sent, and any problem.

    `firing` is how many groups of it fire now; None if that could not be found out.
    """

    rule: AlertRule
    found: dict[Key, Measured]
    told: list[AlertMessage]
    problem: str = ""
    firing: int | None = None


async def check_all(
    store: AlertStore, root: Path, send: Send, lag: int | None, now_ms: int
) -> list[AlertCheck]:
    """Check every rule once; a rule that fails does not keep the others from being checked.

    `send` posts a message and returns why it could not; `lag` is how many bodies of the log the
    store has not read.
    """
    return [await _check(store, root, send, lag, now_ms, rule) for rule in await store.rules()]


async def _check(
    store: AlertStore, root: Path, send: Send, lag: int | None, now_ms: int, rule: AlertRule
) -> AlertCheck:
    """Measure a rule, store its next state and send its messages."""
    try:
        found = await asyncio.to_thread(measure, root, rule, now_ms, lag)
    except PushlaneError as error:
        return AlertCheck(rule, {}, [], str(error))
    known = await store.load_state(rule.name)
    state = firing.next_state(rule, known.state, found, now_ms, await store.known(rule.name))
    check = AlertCheck(rule, found, [], firing=firing.fires(state))
    kept = await store.save_state(rule.name, state, known)
    for name, group in state.items():
        if kept is None:
            break
        if group.pending is None:
            continue
        if why := await send(rule.url, group.pending):
            return replace(check, problem=f"the webhook on {rule.host} did not take it: {why}")
        check.told.append(group.pending)
        after = firing.after_delivery(kept.state, name, now_ms)
        kept = await store.save_state(rule.name, after, kept)
    busy = "" if kept is not None else "another process looks after this alert as well"
    return replace(check, problem=busy)


async def serve(
    backend: Backend,
    root: Path,
    guard: UrlGuard,
    every_s: float | None,
    stop: asyncio.Event,
    on_looks: Callable[[list[AlertCheck]], None],
    on_problem: Callable[[str], None],
) -> int:
    """Check all rules every `every_s` seconds until stopped, or once if that is None.

    Return how many rules had a problem in the last round. A backend that does not answer is asked
    again in the next round, or raises Unreachable if there is none. `guard` says which webhooks may
    be told.
    """
    webhook = Webhook(guard)
    store = AlertStore(backend.documents)
    while True:
        problems = 0
        try:
            lag = await lag_of(backend.receipts, root)
            looks = await check_all(store, root, webhook.send, lag, now_ms())
            on_looks(looks)
            wrong = {look.rule.name: look.problem for look in looks if look.problem}
            problems = len(wrong)
            await store.note_look(AlertLook(now_ms(), every_s or 0.0, wrong))
        except Unreachable as error:
            if every_s is None:
                raise
            on_problem(str(error))
        if every_s is None or await _stopped(stop, every_s):
            return problems


async def _stopped(stop: asyncio.Event, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await stop.wait()
    return stop.is_set()


_TIMEOUT_S = 10.0
_WAITS_S = (1.0, 4.0)
_PLAIN = '[]",: '
"""Characters of a message's id that a header may hold; others are quoted as in a URL."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, eq=False)
class Webhook:
    """An HTTP client for alerts; `sleep` waits between attempts.

    The Idempotency-Key is the message's id, the same for each attempt and after a restart.
    """

    guard: UrlGuard
    sleep: Sleep = asyncio.sleep

    async def send(self, url: str, message: AlertMessage) -> str:
        """Post the message; return why it was not taken by the last attempt, empty if it was."""
        try:
            checked = await self.guard.check(url)
        except (RefusedUrl, UnknownHost) as error:
            return str(error)
        for attempt, wait_s in enumerate((*_WAITS_S, None)):
            ip = checked.ips[attempt % len(checked.ips)]
            async with _client_of(checked, ip) as client:
                why = await _post(client, checked.url, message)
            if not why or wait_s is None:
                break
            await self.sleep(wait_s)
        return why


def _client_of(checked: CheckedUrl, ip: str) -> Client:
    """Return a client that connects to one address that was checked, and to no proxy."""
    return (
        ClientBuilder()
        .user_agent("pushlane")
        .default_headers({"Content-Type": "application/json"})
        .timeout(timedelta(seconds=_TIMEOUT_S))
        .follow_redirects(False)
        .referer(False)
        .no_proxy()
        .resolve(checked.host, ip, checked.port)
        .build()
    )


async def _post(client: Client, url: str, message: AlertMessage) -> str:
    """Try once; the returned reason never holds the URL, nor what the webhook answered."""
    try:
        request = (
            client.post(url)
            .header("Idempotency-Key", quote(message.id, _PLAIN))
            .body_bytes(msgspec.json.encode(message))
            .streamed_read_buffer_limit(0)  # its body, however long, is not read
            .build_streamed()
        )
        async with request as answer:
            status = answer.status
    except PyreqwestError as error:
        return f"no answer ({type(error).__name__})"
    return "" if 200 <= status < 300 else f"HTTP {status}"


_MOST_ALERTS = 100


@dataclass(eq=False)
class AlertStats:
    """The counts of one process since it started; of very many alerts the first are shown."""

    clock_s: Callable[[], float] = time.time
    looked_at_s: float = 0.0
    evaluations: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0})
    told: int = 0
    firing: dict[str, int] = field(default_factory=dict)

    def looked(self, checks: Sequence[AlertCheck]) -> None:
        """Note a look at all alerts. One that could not be measured fires as it did before."""
        before = self.firing
        self.firing = {}
        for check in checks:
            name = check.rule.name
            self.evaluations["failed" if check.problem else "ok"] += 1
            self.told += len(check.told)
            if len(self.firing) < _MOST_ALERTS:
                now = check.firing
                self.firing[name] = before.get(name, 0) if now is None else now
        self.looked_at_s = self.clock_s()


_make: MetricMaker[AlertStats] = MetricMaker(Exporter.ALERTS)

ALERT_METRICS: tuple[ReadMetric[AlertStats], ...] = (
    _make.counter(
        "alerts_evaluations_total",
        "looks",
        "Checks of one alert: `failed` if it could not be measured, or its webhook not called",
        lambda stats: stats.evaluations,
        {"result": ("ok", "failed")},
    ),
    _make.gauge(
        "alerts_firing",
        "groups",
        "Groups of an alert that fire now",
        lambda stats: stats.firing,
        {"rule": ()},
    ),
    _make.counter(
        "alerts_told_total",
        "messages",
        "Messages that webhooks have taken",
        lambda stats: stats.told,
    ),
    _make.gauge(
        "alerts_looked_at_seconds",
        "Unix seconds",
        "When all alerts were looked at last",
        lambda stats: stats.looked_at_s,
    ),
)
"""All metrics of a process that looks after alerts, in the order in which they are shown."""
