"""What every lease promises (see `backends.ports.Lease`)."""

from __future__ import annotations

import time

from pushlane.core.task import now_ms
from tests.contract.reading import until

LONG_S = 600
SHORT_S = 0.05
ROUNDED_MS = 1


async def test_one_holder_at_a_time(connections):
    async with connections:
        here, there = await connections.two()

        assert await here.lease.acquire("janitor", "a", LONG_S) is not None

        assert await there.lease.acquire("janitor", "b", LONG_S) is None


async def test_each_name_has_a_holder_of_its_own(connections):
    async with connections:
        lease = (await connections.one()).lease
        await lease.acquire("janitor", "a", LONG_S)

        assert await lease.acquire("timer", "b", LONG_S) is not None


async def test_the_holder_gets_the_same_number_again(connections):
    async with connections:
        lease = (await connections.one()).lease
        first = await lease.acquire("janitor", "a", LONG_S)

        again = await lease.acquire("janitor", "a", LONG_S)

        assert again.number == first.number


async def test_each_grant_tells_the_time_of_the_store(connections):
    async with connections:
        lease = (await connections.one()).lease
        began_ms = now_ms()

        first = await lease.acquire("janitor", "a", LONG_S)
        again = await lease.acquire("janitor", "a", LONG_S)

        assert began_ms - ROUNDED_MS <= first.at_ms <= again.at_ms <= now_ms() + ROUNDED_MS


async def test_a_released_lease_goes_to_another_with_a_higher_number(connections):
    async with connections:
        here, there = await connections.two()
        first = await here.lease.acquire("janitor", "a", LONG_S)

        await here.lease.release("janitor", "a")

        assert (await there.lease.acquire("janitor", "b", LONG_S)).number > first.number


async def test_only_its_holder_lets_go_of_a_lease(connections):
    async with connections:
        here, there = await connections.two()
        await here.lease.acquire("janitor", "a", LONG_S)

        await there.lease.release("janitor", "b")

        assert await there.lease.acquire("janitor", "b", LONG_S) is None


async def test_a_lease_that_is_not_kept_goes_to_another_with_a_higher_number(connections):
    async with connections:
        here, there = await connections.two()
        first = await here.lease.acquire("janitor", "a", SHORT_S)
        later = None

        async def taken_over() -> bool:
            nonlocal later
            later = await there.lease.acquire("janitor", "b", LONG_S)
            return later is not None

        await until(taken_over)

        assert later.number > first.number


async def test_keeping_a_lease_starts_its_time_anew(connections):
    async with connections:
        here, there = await connections.two()
        await here.lease.acquire("janitor", "a", SHORT_S)

        await here.lease.acquire("janitor", "a", LONG_S)
        await until(_a_short_while_is_over())

        assert await there.lease.acquire("janitor", "b", LONG_S) is None


async def test_it_tells_whether_anybody_holds_it(connections):
    async with connections:
        here, there = await connections.two()
        assert not await there.lease.is_held("janitor")

        await here.lease.acquire("janitor", "a", LONG_S)
        assert await there.lease.is_held("janitor")

        await here.lease.release("janitor", "a")
        assert not await there.lease.is_held("janitor")


def _a_short_while_is_over():
    end_s = time.monotonic() + 2 * SHORT_S

    async def over() -> bool:
        return time.monotonic() > end_s

    return over
