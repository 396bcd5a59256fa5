"""Which lanes of the pool a process opens that drains, and that it leaves nothing on any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import is_pool, later_lane, pool_lanes
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
    until_state,
)


class NotedBroker(Wrapped):
    """Notes which lanes are made and read."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.made: list[str] = []
        self.lanes_read: list[str] = []

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        self.made.append(lane)
        await self._real.open_lane(lane, keep=keep)

    async def read(self, lane: str, *more: Any) -> Any:
        self.lanes_read.append(lane)
        return await self._real.read(lane, *more)

    def pool_lanes_used(self) -> set[str]:
        return {lane for lane in (*self.made, *self.lanes_read) if is_pool(lane)}


def noted(backend: Backend) -> tuple[Backend, NotedBroker]:
    """The backend with a broker that notes what is opened from now on."""
    broker = NotedBroker(backend.broker)
    return with_broker(backend, broker), broker


def with_broker(backend: Backend, broker: Any) -> Backend:
    return Backend(**{**vars(backend), "broker": broker})


async def add_low(backend: Backend, lane: str) -> Task:
    """A low task of three pushes on this lane of the pool."""
    task = await add_task(backend, Level.LOW, 0, seal=False)
    placed = await backend.registry.change(
        task.id, lambda it: replace(it, lane=lane, first_lane=lane)
    )
    await backend.broker.open_lane(lane)
    await backend.broker.publish(lane, bodies(task))
    await backend.registry.change(task.id, task_changes.seal(3))
    return placed


def bodies(task: Task) -> Sequence[bytes]:
    return [encode(Push(task.id, seq, f"to-{seq}")) for seq in (1, 2, 3)]


async def test_a_drain_without_a_low_task_opens_no_lane_of_the_pool(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (real, settings):
        task = await add_task(real, Level.HIGH, 10)
        backend, broker = noted(real)
        sink = MemorySink()

        await drain(backend, sink, settings)
        await drain(backend, sink, settings)

        assert len(sink.pushes(task)) == 10
        assert broker.pool_lanes_used() == set()


async def test_a_process_that_goes_on_opens_all_of_them(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (real, settings):
        backend, broker = noted(real)

        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: all(map(dispatcher.reads, pool_lanes(settings.pool_lanes))))

        both = {"pool-0", "pool-1"}
        assert broker.pool_lanes_used() == both | set(map(later_lane, both))


async def test_a_drain_opens_the_lanes_of_low_tasks_alone(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=8) as (real, settings):
        tasks = [await add_low(real, lane) for lane in ("pool-5", "pool-11")]
        backend, broker = noted(real)
        sink = MemorySink()

        await drain(backend, sink, settings)

        for task in tasks:
            assert sorted(sink.pushes(task)) == [(task.id, seq) for seq in (1, 2, 3)]
        theirs = {"pool-5", "pool-11"}
        assert broker.pool_lanes_used() == theirs | set(map(later_lane, theirs))


@pytest.mark.parametrize("change", ["promote", "quota", "pause and resume"])
async def test_what_a_moved_task_has_left_on_the_pool_is_drained(
    tmp_path: Path, change: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_low(backend, "pool-1")
        if change == "promote":
            await backend.promote(task.id, Level.HIGH)
        elif change == "quota":
            await backend.set_quota(task.id, 2)
        else:
            await backend.pause(task.id)
            await backend.registry.change(task.id, task_changes.resume)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes(task)) == [(task.id, seq) for seq in (1, 2, 3)]
        assert (await backend.registry.get(task.id)).state is State.DONE


async def test_what_waits_for_its_time_on_the_later_lane_of_the_pool_is_drained(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.LOW, 0, seal=False)
        later = later_lane(task.lane)
        await backend.broker.open_lane(later)
        await backend.broker.publish(later, bodies(task), delay_s=0.2)
        await backend.registry.change(task.id, task_changes.seal(3))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes(task)) == [(task.id, seq) for seq in (1, 2, 3)]


async def test_pushes_on_a_lane_of_the_pool_that_no_task_names_are_found(tmp_path: Path) -> None:
    """As of a task that an old version has moved without noting from where."""
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 0, seal=False)
        await backend.broker.open_lane("pool-12")
        await backend.broker.publish("pool-12", bodies(task))
        await backend.registry.change(task.id, task_changes.seal(3))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes(task)) == [(task.id, seq) for seq in (1, 2, 3)]


async def test_a_low_task_submitted_while_it_drains_is_drained_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        first = await add_task(backend, Level.HIGH, 1)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings, drain=True) as dispatcher:
            await sink.until_received(1)
            low = await add_task(backend, Level.LOW, 3)
            await until(lambda: dispatcher.reads(low.lane))
            sink.gate.set()
            await dispatcher.stopped()

        assert sink.pushes(first) == [(first.id, 1)]
        assert sorted(sink.pushes(low)) == [(low.id, seq) for seq in (1, 2, 3)]
        assert (await backend.registry.get(low.id)).state is State.DONE


class Reticent(Wrapped):
    """A broker that does not tell which lanes it has."""

    async def lanes(self) -> list[str]:
        raise Unreachable("its admin REST is away")


async def test_a_broker_that_does_not_tell_its_lanes_holds_up_no_other_push(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (real, settings):
        task = await add_task(real, Level.HIGH, 10)
        backend = with_broker(real, Reticent(real.broker))
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(real, task, State.DONE)

        assert len(sink.pushes(task)) == 10
