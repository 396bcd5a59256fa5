"""What every adapter of suppressions promises (see `backends.guard_ports.Suppressions`)."""

from __future__ import annotations

from pushlane.model.recipients import EVERYWHERE, SuppressionScope

SHOP, FCM = SuppressionScope("app", "shop"), SuppressionScope("sink", "fcm")
LEAST, MOST = -(2**63), 2**63 - 1


async def test_what_is_added_is_found_by_everybody_and_nothing_else(connections):
    async with connections:
        here, there = await connections.two()

        assert await here.suppressions.add(EVERYWHERE, [1, -2, LEAST, MOST]) == 4

        found = await there.suppressions.find({EVERYWHERE: [1, 2, -2, MOST, LEAST, 3]})
        assert sorted(found[EVERYWHERE]) == [LEAST, -2, 1, MOST]


async def test_scopes_know_nothing_of_each_other(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        await kept.add(SHOP, [1])
        await kept.add(FCM, [2])

        found = await kept.find({EVERYWHERE: [1, 2], SHOP: [1, 2], FCM: [1, 2]})

        assert {scope: list(some) for scope, some in found.items()} == {
            EVERYWHERE: [],
            SHOP: [1],
            FCM: [2],
        }


async def test_what_is_added_again_counts_once(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        await kept.add(SHOP, [1, 2, 2])

        assert await kept.add(SHOP, [2, 3]) == 1
        assert await kept.counts() == {SHOP: 3}


async def test_what_is_removed_is_not_found(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        await kept.add(SHOP, [1, 2, 3])

        assert await kept.remove(SHOP, [1, 3, 4]) == 2

        assert list((await kept.find({SHOP: [1, 2, 3]}))[SHOP]) == [2]
        assert await kept.counts() == {SHOP: 1}


async def test_a_scope_that_is_cleared_has_none(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        await kept.add(SHOP, [*range(-50, 50), LEAST, MOST])
        await kept.add(EVERYWHERE, [1])

        await kept.clear(SHOP)

        assert await kept.counts() == {EVERYWHERE: 1}
        assert list((await kept.find({SHOP: [1, MOST]}))[SHOP]) == []


async def test_scopes_without_any_are_not_counted(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        await kept.add(SHOP, [1])
        await kept.remove(SHOP, [1])
        await kept.clear(FCM)

        assert await kept.counts() == {}


async def test_a_name_may_hold_anything_printable(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        odd = SuppressionScope("app", "a/b: c* ü")
        await kept.add(odd, [1])

        assert await kept.counts() == {odd: 1}
        assert list((await kept.find({odd: [1]}))[odd]) == [1]


async def test_many_are_kept_and_found(connections):
    async with connections:
        kept = (await connections.one()).suppressions
        many = [number * 7_919_000_003 for number in range(-6_000, 6_000)]

        assert await kept.add(SHOP, many) == 12_000

        assert sorted((await kept.find({SHOP: many}))[SHOP]) == many
