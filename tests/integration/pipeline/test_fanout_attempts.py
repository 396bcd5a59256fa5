"""Two attempts at one partition at once, as Spark's speculation makes them."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.backend import connect
from pushlane.core.ports import Source
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.pipeline.fanout.writer import PartWriter
from pushlane.settings import Settings
from pushlane.wire import Packed, packed

COUNT = 40
BUNDLE = 8


@pytest.fixture
def settings(pulsar_settings: Settings) -> Settings:
    return pulsar_settings.but(**{"batch": BUNDLE})


def bundles(end: int) -> list[Packed]:
    """Those of all seqs before `end`."""
    return list(packed((encode(Push("t1", seq, f"user-{seq}")) for seq in range(1, end)), BUNDLE))


def bodies(some: list[Packed]) -> list[bytes]:
    return [one.message for one in some]


@pytest.mark.pulsar
async def test_a_second_attempt_waits_for_the_first_and_adds_what_is_missing(settings) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await goes_on.wait()

    async with connect(settings) as judge:
        task = Task(id="t1", level=Level.HIGH, lane="task-t1", first_lane="task-t1", bundle=BUNDLE)
        await judge.registry.add(task)
        await judge.broker.open_lane(task.lane)
        await judge.registry.change(task.id, task_changes.start)
        async with connect(settings) as first:
            done = bundles(17)
            source = Source("fanout-t1-1", [one.last_seq for one in done])
            await first.broker.publish(task.lane, bodies(done), source=source)
            second = PartWriter(settings, "t1", collapses=False, sleep=sleep)
            attempt = asyncio.create_task(second.run(bundles(COUNT + 1)))
            await waits.wait()
        goes_on.set()
        assert await attempt == COUNT

        pages = [page async for page in judge.broker.replay(task.lane)]
    assert [body for page in pages for body in page] == bodies(bundles(COUNT + 1))
