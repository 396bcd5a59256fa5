"""A message that only a newer version can read is neither buried nor lost, and keeps nobody."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.core.names import DEAD_LANE, later_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, FORMAT, Kind, Outcome, Push, encode
from pushlane.core.task import Finished, Level, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from tests.backends.test_contact import Clock
from tests.contract.reading import Reading
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    settings_in,
    until,
    until_state,
)

AFTER_A_WHILE_S = 61.0


def of_a_later_format(task: Task, *seqs: int) -> bytes:
    return msgspec.msgpack.encode([FORMAT + 1, task.id, list(seqs), b"some later format"])


def has_left(dispatcher: Dispatcher, lane: str) -> bool:
    return dispatcher.stats.unknown_format > 0 and not dispatcher.reads(lane)


async def all_dead(backend: Backend) -> int:
    lanes = [lane for lane in await backend.broker.lanes() if lane.startswith("dead")]
    return sum([await backend.broker.backlog(lane) for lane in {*lanes, DEAD_LANE}])


async def test_what_cannot_be_read_is_left_to_another_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with backend_in(tmp_path) as (backend, settings):
            task = await add_task(backend, pushes=2, seal=False)
            other = await add_task(backend, Level.MEDIUM)
            later = of_a_later_format(task, 3, 4)
            behind = encode(Push(task.id, 5, "to-5"))
            await backend.broker.publish(task.lane, [later, behind])
            sink = MemorySink()

            async with dispatching(backend, sink, settings) as dispatcher:
                await until(lambda: has_left(dispatcher, task.lane))
                await until_state(backend, other, State.DONE)
                async with connect(settings_in(tmp_path)) as newer:
                    reading = await Reading.of(newer.broker, task.lane)
                    assert [one.body for one in await reading.take(2)] == [later, behind]
                    await reading.close()
                await until(lambda: len(sink.received) == 12)

            assert sink.pushes(task) == [(task.id, 1), (task.id, 2)]
            assert await all_dead(backend) == 0
            assert await backend.broker.backlog(task.lane) == 2

    told = [r for r in caplog.records if getattr(r, "action", "") == "format_unknown"]
    assert len(told) == 1


async def test_the_lane_is_left_when_what_is_in_flight_of_it_is_settled(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=2, seal=False)
        await backend.broker.publish(task.lane, [of_a_later_format(task, 3)])
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(2)
            await until(lambda: dispatcher.stats.unknown_format == 1)
            assert dispatcher.reads(task.lane)
            sink.gate.set()
            await until(lambda: not dispatcher.reads(task.lane))

            assert await backend.broker.backlog(task.lane) == 1
        assert len(sink.received) == 2


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_a_lane_that_was_left_is_tried_again_after_a_while(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        clock = Clock()
        task = await add_task(backend, level, pushes=0, seal=False)
        later = of_a_later_format(task, 1)
        await backend.broker.publish(task.lane, [later, encode(Push(task.id, 2, "to-2"))])
        sink = MemorySink()

        async with dispatching(backend, sink, settings, clock_s=clock) as dispatcher:
            await until(lambda: has_left(dispatcher, task.lane))
            clock.now_s += AFTER_A_WHILE_S
            await until(lambda: dispatcher.stats.unknown_format == 2)
            await until(lambda: not dispatcher.reads(task.lane))
            async with connect(settings_in(tmp_path)) as newer:
                reading = await Reading.of(newer.broker, task.lane)
                [read, _] = await reading.take(2)
                assert read.body == later
                await newer.broker.ack([read])
                await newer.registry.record([Finished(task.id, Kind.DELIVERED, [1])])
                await reading.close()
            clock.now_s += AFTER_A_WHILE_S
            await sink.until_received(1)
            await backend.registry.change(task.id, task_changes.seal(2))
            await until_state(backend, task, State.DONE)

        assert sink.pushes() == [(task.id, 2)]


async def test_what_a_newer_version_added_to_a_push_survives_a_retry(tmp_path: Path) -> None:
    def fails_first(delivery: Delivery) -> Outcome:
        return DELIVERED if delivery.push.attempt > 1 else Outcome.retry("busy", after_s=3_600)

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        fields = msgspec.msgpack.decode(encode(Push(task.id, 1, "to-1")))
        newer = msgspec.msgpack.encode([*fields, None, None, "added later"])
        await backend.broker.publish(task.lane, [newer])

        async with dispatching(backend, MemorySink(fails_first), settings) as dispatcher:
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.RETRY] == 1)

        pages = [page async for page in backend.broker.replay(later_lane(task.lane))]
        assert [msgspec.msgpack.decode(body)[-1] for [body] in pages] == ["added later"]


async def test_what_waits_for_a_push_that_cannot_be_read_goes_to_another_process_with_it(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, order_timeout_s=3_600) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False, ordered=True)
        waits = encode(Push(task.id, 2, "to-2", after_seq=1))
        later = of_a_later_format(task, 1)
        await backend.broker.publish(task.lane, [waits, later])
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: has_left(dispatcher, task.lane))
            async with connect(settings_in(tmp_path)) as newer:
                reading = await Reading.of(newer.broker, task.lane)
                assert [one.body for one in await reading.take(2)] == [waits, later]
                await reading.close()

        assert sink.received == []
