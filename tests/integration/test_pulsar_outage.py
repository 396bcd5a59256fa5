"""Readers, producers and the journal after an outage of the broker: they go on by themselves.

How soon is for `python -m bench faults` to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.faults.services import Services, own_services
from pushlane.backends.backend import connect
from pushlane.backends.ports import Broker
from pushlane.core.errors import PushlaneError, Unreachable, UserError
from pushlane.core.ports import LaneReader, Taken
from pushlane.core.task import Weights
from pushlane.settings import Settings

pytestmark = pytest.mark.pulsar

LANES = [f"lane-{number}" for number in range(20)]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder: Path = tmp_path_factory.mktemp("outage")
    try:
        with own_services(folder, {}) as running:
            yield running
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def settings(services: Services) -> Settings:
    return Settings(
        broker=services.urls.broker,
        admin_url=services.urls.admin,
        redis_url=services.urls.redis,
        namespace="pushlane/outage",
    )


async def test_after_an_outage_lanes_and_journal_go_on(
    services: Services, settings: Settings
) -> None:
    async with connect(settings) as ours, connect(settings) as theirs:
        await ours.registry.set_weights(Weights(1, 2, 3))
        reading = [await opened(ours.broker, lane) for lane in LANES]
        before = [await one.next() for one in reading]
        await theirs.broker.open_lane("probe")

        for path in services.broker_path:
            path.cut()
        with pytest.raises(Unreachable):
            await theirs.broker.publish("probe", [b"perhaps"])
        for path in services.broker_path:
            path.heal()
        for lane in LANES:
            await published(theirs.broker, lane)
        after = [await one.next() for one in reading]
        await ours.registry.set_weights(Weights(6, 3, 1))
        await ours.broker.ack(before + after)

        assert {taken.body for taken in after} == {b"after"}
        while any([await ours.broker.backlog(lane) for lane in LANES]):
            pass  # acks may be durable a little later; each look asks the broker


async def test_nothing_is_dropped_after_a_producer_lost_the_broker_before_its_first_answer(
    services: Services, settings: Settings
) -> None:
    """The broker drops what has a number that it has seen, and answers as if it had kept it."""
    path = services.broker_path[0]
    async with connect(settings) as ours:
        await ours.broker.open_lane("numbered")
        await ours.broker.publish("numbered", [])  # makes the producer
        path.stall()
        first = asyncio.create_task(ours.broker.publish("numbered", [b"1", b"2"]))
        await asyncio.sleep(0)
        path.cut()
        path.heal()
        await first

        await ours.broker.publish("numbered", [b"3", b"4"])

        assert await ours.broker.backlog("numbered") == 4


class Lane:
    """A reader of a lane, and a signal that it has something."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.reader: LaneReader

    async def next(self) -> Taken:
        while (taken := self.reader.take()) is None:
            self.ready.clear()
            await self.ready.wait()
        return taken


async def opened(broker: Broker, name: str) -> Lane:
    """The lane with one message on it, and a reader."""
    lane = Lane()
    await broker.open_lane(name)
    await broker.publish(name, [b"before"])
    lane.reader = await broker.read(name, lambda _: lane.ready.set())
    return lane


async def published(broker: Broker, lane: str) -> None:
    """Try until the broker takes it: each attempt waits for the broker itself."""
    while True:
        try:
            return await broker.publish(lane, [b"after"])
        except PushlaneError:
            await asyncio.sleep(0)
