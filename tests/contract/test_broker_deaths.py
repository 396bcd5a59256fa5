"""What a broker promises when a process that holds messages is killed."""

from __future__ import annotations

import os
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from contextlib import asynccontextmanager

import pytest

from pushlane.settings import Settings
from tests.contract.conftest import ON_PLACES
from tests.contract.reading import LANE, Reading, bodies, numbered


@pytest.fixture(params=ON_PLACES)
def backend_kind(request: pytest.FixtureRequest) -> str:
    """Not memory: what lies there ends with the process that is killed."""
    return request.param


@asynccontextmanager
async def holder(settings: Settings, count: int):
    """A process that holds `count` messages of the lane."""
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "tests.contract.holder", LANE, str(count)),
        env=os.environ | settings.as_environment(),
        stdout=PIPE,
    )
    try:
        assert await process.stdout.readline() == b"holding\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_what_a_killed_process_held_comes_back(connections, settings):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 5))
        async with holder(settings, 3) as process:
            process.kill()
            await process.wait()

            reading = await Reading.of(broker)

            assert sorted(bodies(await reading.take(5))) == numbered(1, 5)


async def test_a_reader_that_is_already_there_gets_what_a_killed_process_held(
    connections, settings
):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane(LANE)
        await broker.publish(LANE, numbered(1, 5))
        async with holder(settings, 3) as process:
            reading = await Reading.of(broker)
            assert reading.reader.take() is None

            process.kill()

            assert sorted(bodies(await reading.take(5))) == numbered(1, 5)
