"""How many of those that wait for a budget are let go at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pushlane.core.lane import Why
from pushlane.core.task import Level
from pushlane.dispatcher.gates.budget_gate import BudgetGate
from pushlane.dispatcher.gates.budgets import Budgets
from pushlane.dispatcher.stats import Stats
from pushlane.model.limits import Limit
from tests.limits.test_budgets import SHOP, Process, world_in_memory


def weights() -> Mapping[Level, int]:
    return {Level.HIGH: 6, Level.MEDIUM: 3, Level.LOW: 1}


class OneLane:
    """A lane that always has a push, until it has `ended`."""

    def __init__(self, n: int, level: Level = Level.HIGH) -> None:
        self.name = f"t-{n}"
        self.n = n
        self.level = level
        self.retired = False
        self.ended = False
        self.blocked: frozenset[Why] = frozenset()
        self.unblocked: Callable[[OneLane], None] = lambda _: None

    @property
    def may_move(self) -> bool:
        return not self.blocked

    def give_back(self, _: object) -> None:
        """The push is tried again from its job."""

    def block(self, why: Why) -> None:
        self.blocked |= {why}

    def unblock(self, why: Why) -> None:
        self.blocked -= {why}
        self.unblocked(self)


class HashableJob(SimpleNamespace):
    """A job, as far as budgets know it: each is one of its own."""

    __hash__ = object.__hash__


class Lanes:
    """Lanes with a push each. Those let go try it at the next step, unless they have ended."""

    def __init__(self, budgets: Budgets, count: int, ended: int = 0) -> None:
        moves: Any = None
        self._gate = BudgetGate("fcm", 1.0, budgets, moves, Stats(), weights)
        self._jobs = [self._job(n) for n in range(count)]
        self._due = list(range(count))
        self.tries = 0
        self.sent: list[int] = []
        budgets.add_listener(self._gate)
        self.work()
        for job in self._jobs[:ended]:
            job.lane.ended = True
            job.lane.block(Why.HELD)

    def work(self, _: Process | None = None) -> None:
        due, self._due = self._due, []
        for n in due:
            self.tries += 1
            if self._gate.lets(self._jobs[n], None):
                self.sent.append(n)

    def _job(self, n: int) -> Any:
        lane = OneLane(n)
        lane.unblocked = self._unblocked
        task = SimpleNamespace(id=f"{n}", app="shop", chain=("fcm",), quota=1)
        push = SimpleNamespace(attempt=1)
        return HashableJob(lane=lane, task=task, push=push)

    def _unblocked(self, lane: OneLane) -> None:
        if not lane.ended:
            self._due.append(lane.n)


async def test_of_many_lanes_that_wait_few_try_at_a_time() -> None:
    async with world_in_memory() as world:
        lanes = Lanes(world.process(app=Limit(rate_per_s=100)).budgets, 1_000)

        await world.run(5.0, lanes.work)

        assert len(lanes.sent) >= 450
        assert lanes.tries < 20_000


async def test_lanes_that_need_nothing_any_more_hold_up_none_behind_them() -> None:
    async with world_in_memory() as world:
        lanes = Lanes(world.process(app=Limit(in_flight=50)).budgets, 400, ended=380)

        await world.run(0.5, lanes.work)

        assert lanes.sent == list(range(380, 400))


async def test_all_go_on_when_there_is_no_limit_any_more() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(total=1))
        lanes = Lanes(one.budgets, 400)
        await world.run(0.2, lanes.work)

        one.budgets.on_limits({SHOP: Limit()})
        lanes.work()

        assert len(lanes.sent) == 400


class Greedy:
    """Lanes that try as often as they may, each in its turn: one that has just sent tries again."""

    def __init__(self, budgets: Budgets, *quotas: int) -> None:
        moves: Any = None
        self.gate = BudgetGate("fcm", 1.0, budgets, moves, Stats(), weights)
        self.sent = [0] * len(quotas)
        self._awake: list[OneLane] = []
        self._tasks = [
            SimpleNamespace(id=f"{n}", app="shop", chain=("fcm",), quota=quota)
            for n, quota in enumerate(quotas)
        ]
        budgets.add_listener(self.gate)
        for n in range(len(quotas)):
            lane = OneLane(n)
            lane.unblocked = self._awake.append
            self._awake.append(lane)

    def work(self, _: Process | None = None) -> None:
        while self._awake:
            lane = self._awake.pop(0)
            push = SimpleNamespace(attempt=1)
            task = self._tasks[lane.n]
            while self.gate.lets(HashableJob(lane=lane, task=task, push=push), None):
                self.sent[lane.n] += 1


async def test_lanes_that_are_short_of_room_share_it_by_their_quotas() -> None:
    async with world_in_memory() as world:
        lanes = Greedy(world.process(app=Limit(rate_per_s=30)).budgets, 5, 1, 1)

        await world.run(20.0, lanes.work)

        most, *others = lanes.sent
        assert sum(lanes.sent) >= 550
        assert others == pytest.approx([most / 5] * 2, abs=2)


async def test_turns_are_forgotten_once_nobody_waits_any_more() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(total=1))
        lanes = Greedy(one.budgets, 1, 1, 1)
        lanes.work()
        assert lanes.gate._queues
        one.budgets.on_limits({SHOP: Limit()})
        lanes.gate.on_limits({})

        assert not lanes.gate._queues
