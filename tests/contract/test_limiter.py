"""What every limiter promises (see `backends.guard_ports.Limiter`)."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from pushlane.backends.guard_ports import (
    Limiter,
    PlaceAsk,
    Tally,
    TokenAsk,
    TokenReturn,
    TotalAsk,
)
from tests.contract.reading import until

LONG_S = 600
SHORT_S = 0.05
SLOW_PER_S = 1e-6  # nothing comes back while a test runs
SHOP = "app/shop"
TOTAL = Tally(SHOP, "total")


def tokens(wanted: float, least: float = 1.0, *, rate: float = SLOW_PER_S, burst: float = 10.0):
    return TokenAsk(SHOP, rate, burst, wanted, least)


async def place(limiter: Limiter, holder: str, cap: int, wanted: int, in_use: int = 0) -> int:
    [held] = await limiter.hold_places([PlaceAsk(SHOP, cap, wanted, in_use)], holder, LONG_S)
    return held


async def total(
    limiter: Limiter, holder: str, wanted: float, used: float = 0.0, limit: float = 10.0
) -> float:
    [allotted] = await limiter.lease_totals([TotalAsk(TOTAL, limit, holder, used, wanted)])
    return allotted


async def test_a_rate_begins_with_one_burst_for_all_processes_together(connections):
    async with connections:
        here, there = await connections.two()

        [first] = await here.limiter.lease_tokens([tokens(7)])
        [second] = await there.limiter.lease_tokens([tokens(7)])
        [third] = await here.limiter.lease_tokens([tokens(7)])

        assert (first.tokens, first.wait_s) == (7, 0)
        assert second.tokens == pytest.approx(3, abs=1e-3)
        assert third.tokens == 0
        assert third.wait_s == pytest.approx(1 / SLOW_PER_S, rel=0.01)


async def test_tokens_come_back_with_time(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        await limiter.lease_tokens([tokens(10, rate=200)])

        async def is_full() -> bool:
            [grant] = await limiter.lease_tokens([tokens(10, 10, rate=200)])
            return grant.tokens == 10

        await until(is_full)


async def test_fewer_than_the_least_are_not_granted(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        await limiter.lease_tokens([tokens(8)])

        [grant] = await limiter.lease_tokens([tokens(5, least=3)])

        assert grant.tokens == 0
        assert grant.wait_s > 0


async def test_what_costs_more_than_a_burst_goes_from_a_full_one_and_leaves_a_debt(connections):
    async with connections:
        limiter = (await connections.one()).limiter

        [grant] = await limiter.lease_tokens([tokens(25, least=25)])
        [after] = await limiter.lease_tokens([tokens(1)])

        assert grant.tokens == 25
        assert after.tokens == 0
        assert after.wait_s == pytest.approx(16 / SLOW_PER_S, rel=0.01)


async def test_tokens_that_were_not_used_are_there_for_others_up_to_one_burst(connections):
    async with connections:
        here, there = await connections.two()
        await here.limiter.lease_tokens([tokens(6)])

        await here.limiter.return_tokens([TokenReturn(SHOP, 10, 40), TokenReturn("app/x", 10, 1)])

        [grant] = await there.limiter.lease_tokens([tokens(50)])
        assert grant.tokens == pytest.approx(10, abs=1e-3)


async def test_all_processes_together_get_the_rate_and_one_burst_in_any_time(connections):
    """Four at once for half a second: the store's clock and ours need not agree on the ms."""
    rate, burst = 1_000.0, 50.0
    granted: list[tuple[float, float, float]] = []

    async def process(limiter: Limiter, luck: random.Random, end_s: float) -> None:
        while (began_s := time.monotonic()) < end_s:
            ask = tokens(luck.uniform(1, 80), rate=rate, burst=burst)
            [grant] = await limiter.lease_tokens([ask])
            granted.append((began_s, time.monotonic(), grant.tokens))

    async with connections:
        limiters = [(await connections.one()).limiter for _ in range(4)]
        end_s = time.monotonic() + 0.5
        await asyncio.gather(
            *(process(one, random.Random(n), end_s) for n, one in enumerate(limiters))
        )

    _assert_within(granted, rate, burst)
    assert sum(tokens_ for _, _, tokens_ in granted) > rate * 0.3


