"""A task that only a newer version understands: nobody ends of it, and nobody touches its lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.core.names import dead_lane, later_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, decode, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
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
from tests.leader.recovering import GRACE_MS, MINUTE_MS, Recovering
from tests.unreadable import store_unreadable

NEWER = pytest.mark.parametrize("fields", [{"format": 3}, {"state": "resting"}])


async def make_newer(backend: Backend, task: Task, fields: dict[str, object]) -> Task:
    """As a newer version changes it."""
    return await store_unreadable(backend.registry, task.id, **fields)


async def seqs_left(folder: Path, task: Task, count: int) -> list[int]:
    """What another process gets off its lane."""
    async with connect(settings_in(folder)) as newer:
        reading = await Reading.of(newer.broker, task.lane)
        taken = await reading.take(count)
        await reading.close()
    return sorted(decode(one.body).seq for one in taken)


@NEWER
@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_its_pushes_are_not_sent_and_others_are(
    tmp_path: Path, level: Level, fields: dict[str, object]
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, level)
        await make_newer(backend, task, fields)
        other = await add_task(backend, Level.MEDIUM)
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until_state(backend, other, State.DONE)
            await until(lambda: not dispatcher.reads(task.lane))

        assert sink.pushes(task) == []
        assert await backend.broker.backlog(task.lane) == 10


@NEWER
async def test_its_lane_is_left_when_it_changes_in_mid_run(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=12)
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(8)
            await make_newer(backend, task, fields)
            await until(lambda: not dispatcher.reads(task.lane))
            sink.gate.set()

            assert await seqs_left(tmp_path, task, 4) == [9, 10, 11, 12]
        assert len(sink.received) == 8


async def test_a_retry_that_finds_its_task_changed_goes_to_who_understands_it(
    tmp_path: Path,
) -> None:
    def busy(_: Delivery) -> Outcome:
        return Outcome.retry("busy", after_s=3_600)

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=3)
        other = await add_task(backend, Level.MEDIUM, pushes=1)
        sink = MemorySink(lambda given: busy(given) if given.push.task_id == task.id else DELIVERED)
        sink.gate.clear()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(4)
            await make_newer(backend, task, {"format": 3})
            await until(lambda: not dispatcher.reads(task.lane))
            sink.gate.set()

            await until_state(backend, other, State.DONE)
            assert await seqs_left(tmp_path, task, 3) == [1, 2, 3]
        assert later_lane(task.lane) not in await backend.broker.lanes()


@NEWER
async def test_none_of_its_lanes_is_taken_for_an_orphan(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, pushes=1)
        lanes = {task.lane, later_lane(task.lane), dead_lane(task.id)}
        for lane in lanes:
            await backend.broker.open_lane(lane)
        recovering = Recovering(backend)
        await make_newer(backend, task, {**fields, "lane_dropped": True})

        await recovering.step()
        await recovering.step(GRACE_MS + MINUTE_MS)

        assert lanes <= set(await backend.broker.lanes())


@NEWER
async def test_a_leader_that_knows_it_as_it_was_does_it_no_harm(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, expires_at_ms=task_changes.now_ms() + 60_000_000)
        other = await add_task(backend, Level.MEDIUM, pushes=0, seal=False)
        await backend.broker.publish(other.lane, [encode(Push(other.id, 1, "to-1"))])
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.reads(task.lane))
            await make_newer(backend, task, {**fields, "expires_at_ms": 1})
            await until(lambda: not dispatcher.reads(task.lane))
            await backend.registry.change(other.id, task_changes.seal(1))
            await until_state(backend, other, State.DONE)

        assert task.lane in await backend.broker.lanes()
