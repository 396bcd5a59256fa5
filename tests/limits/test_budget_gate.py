"""How many of those that wait for a budget are let go at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pushlane.core.lane import Why
from pushlane.dispatcher.gates.budget_gate import BudgetGate
from pushlane.dispatcher.gates.budgets import Budgets
from pushlane.dispatcher.stats import Stats
from pushlane.model.limits import Limit
from tests.limits.test_budgets import SHOP, Process, world_in_memory


class OneLane:
    def __init__(self, n: int) -> None:
        self.name = f"t-{n}"
        self.n = n
        self.unblocked: Callable[[OneLane], None] = lambda _: None

    def give_back(self, _: object) -> None:
        """The push is tried again from its job."""

    def block(self, why: Why) -> None:
        assert why is Why.BUDGET

    def unblock(self, why: Why) -> None:
        assert why is Why.BUDGET
        self.unblocked(self)


class HashableJob(SimpleNamespace):
    """A job, as far as budgets know it: each is one of its own."""

    __hash__ = object.__hash__


class Lanes:
    """Lanes with a push each. Those let go try it at the next step, unless they have ended."""

    def __init__(self, budgets: Budgets, count: int, ended: int = 0) -> None:
        moves: Any = None
        self._gate = BudgetGate("fcm", 1.0, budgets, moves, Stats())
        self._jobs = [self._job(n) for n in range(count)]
        self._due = list(range(count))
        self._ended = range(0)
        self.tries = 0
        self.sent: list[int] = []
        budgets.add_listener(self._gate)
        self.work()
        self._ended = range(ended)

    def work(self, _: Process | None = None) -> None:
        due, self._due = self._due, []
        for n in due:
            self.tries += 1
            if self._gate.lets(self._jobs[n], None):
                self.sent.append(n)

    def _job(self, n: int) -> Any:
        lane = OneLane(n)
        lane.unblocked = self._unblocked
        task = SimpleNamespace(id=f"{n}", app="shop", chain=("fcm",))
        push = SimpleNamespace(attempt=1)
        return HashableJob(lane=lane, task=task, push=push)

    def _unblocked(self, lane: OneLane) -> None:
        if lane.n not in self._ended:
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