def _assert_within(granted: list[tuple[float, float, float]], rate: float, burst: float) -> None:
    """No window holds more: from the begin of any call to the end of any later one."""
    some = granted[:: max(1, len(granted) // 50)]
    for begin_s, _, _ in some:
        for _, end_s, _ in some:
            inside = sum(n for begin, end, n in granted if begin >= begin_s and end <= end_s)
            assert inside <= rate * max(0.0, end_s - begin_s + 0.003) + burst


async def test_places_are_no_more_than_the_cap_for_all_processes_together(connections):
    async with connections:
        here, there = await connections.two()

        assert await place(here.limiter, "a", 10, 7) == 7
        assert await place(there.limiter, "b", 10, 7) == 3

        assert await place(here.limiter, "a", 10, 2) == 2
        assert await place(there.limiter, "b", 10, 9) == 8


async def test_who_holds_all_gives_way_to_others_down_to_what_is_in_flight(connections):
    async with connections:
        here, there = await connections.two()
        assert await place(here.limiter, "a", 10, 10) == 10
        assert await place(there.limiter, "b", 10, 10) == 0

        assert await place(here.limiter, "a", 10, 10, in_use=8) == 5
        assert await place(there.limiter, "b", 10, 10) == 2
        assert await place(here.limiter, "a", 10, 10, in_use=3) == 5
        assert await place(there.limiter, "b", 10, 10) == 5


async def test_of_more_processes_than_places_who_waits_longest_is_next(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        assert await place(limiter, "a", 1, 1) == 1
        assert await place(limiter, "b", 1, 1) == 0
        await _a_moment()
        assert await place(limiter, "c", 1, 1) == 0
        await _a_moment()

        assert await place(limiter, "a", 1, 1, in_use=0) == 0
        assert await place(limiter, "c", 1, 1) == 0
        assert await place(limiter, "b", 1, 1) == 1


async def test_a_holder_that_is_not_heard_of_loses_its_places_after_their_time(connections):
    async with connections:
        here, there = await connections.two()
        await here.limiter.hold_places([PlaceAsk(SHOP, 5, 5, 5)], "killed", SHORT_S)

        async def is_free() -> bool:
            return await place(there.limiter, "b", 5, 5) == 5

        await until(is_free)


async def test_a_lowered_cap_takes_nothing_that_is_in_flight(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        await place(limiter, "a", 10, 10)

        assert await place(limiter, "a", 4, 10, in_use=6) == 4
        assert await place(limiter, "b", 4, 1) == 0
        assert await place(limiter, "a", 4, 10, in_use=2) == 3


async def test_holders_that_come_and_go_never_hold_more_than_the_cap(connections):
    async with connections:
        limiters = [(await connections.one()).limiter for _ in range(3)]
        luck = random.Random(7)
        held = dict.fromkeys(range(3), 0)
        for _ in range(150):
            who = luck.randrange(3)
            in_use = luck.randint(0, held[who])
            wanted = luck.randint(in_use, 15)
            held[who] = max(in_use, await place(limiters[who], str(who), 12, wanted, in_use))
            assert sum(held.values()) <= 12


async def test_a_total_is_allotted_once_among_all(connections):
    async with connections:
        here, there = await connections.two()

        assert await total(here.limiter, "a", 6) == 6
        assert await total(here.limiter, "a", 6) == 6  # asked again, it is the same part
        assert await total(there.limiter, "b", 6) == 4

        assert await total(here.limiter, "a", 2, used=2) == 2
        assert await total(there.limiter, "b", 9, used=4) == 8


async def test_a_raised_total_allots_more_and_a_lowered_one_takes_nothing_back(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        assert await total(limiter, "a", 20, used=10) == 10

        assert await total(limiter, "a", 20, used=10, limit=15) == 15
        assert await total(limiter, "a", 20, used=12, limit=5) == 12
        assert await total(limiter, "b", 1, limit=5) == 0


async def test_parts_of_a_total_never_add_up_to_more_than_it(connections):
    async with connections:
        limiters = [(await connections.one()).limiter for _ in range(3)]
        luck = random.Random(11)
        used, allotted = [0.0] * 3, [0.0] * 3
        for _ in range(150):
            who = luck.randrange(3)
            used[who] = luck.uniform(used[who], allotted[who])
            wanted = used[who] + luck.uniform(0, 9)
            allotted[who] = await total(limiters[who], str(who), wanted, used[who], limit=100.0)
            assert sum(allotted) <= 100.0 + 1e-9
            assert allotted[who] >= used[who]
        assert sum(used) > 50


async def test_each_tally_and_each_day_counts_by_itself(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        tallies = [
            TOTAL,
            Tally(SHOP, "total_cost"),
            Tally(SHOP, "a_day", "2026-11-22"),
            Tally(SHOP, "a_day", "2026-11-23"),
            Tally("app/news", "total"),
        ]

        parts = await limiter.lease_totals([TotalAsk(one, 5, "a", 0, 5) for one in tallies])

        assert parts == [5] * 5


async def test_it_tells_what_is_held_and_spent(connections):
    async with connections:
        here, there = await connections.two()
        await place(here.limiter, "a", 10, 3)
        await place(there.limiter, "b", 10, 2)
        days = [Tally(SHOP, "a_day", "2026-11-22"), Tally(SHOP, "a_day", "2026-11-23")]
        await here.limiter.lease_totals([TotalAsk(one, 5, "a", 0, 2) for one in days])
        await total(here.limiter, "a", 1.5)
        await total(there.limiter, "b", 2)

        shop, news = await here.limiter.usage([SHOP, "app/news"], "2026-11-23")

        assert (shop.in_flight, shop.spent) == (5, {"a_day": 2, "total": 3.5})
        assert (news.in_flight, news.spent) == (0, {})


async def test_what_is_forgotten_begins_anew(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        await limiter.lease_tokens([tokens(10)])
        await place(limiter, "a", 5, 5)
        await total(limiter, "a", 10)

        await limiter.forget([SHOP])

        [grant] = await limiter.lease_tokens([tokens(10)])
        assert grant.tokens == 10
        assert await place(limiter, "b", 5, 5) == 5
        assert await total(limiter, "b", 10) == 10


async def test_answers_come_in_the_order_of_the_asks_however_many(connections):
    async with connections:
        limiter = (await connections.one()).limiter
        sizes = range(1, 1_201)
        rates = [TokenAsk(f"task/{n}", SLOW_PER_S, n, n, 1) for n in sizes]
        places = [PlaceAsk(f"task/{n}", n, n, 0) for n in sizes]
        totals = [TotalAsk(Tally(f"task/{n}", "total"), n, "a", 0, n) for n in sizes]

        assert [one.tokens for one in await limiter.lease_tokens(rates)] == list(sizes)
        assert await limiter.hold_places(places, "a", LONG_S) == list(sizes)
        assert await limiter.lease_totals(totals) == list(sizes)


async def test_no_asks_are_answered_with_nothing(connections):
    async with connections:
        limiter = (await connections.one()).limiter

        assert await limiter.lease_tokens([]) == []
        assert await limiter.hold_places([], "a", LONG_S) == []
        assert await limiter.lease_totals([]) == []
        assert await limiter.usage([], "2026-11-23") == []
        await limiter.return_tokens([])
        await limiter.forget([])


async def _a_moment() -> None:
    """Until the clock in ms, by which waits are compared, has moved on."""
    begin_s = time.monotonic()

    async def over() -> bool:
        return time.monotonic() > begin_s + 0.003

    await until(over)
