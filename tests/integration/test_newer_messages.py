"""On Pulsar, too: what an older process cannot read goes to one that can, and nothing is buried."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from pushlane.backends.backend import connect
from pushlane.core.push import FORMAT
from pushlane.settings import Settings
from tests.contract.reading import Reading
from tests.core.support import MemorySink, add_task, dispatching, until

pytestmark = pytest.mark.pulsar


async def test_an_older_process_leaves_a_lane_to_one_that_can_read_it(
    pulsar_urls, redis_url
) -> None:
    settings = Settings(
        broker=pulsar_urls.broker,
        admin_url=pulsar_urls.admin,
        redis_url=redis_url,
        namespace=f"pushlane/t-{uuid.uuid4().hex[:12]}",
        pool_lanes=1,
    )
    sink = MemorySink()
    async with connect(settings) as backend, connect(settings) as newer:
        task = await add_task(backend, pushes=20, seal=False)
        later = [msgspec.msgpack.encode([FORMAT + 1, task.id, number]) for number in range(3)]
        await backend.broker.publish(task.lane, later)

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(20)
            await until(lambda: dispatcher.stats.unknown_format and not dispatcher.reads(task.lane))
            reading = await Reading.of(newer.broker, task.lane)
            taken = await reading.take(3)
            await newer.broker.ack(taken)
            await reading.close()

    assert sorted(one.body for one in taken) == sorted(later)
    assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 21)]
