"""Rules and times for tests, a clock that jumps ahead where others wait, and a leader.

What stands in for Spark makes real tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from pushlane.backends.backend import Backend
from pushlane.backends.leases import Leader
from pushlane.core.names import own_lane
from pushlane.core.task import Level, Task
from pushlane.model.names import new_task_id
from pushlane.pipeline.rules.history import History
from pushlane.pipeline.rules.rule import Rule, make_rule
from pushlane.pipeline.rules.rule_scheduler import RuleScheduler
from pushlane.pipeline.rules.rule_store import LEASE, RuleStore
from pushlane.pipeline.rules.runner import Expand, Expanded, RuleStats, Runner, RunOrder

PATIENCE_S = 0.2  # a busy machine takes as long until it tells of a run that has ended
TASK = {"level": "low", "body": "Hello"}


class Clock:
    def __init__(self, now_ms: int, patience_s: float = PATIENCE_S) -> None:
        self.ms = now_ms
        self.patience_s = patience_s

    def now_ms(self) -> int:
        return self.ms

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Jumps when nothing happens that the event would tell."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), self.patience_s)
            return
        self.ms += round(timeout_s * 1000)


class Expander:
    """Adds a task of each order's key, as a fan-out does; `before` may raise or wait."""

    def __init__(self, backend: Backend, total: int = 5) -> None:
        self._backend = backend
        self._total = total
        self.orders: list[RunOrder] = []
        self.before: Callable[[RunOrder], object] = lambda order: None

    async def __call__(self, order: RunOrder) -> Expanded:
        self.orders.append(order)
        waiting = self.before(order)
        if waiting is not None:
            await waiting
        task_id = new_task_id()
        task = Task(id=task_id, level=Level.LOW, lane=own_lane(task_id), key=order.key)
        kept = await self._backend.registry.add(task)
        return Expanded(kept.id, self._total)

    @property
    def keys(self) -> Counter[str]:
        return Counter(order.key for order in self.orders)


class Leading:
    """One process that may lead: its store, its expander and its scheduler."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        holder: str = "a",
        ttl_s: float = 10.0,
        expand: Expand | None = None,
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.store = RuleStore(backend.documents)
        self.expander = Expander(backend)
        self.stats = stats = RuleStats()
        expand = expand or self.expander
        self.runner = Runner(self.store, backend.registry, expand, clock.now_ms, stats)
        leader = Leader(backend.lease, LEASE, holder, ttl_s=ttl_s)
        self.scheduler = RuleScheduler(self.store, self.runner, leader, clock, stats=stats)

    async def add(self, *rules: Rule) -> None:
        for rule in rules:
            await self.store.add(rule)

    async def once(self) -> None:
        await self.scheduler.run(once=True)

    async def history(self, rule: str = "weekly") -> History:
        return await self.store.history(rule)

    async def states(self, rule: str = "weekly") -> list[str]:
        return [run.state.value for run in (await self.history(rule)).runs]


def ms(text: str, zone: str = "UTC") -> int:
    """An ISO time, of the zone's clock when it names no offset."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def a_rule(name: str = "weekly", since: str = "2026-01-01T00:00", **fields: Any) -> Rule:
    given = {"audience": "users", "task": TASK, "cron": "0 9 * * *", **fields}
    return make_rule(name, given, ms(since))
