"""Two attempts at one partition at once, as Spark's speculation makes them."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lanes import life
from lanes.backend import connect
from lanes.ports import Source
from lanes.push import Push, encode
from lanes.settings import Settings
from lanes.task import Level, Task
from pipeline.fanout.writer import PartWriter

COUNT = 40


@pytest.fixture
def settings(pulsar_settings: Settings) -> Settings:
    return pulsar_settings.but(**{"batch": 8})


def bodies(first: int, end: int) -> list[bytes]:
    return [encode(Push("t1", seq, f"user-{seq}")) for seq in range(first, end)]


def encoded(rows: pa.RecordBatch, first_seq: int) -> list[bytes]:
    return bodies(first_seq, first_seq + rows.num_rows)


@pytest.mark.pulsar
async def test_a_second_attempt_waits_for_the_first_and_adds_what_is_missing(settings) -> None:
    rows = pa.record_batch({"seq": pa.array(range(1, COUNT + 1), pa.int64())})
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await goes_on.wait()

    async with connect(settings) as judge:
        task = Task(id="t1", level=Level.HIGH, lane="task-t1", first_lane="task-t1")
        await judge.registry.add(task)
        await judge.broker.open_lane(task.lane)
        await judge.registry.change(task.id, life.start)
        async with connect(settings) as first:
            source = Source("fanout-t1-1", 1)
            await first.broker.publish(task.lane, bodies(1, 17), source=source)
            second = PartWriter(settings, "t1", encoded, collapses=False, sleep=sleep)
            attempt = asyncio.create_task(second.run([rows]))
            await waits.wait()
        goes_on.set()
        assert await attempt == COUNT

        pages = [page async for page in judge.broker.replay(task.lane)]
    assert [body for page in pages for body in page] == bodies(1, COUNT + 1)
