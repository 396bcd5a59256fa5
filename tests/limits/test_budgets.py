"""Budgets of several processes on one store, in simulated time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pushlane.backends.guard_ports import Limiter
from pushlane.backends.memory import MemoryBackend
from pushlane.core.errors import Unreachable
from pushlane.dispatcher.gates import leasing
from pushlane.dispatcher.gates.budgets import Budgets, Charge, Room
from pushlane.model.limits import Limit, Limits, Subject
from tests.core.support import Wrapped

STEP_S = 0.01
SHOP = Subject("app", "shop")
TASK = Subject("task", "t")
SINK = Subject("sink", "fcm")


class Clock:
    """Starts at noon of a day in UTC."""

    def __init__(self) -> None:
        self.now_s = 20_000 * 86_400 + 43_200.0

    def ms(self) -> int:
        return round(self.now_s * 1000)

    def s(self) -> float:
        return self.now_s


class Process:
    """One dispatcher, as far as its budgets go: it sends whatever they let it."""

    def __init__(self, limiter: Limiter, clock: Clock, limits: Limits) -> None:
        self.clock = clock
        self.budgets = Budgets(limiter, clock_s=clock.s, clock_ms=clock.ms)
        self.budgets.add_listener(self)
        self.budgets.on_limits(limits)
        self.sent: list[tuple[float, float]] = []
        self.in_flight: list[Charge] = []
        self.room: list[Subject] = []

    def on_room(self, subject: Subject, most: Room) -> bool:
        self.room.append(subject)
        return False

    def leave(self, subject: Subject) -> int:
        return 0

    def take(self, cost: float = 1.0, *, task: str = "t", is_first: bool = True) -> Any:
        return self.budgets.take(task, "shop", "fcm", cost, is_first=is_first)

    def send(self, most: int = 10_000, cost: float = 1.0) -> int:
        """Send until a budget is empty; return how many went."""
        for count in range(most):
            charge = self.take(cost)
            if isinstance(charge, Subject):
                return count
            self.sent.append((self.clock.now_s, cost))
            self.in_flight.append(charge)
        return most

    def send_when_told(self) -> None:
        """Do as a lane that waits does: try only when there may be room."""
        if self.room:
            self.room.clear()
            self.send()

    def land(self, most: int = 10_000) -> None:
        for charge in self.in_flight[:most]:
            self.budgets.land(charge)
        del self.in_flight[:most]

    async def lease(self) -> None:
        await self.budgets.leasing.round()


class World:
    def __init__(self, limiter: Limiter, clock: Clock) -> None:
        self.limiter = limiter
        self.clock = clock
        self.processes: list[Process] = []

    def process(self, **limits: Limit) -> Process:
        given = {"app": SHOP, "task": TASK, "sink": SINK}
        one = Process(self.limiter, self.clock, {given[kind]: v for kind, v in limits.items()})
        self.processes.append(one)
        return one

    async def run(self, seconds: float, work: Callable[[Process], None]) -> None:
        """Let time pass, with a round of leases a step."""
        for _ in range(round(seconds / STEP_S)):
            for one in self.processes:
                work(one)
                await one.lease()
            self.clock.now_s += STEP_S

    def sent(self) -> list[tuple[float, float]]:
        return sorted(one for process in self.processes for one in process.sent)


@asynccontextmanager
async def world_in_memory() -> AsyncIterator[World]:
    clock = Clock()
    async with MemoryBackend(clock.ms).connect() as backend:
        yield World(backend.limiter, clock)


def most_in(sent: list[tuple[float, float]], window_s: float) -> float:
    """The most that was sent in any time so long."""
    best = total = 0.0
    first = 0
    for at_s, cost in sent:
        total += cost
        while sent[first][0] <= at_s - window_s:
            total -= sent[first][1]
            first += 1
        best = max(best, total)
    return best


async def test_without_limits_nothing_is_asked() -> None:
    budgets = Budgets(Wrapped(None))

    assert not budgets.is_limited


async def test_three_processes_share_a_rate_and_use_nearly_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leasing, "random", random.Random(3))  # when each asks is left to chance
    async with world_in_memory() as world:
        for _ in range(3):
            world.process(app=Limit(rate_per_s=300))

        await world.run(4.0, Process.send)

        sent = world.sent()
        assert len(sent) >= 300 * 4 * 0.9
        for window_s in (0.1, 0.5, 1.0, 3.0):
            assert most_in(sent, window_s) <= 300 * (window_s + 0.2)
        assert min(len(one.sent) for one in world.processes) > 200


async def test_bursts_by_chance_keep_to_the_rate() -> None:
    luck = random.Random(3)
    async with world_in_memory() as world:
        for _ in range(3):
            world.process(app=Limit(rate_per_s=100))

        await world.run(5.0, lambda one: luck.random() < 0.1 and one.send(luck.randint(1, 60)))

        for window_s in (0.5, 1.0, 3.0):
            assert most_in(world.sent(), window_s) <= 100 * (window_s + 0.3)


async def test_a_rate_of_few_a_minute_is_kept() -> None:
    async with world_in_memory() as world:
        for _ in range(2):
            world.process(app=Limit(rate_per_s=30 / 60))

        await world.run(20.0, Process.send)

        assert 9 <= len(world.sent()) <= 11


async def test_a_push_that_costs_more_than_a_burst_goes_and_is_paid_off() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(rate_per_s=10))

        await world.run(10.0, lambda process: process.send(cost=20.0))

        assert 4 <= len(one.sent) <= 6


async def test_tokens_that_a_process_does_not_use_go_to_another() -> None:
    async with world_in_memory() as world:
        idle, busy = (world.process(app=Limit(rate_per_s=0.1)) for _ in range(2))
        idle.take()
        await idle.lease()

        await world.run(6.0, lambda one: one.send() if one is busy else None)

        assert len(busy.sent) == 1


async def test_a_changed_rate_holds_from_now_on() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(rate_per_s=20))
        await world.run(1.0, Process.send)
        before = len(one.sent)

        one.budgets.on_limits({SHOP: Limit(rate_per_s=200)})
        await world.run(1.0, Process.send)

        assert before <= 24
        assert 170 <= len(one.sent) - before <= 230


async def test_in_flight_stays_within_the_cap_for_all_together() -> None:
    luck = random.Random(5)
    async with world_in_memory() as world:
        for _ in range(3):
            world.process(sink=Limit(in_flight=10))
        most = 0

        def work(one: Process) -> None:
            nonlocal most
            one.land(luck.randint(0, 4))
            one.send(luck.randint(0, 12))
            most = max(most, sum(len(process.in_flight) for process in world.processes))

        await world.run(6.0, work)

        assert most == 10
        assert min(len(one.sent) for one in world.processes) > 100


async def test_a_busy_process_leaves_others_their_part_of_a_cap() -> None:
    async with world_in_memory() as world:
        first = world.process(sink=Limit(in_flight=6))
        await world.run(1.0, lambda one: (one.land(1), one.send()))
        assert len(first.in_flight) == 6
        second = world.process(sink=Limit(in_flight=6))

        await world.run(2.0, lambda one: (one.land(1), one.send()))

        assert (len(first.in_flight), len(second.in_flight)) == (3, 3)


async def test_places_of_a_killed_process_come_back() -> None:
    async with world_in_memory() as world:
        killed = world.process(sink=Limit(in_flight=4))
        await world.run(1.0, Process.send)
        world.processes = []
        other = world.process(sink=Limit(in_flight=4))
        await world.run(1.0, Process.send)
        assert (len(killed.in_flight), len(other.in_flight)) == (4, 0)

        await world.run(10.0, Process.send)

        assert len(other.in_flight) == 4


async def test_a_total_is_spent_to_the_last_push_and_never_more() -> None:
    async with world_in_memory() as world:
        for _ in range(3):
            world.process(task=Limit(total=500))

        await world.run(5.0, lambda one: one.send(50))

        assert len(world.sent()) == 500


async def test_a_total_cost_is_never_passed() -> None:
    async with world_in_memory() as world:
        for _ in range(2):
            world.process(task=Limit(total_cost=10.0))

        await world.run(4.0, lambda one: one.send(cost=3.0))

        assert len(world.sent()) == 3


async def test_only_a_first_attempt_counts_towards_a_total() -> None:
    async with world_in_memory() as world:
        one = world.process(task=Limit(total=1))
        await world.run(0.2, lambda process: process.send(1))

        assert len(one.sent) == 1
        assert isinstance(one.take(is_first=False), Charge)
        assert one.take() == TASK


async def test_a_push_that_did_not_go_is_charged_nothing() -> None:
    async with world_in_memory() as world:
        one = world.process(task=Limit(total=1, in_flight=1))
        await world.run(0.2, lambda process: process.send(1))

        one.budgets.undo(one.in_flight.pop())

        assert isinstance(one.take(), Charge)


async def test_a_day_has_a_budget_of_its_own() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(a_day=3))
        await world.run(1.0, Process.send)
        assert len(one.sent) == 3

        world.clock.now_s += 43_200
        await world.run(3.0, Process.send)

        assert len(one.sent) == 6


async def test_who_waits_hears_of_a_new_day() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(a_day=1))
        await world.run(0.2, Process.send)
        await world.run(1.0, Process.send_when_told)
        world.clock.now_s += 43_200

        await world.run(6.0, Process.send_when_told)

        assert len(one.sent) == 2


async def test_who_waits_for_two_limits_hears_when_both_have_room() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(rate_per_s=50, in_flight=1))
        await world.run(0.5, lambda process: process.send(1))
        assert len(one.in_flight) == 1
        await world.run(3.0, Process.send_when_told)

        one.land()
        await world.run(0.5, Process.send_when_told)

        assert len(one.sent) == 2


async def test_a_task_waits_for_its_app_and_hears_of_room() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(in_flight=1))
        assert one.take() == SHOP
        await one.lease()
        assert one.room == [SHOP]
        assert one.send() == 1
        one.room.clear()

        one.land()

        assert one.room == [SHOP]
        assert isinstance(one.take(), Charge)


async def test_each_app_has_a_limit_of_its_own_from_the_limit_of_every_app() -> None:
    async with world_in_memory() as world:
        one = world.process()
        one.budgets.on_limits(
            {Subject("app", "*"): Limit(in_flight=1, total=9), SHOP: Limit(in_flight=2)}
        )
        for app in ("shop", "news"):
            one.budgets.take("t", app, "fcm", 1.0, is_first=True)
        await world.run(0.2, lambda _: None)

        def sent_of(app: str) -> int:
            taken = [one.budgets.take("t", app, "fcm", 1.0, is_first=True) for _ in range(3)]
            return sum(isinstance(each, Charge) for each in taken)

        assert sent_of("news") <= 1
        await world.run(0.2, lambda process: process.send())
        assert len(one.in_flight) == 2


async def test_what_is_limited_no_more_is_let_go_at_once() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(total=1))
        await world.run(0.2, Process.send)
        assert one.take() == SHOP
        one.room.clear()

        one.budgets.on_limits({})

        assert one.room == [SHOP]
        assert not one.budgets.is_limited


class Away(Wrapped):
    """A limiter that can be unplugged."""

    is_away = False

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: object) -> None:
            raise Unreachable("the store is away")

        return refuse if self.is_away else super().__getattr__(name)


async def test_without_the_store_what_is_leased_goes_and_then_pushes_wait() -> None:
    async with world_in_memory() as world:
        away = Away(world.limiter)
        world.limiter = away
        one = world.process(app=Limit(rate_per_s=100), sink=Limit(in_flight=5))
        await world.run(1.0, lambda process: (process.land(), process.send(1)))
        before = len(one.sent)

        away.is_away = True
        for _ in range(300):
            one.land()
            one.send()
            with suppress(Unreachable):
                await one.lease()
            world.clock.now_s += STEP_S
        assert len(one.sent) - before <= 20

        away.is_away = False
        before = len(one.sent)
        await world.run(1.0, lambda process: (process.land(), process.send()))
        assert len(one.sent) - before >= 80


async def test_that_the_store_is_away_is_said_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world_in_memory() as world:
        away = Away(world.limiter)
        world.limiter = away
        one = world.process(app=Limit(rate_per_s=100))
        away.is_away = True
        one.take()

        with caplog.at_level(logging.INFO):
            running = asyncio.create_task(one.budgets.leasing.run())
            while not one.budgets.leasing.is_away:
                world.clock.now_s += 1.0
                await asyncio.sleep(0)
            away.is_away = False
            while not one.room:
                world.clock.now_s += 1.0
                await asyncio.sleep(0)
            running.cancel()

        said = [record.message for record in caplog.records]
        assert said == ["waiting for the limiter: the store is away", "the limiter is back"]


async def test_what_is_left_is_given_back_at_the_end() -> None:
    async with world_in_memory() as world:
        one = world.process(task=Limit(total=1_000), app=Limit(rate_per_s=100, in_flight=8))
        await world.run(0.3, lambda process: process.send(1))
        one.land()

        await one.budgets.leasing.close()

        task, shop = await world.limiter.usage([str(TASK), str(SHOP)], "")
        assert task.spent == {"total": len(one.sent)}
        assert shop.in_flight == 0
