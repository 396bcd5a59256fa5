"""Looking through a lane (`backends.queries`) shows all of it and takes nothing, on every
broker.
"""

from __future__ import annotations

import pytest

from pushlane.backends.ports import Broker
from pushlane.backends.queries import Browser
from pushlane.core.errors import UnknownLane
from pushlane.core.ports import Taken
from tests.contract.conftest import BATCH
from tests.contract.reading import LANE, bodies, numbered


async def all_of(browser: Browser) -> list[Taken]:
    shown: list[Taken] = []
    while page := await browser.page():
        shown += page
    return shown


async def filled(broker: Broker, count: int) -> None:
    await broker.open_lane(LANE)
    if count:
        await broker.publish(LANE, numbered(1, count))


@pytest.mark.parametrize("count", [0, 1, BATCH, 20 * BATCH + 3])
async def test_it_shows_all_there_is_and_knows_that_it_did(connections, count):
    async with connections:
        broker = (await connections.one()).broker
        await filled(broker, count)

        async with Browser(broker, LANE) as browser:
            shown = await all_of(browser)

        assert (bodies(shown), browser.is_full) == (numbered(1, count), False)


async def test_what_was_shown_is_there_as_before(connections):
    async with connections:
        broker = (await connections.one()).broker
        await filled(broker, 30)
        for _ in range(3):
            async with Browser(broker, LANE) as browser:
                assert sorted(bodies(await all_of(browser))) == sorted(numbered(1, 30))


async def test_what_is_removed_is_gone_and_the_rest_stays(connections):
    async with connections:
        here, there = await connections.two()
        await filled(here.broker, 30)
        async with Browser(here.broker, LANE) as browser:
            shown = await all_of(browser)
            await browser.remove(shown[5:25])

        async with Browser(there.broker, LANE) as browser:
            left = bodies(await all_of(browser))

        assert sorted(left) == sorted(numbered(1, 5) + numbered(26, 30))


async def test_a_lane_is_empty_once_all_is_removed(connections):
    async with connections:
        broker = (await connections.one()).broker
        await filled(broker, 5 * BATCH)
        async with Browser(broker, LANE) as browser:
            await browser.remove(await all_of(browser))

        async with Browser(broker, LANE) as browser:
            assert await all_of(browser) == []


async def test_it_holds_no_more_than_it_may_and_goes_on_when_some_are_removed(connections):
    async with connections:
        broker = (await connections.one()).broker
        await filled(broker, 50)

        async with Browser(broker, LANE, most=20) as browser:
            first = await all_of(browser)
            assert (len(first), browser.is_full) == (20, True)
            await browser.remove(first)
            second = await all_of(browser)

        assert bodies(first + second) == numbered(1, 40)


async def test_it_needs_a_lane(connections):
    async with connections:
        broker = (await connections.one()).broker

        with pytest.raises(UnknownLane):
            async with Browser(broker, "task-nowhere-dead"):
                pass
