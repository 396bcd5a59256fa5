"""The promises of every adapter of dead addresses (see `backends.guard_ports.DeadAddresses`)."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.model.recipients import AddressDeath, DeadAddress, DeadAddressQuery, SuppressionScope

FCM = SuppressionScope("sink", "fcm")
NOW = 1_795_262_400_000
LEAST, MOST = -(2**63), 2**63 - 1


def death(number: int, died_at_ms: int = NOW - 10, **fields: str) -> AddressDeath:
    return AddressDeath(number, died_at_ms, **{"reason": "gone", **fields})


async def suppressed(backend, *hashes: int, scope: SuppressionScope = FCM) -> list[int]:
    return sorted((await backend.suppressions.find({scope: hashes}))[scope])


async def listed(backend, **query) -> list[DeadAddress]:
    found, after, is_last = [], 0, False
    while not is_last:
        page = await backend.dead_addresses.page(DeadAddressQuery(**query), after)
        found += page.addresses
        after, is_last = page.after, not page.after
    return found


async def hashes(backend, **query) -> list[int]:
    return [one.hash for one in await listed(backend, **query)]


async def test_a_dead_address_is_suppressed_at_its_sink_and_recorded_for_everybody(connections):
    async with connections:
        here, there = await connections.two()
        one = death(LEAST, reason="UNREGISTERED", app="shop", sealed="gAAA=")

        assert await here.dead_addresses.record("fcm", [one, death(MOST)], NOW) == [LEAST, MOST]

        assert await suppressed(there, LEAST, MOST, 1) == [LEAST, MOST]
        assert await suppressed(there, LEAST, scope=SuppressionScope("sink", "apns")) == []
        assert await there.suppressions.counts() == {FCM: 2}
        assert await listed(there) == [
            DeadAddress("fcm", LEAST, NOW, NOW - 10, "UNREGISTERED", "shop", "gAAA="),
            DeadAddress("fcm", MOST, NOW, NOW - 10, "gone", "", ""),
        ]


async def test_the_first_record_stays(connections):
    async with connections:
        here, there = await connections.two()
        await here.dead_addresses.record("fcm", [death(1, reason="first")], NOW)

        assert await there.dead_addresses.record("fcm", [death(1), death(2)], NOW + 5) == [2]

        assert [(one.hash, one.reason) for one in await listed(here)] == [(1, "first"), (2, "gone")]
        assert await here.suppressions.counts() == {FCM: 2}


async def test_of_many_who_tell_of_one_death_at_once_one_records_it(connections):
    async with connections:
        several = [(await connections.one()).dead_addresses for _ in range(3)]

        recorded = await asyncio.gather(
            *(each.record("fcm", [death(1), death(2)], NOW) for each in several * 10)
        )

        assert sorted(one for some in recorded for one in some) == [1, 2]


async def test_the_same_address_may_be_dead_at_one_sink_and_alive_at_another(connections):
    async with connections:
        backend = await connections.one()
        await backend.dead_addresses.record("fcm", [death(1)], NOW)
        await backend.dead_addresses.record("odd: *ü", [death(1)], NOW)

        assert await backend.dead_addresses.register("fcm", [1], NOW) == 1

        assert [(one.sink, one.hash) for one in await listed(backend)] == [("odd: *ü", 1)]
        assert await suppressed(backend, 1) == []


async def test_what_is_suppressed_no_longer_is_suppressed_again_and_recorded_once(connections):
    async with connections:
        backend = await connections.one()
        await backend.dead_addresses.record("fcm", [death(1)], NOW)
        await backend.suppressions.remove(FCM, [1])

        assert await backend.dead_addresses.record("fcm", [death(1)], NOW) == []

        assert await suppressed(backend, 1) == [1]


async def test_what_is_registered_is_neither_suppressed_nor_recorded(connections):
    async with connections:
        here, there = await connections.two()
        await here.dead_addresses.record("fcm", [death(1), death(2)], NOW)

        assert await there.dead_addresses.register("fcm", [1, 3], NOW + 1) == 1

        assert await suppressed(here, 1, 2, 3) == [2]
        assert await hashes(here) == [2]
        assert await here.suppressions.counts() == {FCM: 1}


async def test_what_was_suppressed_by_hand_is_not_once_it_is_registered(connections):
    async with connections:
        backend = await connections.one()
        await backend.suppressions.add(FCM, [1])

        assert await backend.dead_addresses.register("fcm", [1], NOW) == 1

        assert await backend.suppressions.counts() == {}


@pytest.mark.parametrize(("died_at_ms", "expected"), [(NOW - 1, []), (NOW, []), (NOW + 1, [1])])
async def test_only_who_died_after_being_registered_is_dead(connections, died_at_ms, expected):
    async with connections:
        here, there = await connections.two()
        await here.dead_addresses.register("fcm", [1], NOW)
        await here.dead_addresses.register("fcm", [1], NOW - 1_000)  # late news, too

        late = death(1, died_at_ms)

        assert await there.dead_addresses.record("fcm", [late], NOW + 50) == expected
        assert await suppressed(here, 1) == expected
        assert await hashes(here) == expected
        assert await there.dead_addresses.record("apns", [late], NOW + 50) == [1]


async def test_records_are_listed_from_a_time_on_of_a_sink_in_either_order(connections):
    async with connections:
        backend = await connections.one()
        for number in range(3):
            await backend.dead_addresses.record("fcm", [death(number)], NOW + number)
            await backend.dead_addresses.record("apns", [death(10 + number)], NOW + number)

        assert await hashes(backend, since_ms=NOW + 1) == [1, 11, 2, 12]
        assert await hashes(backend, since_ms=NOW + 1, newest_first=True) == [12, 2, 11, 1]
        assert await hashes(backend, sink="apns") == [10, 11, 12]
        assert await hashes(backend, sink="ap") == []
        assert await hashes(backend, since_ms=NOW + 3) == []


@pytest.mark.parametrize("newest_first", [False, True])
async def test_many_come_in_pages_each_once(connections, newest_first):
    async with connections:
        backend = await connections.one()
        for start in range(0, 3_000, 1_500):  # more than a page, and than a millisecond has numbers
            await backend.dead_addresses.record(
                "fcm", [death(start + number) for number in range(1_500)], NOW
            )
        await backend.dead_addresses.record("apns", [death(7)], NOW)

        found = await hashes(backend, sink="fcm", newest_first=newest_first)

        assert found == sorted(range(3_000), reverse=newest_first)


async def test_a_clock_that_is_ahead_moves_nobody_elses_records(connections):
    async with connections:
        backend = await connections.one()
        await backend.dead_addresses.record("fcm", [death(1)], NOW + 86_400_000)
        await backend.dead_addresses.record("fcm", [death(2)], NOW)

        assert [(one.hash, one.recorded_at_ms) for one in await listed(backend)] == [
            (2, NOW),
            (1, NOW + 86_400_000),
        ]


async def test_what_is_old_is_forgotten_some_at_a_time_and_stays_suppressed(connections):
    async with connections:
        backend = await connections.one()
        dead = backend.dead_addresses
        await dead.record("fcm", [death(1), death(2), death(3)], NOW)
        await dead.record("fcm", [death(4)], NOW + 1_000)
        await dead.register("fcm", [8], NOW)
        await dead.register("fcm", [9], NOW + 1_000)

        assert await dead.forget(NOW + 1_000, 2) == 3
        assert await hashes(backend) == [3, 4]
        assert await dead.forget(NOW + 1_000, 2) == 1
        assert await dead.forget(NOW + 1_000, 2) == 0

        assert await hashes(backend) == [4]
        assert await suppressed(backend, 1, 2, 3, 4) == [1, 2, 3, 4]
        assert await dead.record("fcm", [death(8), death(9)], NOW + 2_000) == [8]


async def test_nothing_is_recorded_or_registered_of_nothing(connections):
    async with connections:
        backend = await connections.one()

        assert await backend.dead_addresses.record("fcm", [], NOW) == []
        assert await backend.dead_addresses.register("fcm", [], NOW) == 0
        assert await backend.suppressions.counts() == {}
