"""What every ledger promises (see `backends.guard_ports.Ledger`)."""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.push import Push
from tests.contract.reading import until

LONG_S = 600
SHORT_S = 0.05
WON, HELD, UNKNOWN, CONFIRMED = (
    ClaimResult.WON,
    ClaimResult.HELD,
    ClaimResult.UNKNOWN,
    ClaimResult.CONFIRMED,
)


def pushes(*seqs: int) -> list[Push]:
    return [Push("t", seq, "nobody@example.com") for seq in seqs]


async def test_the_first_to_claim_a_push_wins_and_others_hear_that_it_is_held(connections):
    async with connections:
        here, there = await connections.two()

        assert await here.ledger.claim(pushes(1, 2), "a", LONG_S) == [WON, WON]

        assert await there.ledger.claim(pushes(2, 3), "b", LONG_S) == [HELD, WON]


async def test_the_owner_gets_the_same_result_again(connections):
    async with connections:
        ledger = (await connections.one()).ledger
        await ledger.claim(pushes(1), "a", LONG_S)

        assert await ledger.claim(pushes(1), "a", LONG_S) == [WON]


async def test_what_is_confirmed_is_so_for_everybody(connections):
    async with connections:
        here, there = await connections.two()
        await here.ledger.claim(pushes(1), "a", LONG_S)

        await here.ledger.confirm(pushes(1))

        assert await here.ledger.claim(pushes(1), "a", LONG_S) == [CONFIRMED]
        assert await there.ledger.claim(pushes(1), "b", LONG_S) == [CONFIRMED]


async def test_what_is_released_is_free(connections):
    async with connections:
        here, there = await connections.two()
        await here.ledger.claim(pushes(1), "a", LONG_S)

        await here.ledger.release(pushes(1), "a")

        assert await there.ledger.claim(pushes(1), "b", LONG_S) == [WON]


async def test_only_its_owner_releases_a_claim(connections):
    async with connections:
        here, there = await connections.two()
        await here.ledger.claim(pushes(1), "a", LONG_S)

        await there.ledger.release(pushes(1), "b")

        assert await there.ledger.claim(pushes(1), "b", LONG_S) == [HELD]


async def test_a_confirmed_push_cannot_be_released(connections):
    async with connections:
        ledger = (await connections.one()).ledger
        await ledger.claim(pushes(1), "a", LONG_S)
        await ledger.confirm(pushes(1))

        await ledger.release(pushes(1), "a")

        assert await ledger.claim(pushes(1), "b", LONG_S) == [CONFIRMED]


async def test_a_claim_whose_time_ran_out_is_unknown_to_the_next_and_then_theirs(connections):
    async with connections:
        here, there = await connections.two()
        await here.ledger.claim(pushes(1), "a", SHORT_S)
        results: Sequence[ClaimResult] = []

        async def is_over() -> bool:
            nonlocal results
            results = await there.ledger.claim(pushes(1), "b", LONG_S)
            return results != [HELD]

        await until(is_over)

        assert results == [UNKNOWN]
        assert await there.ledger.claim(pushes(1), "b", LONG_S) == [UNKNOWN]
        assert await here.ledger.claim(pushes(1), "a", LONG_S) == [HELD]


async def test_pushes_of_other_tasks_are_others(connections):
    async with connections:
        ledger = (await connections.one()).ledger
        await ledger.claim([Push("t", 1, "nobody@example.com")], "a", LONG_S)

        assert await ledger.claim([Push("u", 1, "nobody@example.com")], "b", LONG_S) == [WON]


async def test_results_come_in_the_order_of_the_pushes_however_many(connections):
    async with connections:
        here, there = await connections.two()
        await here.ledger.claim(pushes(*range(2, 5_001, 2)), "a", LONG_S, durable=True)

        results = await there.ledger.claim(pushes(*range(1, 5_001)), "b", LONG_S)

        assert results == [WON, HELD] * 2_500
