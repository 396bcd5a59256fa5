"""Readers, producers and the journal after an outage of the broker: they go on by themselves.

How soon is for `python -m bench faults` to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.faults.services import Services, own_services
from lanes.backend import connect
from lanes.errors import PushlaneError, UserError
from lanes.ports import Taken
from lanes.settings import Settings
from lanes.task import Weights

pytestmark = pytest.mark.pulsar

AWAY_S = 4.0  # the client has given up its connections, and waits longer each time
LANES = 20


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder: Path = tmp_path_factory.mktemp("outage")
    try:
        with own_services(folder, {}) as running:
            yield running
    except UserError as reason:
        pytest.skip(str(reason))


def test_after_an_outage_lanes_and_journal_go_on(services: Services) -> None:
    async def scenario() -> None:
        settings = Settings(
            broker=services.urls.broker,
            admin_url=services.urls.admin,
            redis_url=services.urls.redis,
            namespace="pushlane/outage",
        )
        lanes = [f"lane-{number}" for number in range(LANES)]
        ready = asyncio.Event()
        async with connect(settings) as ours, connect(settings) as theirs:
            await ours.registry.set_weights(Weights(1, 2, 3))
            readers = []
            for lane in lanes:
                await ours.broker.open_lane(lane)
                await ours.broker.publish(lane, [b"before"])
                readers.append(await ours.broker.read(lane, lambda _: ready.set()))

            async def take(count: int) -> list[Taken]:
                taken: list[Taken] = []
                while len(taken) < count:
                    ready.clear()
                    for reader in readers:
                        taken += iter(reader.take, None)
                    if len(taken) < count:
                        await ready.wait()
                return taken

            before = await take(LANES)
            for path in services.broker_path:
                path.cut()
            await asyncio.sleep(AWAY_S)
            for path in services.broker_path:
                path.heal()

            async def publish(lane: str) -> None:
                while True:
                    try:
                        return await theirs.broker.publish(lane, [b"after"])
                    except PushlaneError:
                        await asyncio.sleep(0.1)

            await asyncio.gather(*map(publish, lanes))
            after = await take(LANES)
            await ours.registry.set_weights(Weights(6, 3, 1))

            assert {taken.body for taken in after} == {b"after"}
            assert len({taken.lane for taken in after}) == LANES
            await ours.broker.ack(before + after)
            async with asyncio.timeout(20):
                while any([await ours.broker.backlog(lane) for lane in lanes]):
                    await asyncio.sleep(0.1)

    asyncio.run(scenario())
