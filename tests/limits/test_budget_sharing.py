"""Budgets that lines of one process share, and what is left of a budget when nobody needs it."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.core.errors import Unreachable
from pushlane.dispatcher.gates.budgets import Budgets, Charge, Room
from pushlane.model.limits import Limit, Subject
from tests.core.support import Wrapped
from tests.limits.test_budgets import SHOP, Process, world_in_memory


class Lines:
    """Lines of one process that always have more to send, and do in the order in which they hear
    that there may be room.
    """

    def __init__(self, budgets: Budgets, *costs: float) -> None:
        self.told: list[OneLine] = []
        self.all = [OneLine(budgets, f"sink{n}", cost, self.told) for n, cost in enumerate(costs)]
        self.told += self.all

    def work(self, _: Process) -> None:
        for one in self.all:
            one.land()
        told = self.told[:]
        self.told.clear()
        for one in told:
            one.send()

    def spent(self) -> list[float]:
        return [one.spent for one in self.all]


class OneLine:
    def __init__(self, budgets: Budgets, sink: str, cost: float, told: list[OneLine]) -> None:
        self._budgets = budgets
        self._sink = sink
        self._cost = cost
        self._told = told
        self._in_flight: list[Charge] = []
        self.spent = 0.0
        budgets.add_listener(self)

    def on_room(self, subject: Subject, most: Room) -> bool:
        if self not in self._told:
            self._told.append(self)
        return False

    def leave(self, subject: Subject) -> int:
        return 0

    def send(self) -> None:
        while True:
            charge = self._budgets.take("t", "shop", self._sink, self._cost, is_first=True)
            if isinstance(charge, Subject):
                return
            self.spent += self._cost
            self._in_flight.append(charge)

    def land(self) -> None:
        for charge in self._in_flight:
            self._budgets.land(charge)
        self._in_flight.clear()


@pytest.mark.parametrize("costs", [(1.0, 1.0), (1.0, 10.0), (10.0, 1.0)])
async def test_lines_of_a_process_share_a_rate(costs: tuple[float, float]) -> None:
    async with world_in_memory() as world:
        lines = Lines(world.process(app=Limit(rate_per_s=50)).budgets, *costs)

        await world.run(20.0, lines.work)

        assert sum(lines.spent()) >= 900
        assert min(lines.spent()) >= 300


async def test_lines_of_a_process_share_places() -> None:
    async with world_in_memory() as world:
        lines = Lines(world.process(app=Limit(in_flight=2)).budgets, 1.0, 1.0)

        await world.run(4.0, lines.work)

        assert min(lines.spent()) >= 200


async def test_a_part_of_a_total_that_comes_back_late_is_there_for_others() -> None:
    async with world_in_memory() as world:
        one, other = (world.process(app=Limit(total=3)) for _ in range(2))
        await world.run(2.0, lambda process: process.send(process is one and len(one.sent) < 3))
        assert len(one.sent) == 3

        one.budgets.undo(one.in_flight.pop())
        await world.run(5.0, lambda process: process.send(process is other))

        assert len(other.sent) == 1


async def test_a_part_of_a_total_that_did_not_count_is_there_for_others() -> None:
    async with world_in_memory() as world:
        one, other = (world.process(app=Limit(total=3)) for _ in range(2))
        await world.run(2.0, lambda process: process.send(process is one and len(one.sent) < 3))

        one.in_flight[0].uncount()
        one.land()
        await world.run(5.0, lambda process: process.send(process is other))

        assert len(other.sent) == 1


async def test_what_was_spent_before_days_of_rest_counts_once() -> None:
    async with world_in_memory() as world:
        one = world.process(app=Limit(total=300))
        await world.run(3.0, lambda process: process.send(min(5, 100 - len(one.sent))))
        assert len(one.sent) == 100

        world.clock.now_s += 2.2 * 86_400
        await world.run(5.0, lambda process: process.send(5))

        [usage] = await world.limiter.usage([str(SHOP)], "")
        assert (len(one.sent), usage.spent) == (300, {"total": 300})


async def test_who_no_longer_waits_keeps_no_places_from_others() -> None:
    async with world_in_memory() as world:
        busy = world.process(app=Limit(in_flight=1))
        await world.run(0.2, lambda process: process.send(1))
        gone = world.process(app=Limit(in_flight=1))
        await world.run(0.2, lambda process: process.send(process is gone))
        assert (len(busy.in_flight), len(gone.in_flight)) == (1, 0)

        gone.budgets.on_limits({SHOP: Limit(in_flight=1)})
        await world.run(3.0, lambda process: process is busy and (busy.land(), busy.send(1)))

        last_s = busy.sent[-1][0]
        assert world.clock.now_s - last_s < 0.5


async def test_what_cannot_be_given_back_at_the_end_keeps_nothing_else() -> None:
    class NoReturns(Wrapped):
        is_ending = False

        async def return_tokens(self, *given: Any) -> None:
            return await self._unless_ending("return_tokens", given)

        async def hold_places(self, *given: Any) -> Any:
            return await self._unless_ending("hold_places", given)

        async def _unless_ending(self, name: str, given: Any) -> Any:
            if self.is_ending:
                raise Unreachable("the store is away")
            return await getattr(self._real, name)(*given)

    async with world_in_memory() as world:
        world.limiter = limiter = NoReturns(world.limiter)
        one = world.process(app=Limit(total=1_000, rate_per_s=100, in_flight=8))
        await world.run(0.3, lambda process: process.send(1))
        one.land()

        limiter.is_ending = True
        with pytest.raises(Unreachable):
            await one.budgets.leasing.close()

        [usage] = await world.limiter.usage([str(SHOP)], "")
        assert usage.spent == {"total": len(one.sent)}


@pytest.mark.parametrize("meanwhile", [Limit(), Limit(rate_per_s=1e6)])
async def test_a_cap_that_is_taken_away_and_set_again_knows_what_is_in_flight(
    meanwhile: Limit,
) -> None:
    async with world_in_memory() as world:
        both = [world.process(app=Limit(in_flight=5)) for _ in range(2)]
        await world.run(1.0, lambda process: process.send(5))
        for one in both:
            one.budgets.on_limits({SHOP: meanwhile})
        await world.run(0.5, lambda _: None)

        for one in both:
            one.budgets.on_limits({SHOP: Limit(in_flight=5)})
        await world.run(3.0, lambda process: process.send(5))
        assert sum(len(one.in_flight) for one in both) == 5

        for one in both:
            one.land()
        await world.run(3.0, lambda process: process.send(5))
        assert sum(len(one.in_flight) for one in both) == 5
