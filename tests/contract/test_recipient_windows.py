"""What every adapter of recipient windows promises (`backends.guard_ports.RecipientWindows`)."""

from __future__ import annotations

import asyncio

from pushlane.backends.guard_ports import RecipientTurn
from pushlane.model.recipients import Mark
from tests.contract.reading import until

LONG_S = 600
SHORT_S = 0.05
GO, BUSY, OVER = RecipientTurn.GO, RecipientTurn.BUSY, RecipientTurn.OVER


def mark(key: str, token: int = 1) -> Mark:
    return Mark(key, f"{token:010d}")


async def test_the_first_of_a_key_stays_the_first_for_everybody(connections):
    async with connections:
        here, there = await connections.two()

        assert await here.recipient_windows.first([mark("a", 5), mark("b", 6)]) == [True, True]

        assert await there.recipient_windows.first([mark("a", 1), mark("a", 5), mark("c", 7)]) == [
            False,
            True,
            True,
        ]


async def test_of_two_with_one_key_in_a_call_one_is_the_first(connections):
    async with connections:
        marks = (await connections.one()).recipient_windows

        assert await marks.first([mark("a", 5), mark("a", 4), mark("b", 1)]) == [True, False, True]


async def test_one_at_a_time_goes_of_a_key_and_others_beside_it(connections):
    async with connections:
        here, there = await connections.two()

        assert await here.recipient_windows.enter([mark("a", 1), mark("b", 1)], "h", LONG_S) == [
            GO,
            GO,
        ]

        assert await there.recipient_windows.enter([mark("a", 2), mark("c", 1)], "t", LONG_S) == [
            BUSY,
            GO,
        ]


async def test_the_first_of_a_key_is_the_first_for_the_window_that_is_asked_for(connections):
    async with connections:
        here, there = await connections.two()

        first = await here.recipient_windows.first([mark("a", 1), mark("b", 1)], LONG_S)

        assert first == [True, True]
        again = await there.recipient_windows.first([mark("a", 1), mark("b", 2)], LONG_S)
        assert again == [True, False]


async def test_a_window_of_its_own_ends_before_that_of_recipients(connections):
    async with connections:
        windows = (await connections.one()).recipient_windows
        await windows.first([mark("a", 1)], 0.001)
        await windows.first([mark("b", 1)])

        async with asyncio.timeout(LONG_S):
            while await windows.first([mark("a", 2)], LONG_S) != [True]:
                pass

        assert await windows.first([mark("b", 2)], LONG_S) == [False]


async def test_who_goes_again_gets_the_same_answer(connections):
    async with connections:
        marks = (await connections.one()).recipient_windows
        await marks.enter([mark("a", 1)], "h", LONG_S)

        assert await marks.enter([mark("a", 1)], "h", LONG_S) == [GO]
        assert await marks.enter([mark("a", 1)], "other", LONG_S) == [BUSY]


async def test_when_one_has_left_the_next_goes_and_no_older_one_ever(connections):
    async with connections:
        here, there = await connections.two()
        await here.recipient_windows.enter([mark("a", 1)], "h", LONG_S)
        await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S)

        await here.recipient_windows.leave([mark("a", 1)], "h")

        assert await here.recipient_windows.enter([mark("a", 1)], "h", LONG_S) == [OVER]
        assert await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S) == [GO]


async def test_an_older_one_is_over_when_a_newer_one_was_announced(connections):
    async with connections:
        here, there = await connections.two()

        await here.recipient_windows.announce([mark("a", 3), mark("a", 2), mark("b", 1)])

        entered = await there.recipient_windows.enter(
            [mark("a", 2), mark("a", 3), mark("b", 1)], "t", LONG_S
        )
        assert entered == [OVER, GO, GO]


async def test_what_is_announced_while_one_goes_does_not_stop_it_from_leaving(connections):
    async with connections:
        here, there = await connections.two()
        await here.recipient_windows.enter([mark("a", 1)], "h", LONG_S)
        await there.recipient_windows.announce([mark("a", 2)])
        assert await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S) == [BUSY]

        await here.recipient_windows.leave([mark("a", 1)], "h")

        assert await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S) == [GO]


async def test_only_its_owner_leaves(connections):
    async with connections:
        here, there = await connections.two()
        await here.recipient_windows.enter([mark("a", 1)], "h", LONG_S)

        await there.recipient_windows.leave([mark("a", 1)], "t")

        assert await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S) == [BUSY]


async def test_a_turn_ends_with_its_time(connections):
    async with connections:
        here, there = await connections.two()
        await here.recipient_windows.enter([mark("a", 1)], "h", SHORT_S)

        async def is_free() -> bool:
            return await there.recipient_windows.enter([mark("a", 2)], "t", LONG_S) == [GO]

        await until(is_free)


async def test_of_two_in_one_call_the_newest_goes(connections):
    async with connections:
        marks = (await connections.one()).recipient_windows

        assert await marks.enter([mark("a", 1), mark("a", 2)], "h", LONG_S) == [OVER, GO]


async def test_answers_come_in_the_order_of_the_marks_however_many(connections):
    async with connections:
        marks = (await connections.one()).recipient_windows
        await marks.announce([mark(f"k{n}", 2) for n in range(0, 5_000, 2)])

        entered = await marks.enter([mark(f"k{n}") for n in range(5_000)], "h", LONG_S)

        assert entered == [OVER, GO] * 2_500
