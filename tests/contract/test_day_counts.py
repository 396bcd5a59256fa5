"""What every adapter of recipient windows promises of counts against frequency caps."""

from __future__ import annotations

import asyncio
from time import time

import pytest

from pushlane.core.task import Level
from pushlane.model.recipients import NO_CAP, Cap, CapDay

TODAY = int(time()) // 86_400
FAR = 2**63 - 1


def on(level: Level = Level.LOW, of_level: int = NO_CAP, in_all: int = NO_CAP, day: int = TODAY):
    return CapDay(day, level, Cap(of_level, in_all))


async def test_pushes_up_to_the_cap_have_room_and_no_more_whoever_asks(connections):
    async with connections:
        here, there = await connections.two()
        two = on(in_all=2)

        assert list(await here.recipient_windows.count(two, {"t-1": 7, "t-2": 8})) == []
        assert list(await there.recipient_windows.count(two, {"t-3": 7})) == []

        assert list(await here.recipient_windows.count(two, {"t-4": 7, "t-5": 8})) == ["t-4"]


async def test_of_one_call_as_many_have_room_as_the_cap_allows(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows

        refused = await windows.count(on(in_all=3), {f"t-{seq}": 7 for seq in range(10)})

        assert len(refused) == 7


async def test_who_asks_again_gets_the_same_answer(connections):
    async with connections:
        here, there = await connections.two()
        one = on(in_all=1)
        await here.recipient_windows.count(one, {"t-1": 7})
        assert list(await here.recipient_windows.count(one, {"t-2": 7})) == ["t-2"]

        assert list(await there.recipient_windows.count(one, {"t-1": 7})) == []
        assert list(await there.recipient_windows.count(one, {"t-2": 7})) == ["t-2"]


async def test_a_token_that_begins_like_another_is_another(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        one = on(in_all=1)
        await windows.count(one, {"t-11": 7})

        assert list(await windows.count(one, {"t-1": 7})) == ["t-1"]
        assert list(await windows.count(one, {"1": 7})) == ["1"]


async def test_levels_are_counted_by_themselves_and_together(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        low, high = on(Level.LOW, of_level=1, in_all=3), on(Level.HIGH, in_all=3)

        assert list(await windows.count(low, {"t-1": 7, "t-2": 7})) == ["t-2"]
        assert list(await windows.count(high, {"u-1": 7, "u-2": 7, "u-3": 7})) == ["u-3"]


async def test_a_push_refused_for_one_cap_takes_no_place_in_the_other(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        low, high = on(Level.LOW, of_level=1, in_all=2), on(Level.HIGH, in_all=2)
        await windows.count(low, {"t-1": 7})
        await windows.count(low, {"t-2": 7})

        assert list(await windows.count(high, {"u-1": 7})) == []


async def test_another_day_begins_from_nothing(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        await windows.count(on(in_all=1), {"t-1": 7})

        assert list(await windows.count(on(in_all=1, day=TODAY + 1), {"t-2": 7})) == []


async def test_a_cap_of_none_has_no_room(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows

        assert list(await windows.count(on(of_level=0), {"t-1": 7})) == ["t-1"]


async def test_room_that_is_given_back_goes_to_another(connections):
    async with connections:
        here, there = await connections.two()
        two = on(in_all=2)
        await here.recipient_windows.count(two, {"t-1": 7, "t-2": 7})

        await there.recipient_windows.uncount(two, {"t-1": 7, "other": 7})

        assert list(await here.recipient_windows.count(two, {"t-2": 7, "t-3": 7, "t-4": 7})) == [
            "t-4"
        ]


async def test_all_that_is_given_back_at_once_is_free(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        two = on(in_all=2)
        await windows.count(two, {"t-1": 7, "t-2": 7})

        await windows.uncount(two, {"t-1": 7, "t-2": 7})

        assert list(await windows.count(two, {"t-3": 7, "t-4": 7, "t-5": 7})) == ["t-5"]


@pytest.mark.parametrize("key", [0, -1, FAR, -FAR - 1])
async def test_any_64_bit_number_is_a_key(connections, key):
    async with connections:
        windows = (await connections.one()).recipient_windows
        await windows.count(on(in_all=1), {"t-1": key})

        assert list(await windows.count(on(in_all=1), {"t-2": key})) == ["t-2"]


async def test_the_cap_is_exact_when_many_ask_at_once(connections):
    async with connections:
        several = [(await connections.one()).recipient_windows for _ in range(4)]
        cap = on(in_all=5)
        calls = [
            windows.count(cap, {f"{who}-{call}": 7, f"{who}-{call}b": 8})
            for who, windows in enumerate(several)
            for call in range(25)
        ]

        refused = sum(map(len, await asyncio.gather(*calls)))

        assert refused == 2 * (100 - 5)


async def test_answers_are_of_all_however_many(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        await windows.count(on(in_all=1), {f"t-{seq}": seq for seq in range(0, 5_000, 2)})

        refused = await windows.count(on(in_all=1), {f"u-{seq}": seq for seq in range(5_000)})

        assert sorted(refused) == sorted(f"u-{seq}" for seq in range(0, 5_000, 2))
