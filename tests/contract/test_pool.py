"""Which pool lane a low task gets: the one with the least left on it."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.queries import pool_size, set_pool_size
from pushlane.core.errors import BadInput
from pushlane.core.names import own_lane, pool_lane, pool_lanes
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.model.names import new_task_id
from pushlane.settings import Settings
from tests.contract.conftest import BATCH, Connections
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    add_task,
    dispatching,
    until,
    until_state,
)

POOL = 4


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.but(**{"pool_lanes": POOL})


def low_task(key: str = "") -> Task:
    task_id = new_task_id()
    lane = pool_lane(task_id, POOL)
    return Task(id=task_id, level=Level.LOW, lane=lane, first_lane=lane, key=key)


async def write(backend: Backend, lane: str, count: int) -> None:
    await backend.broker.open_lane(lane)
    bodies = [encode(Push("t", seq, f"to-{seq}")) for seq in range(1, count + 1)]
    await backend.broker.publish(lane, bodies)


async def test_low_tasks_spread_over_the_pool_before_two_share_a_lane(
    connections, settings
) -> None:
    async with connections:
        backend = await connections.one()

        tasks = [await backend.add(low_task(), settings) for _ in range(2 * POOL)]

        first, second = [task.lane for task in tasks[:POOL]], [task.lane for task in tasks[POOL:]]
        assert sorted(first) == sorted(second) == pool_lanes(POOL)
        assert all(task.first_lane == task.lane for task in tasks)


async def test_what_was_handed_in_just_now_does_not_draw_all_tasks_to_one_lane(
    connections, settings
) -> None:
    async with connections:
        backend = await connections.one()
        for lane in pool_lanes(POOL)[:-1]:
            await write(backend, lane, 1)

        tasks = [await backend.add(low_task(), settings) for _ in range(POOL)]

        assert {task.lane for task in tasks} == set(pool_lanes(POOL))


async def test_a_low_task_gets_the_lane_with_the_fewest_messages_left(
    connections, settings
) -> None:
    async with connections:
        backend = await connections.one()
        lanes = pool_lanes(POOL)
        left = (120, 60, 1, 120)
        await asyncio.gather(
            *(write(backend, lane, n * BATCH) for lane, n in zip(lanes, left, strict=True))
        )

        task = await backend.add(low_task(), settings)

        assert task.lane == lanes[2]


async def test_the_size_of_the_pool_is_changed_for_all_at_once(connections, settings) -> None:
    async with connections:
        mine, theirs = await connections.two()
        assert await pool_size(theirs.documents, POOL) == POOL

        for lanes in (2 * POOL, 1):
            await set_pool_size(mine.documents, lanes)
            assert await pool_size(theirs.documents, POOL) == lanes
            tasks = [await theirs.add(low_task(), settings) for _ in range(2 * POOL)]
            assert {task.lane for task in tasks} == set(pool_lanes(lanes))


@pytest.mark.parametrize("lanes", [-1, 0, 1_025])
async def test_a_pool_of_no_lanes_or_too_many_is_refused(connections, lanes: int) -> None:
    async with connections:
        backend = await connections.one()

        with pytest.raises(BadInput, match=f"pool size {lanes} is not from 1 to 1024"):
            await set_pool_size(backend.documents, lanes)


async def test_a_key_that_is_known_keeps_its_lane(connections: Connections, settings) -> None:
    async with connections:
        backend = await connections.one()
        first = await backend.add(low_task("k"), settings)
        await write(backend, first.lane, BATCH)

        again = await backend.add(low_task("k"), settings)

        assert (again.id, again.lane) == (first.id, first.lane)


@pytest.mark.parametrize("change", ["quota", "promote"])
async def test_a_task_that_leaves_its_lane_while_it_drains_loses_and_repeats_nothing(
    connections: Connections, settings: Settings, change: str
) -> None:
    async with connections, asyncio.timeout(DEADLINE_S):
        backend = await connections.one()
        tasks = [await add_task(backend, Level.LOW, 300) for _ in range(4)]
        moves = tasks[0]
        sink = MemorySink()
        async with dispatching(backend, sink, settings.but(pool_lanes=2, slots=8)) as dispatcher:
            await sink.until(lambda: len(sink.pushes(moves)) >= 40)
            sink.gate.clear()
            if change == "quota":
                moved = await backend.set_quota(moves.id, 3)
            else:
                moved = await backend.promote(moves.id, Level.MEDIUM)
            await until(lambda: dispatcher.reads(moved.lane))
            assert dispatcher.quota(moved.lane) == moved.quota
            sent = len(sink.pushes(moves))
            sink.gate.set()
            for task in tasks:
                await until_state(backend, task, State.DONE)

        assert sent < 300
        assert (moved.lane, moved.first_lane) == (own_lane(moves.id), moves.first_lane)
        for task in tasks:
            assert sorted(sink.pushes(task)) == [(task.id, seq) for seq in range(1, 301)]
            [progress] = await backend.registry.progress([task.id])
            assert (progress.delivered, progress.finished) == (300, 300)


async def test_a_task_of_another_level_stays_on_its_own_lane(
    connections: Connections, settings
) -> None:
    async with connections:
        backend = await connections.one()
        task = Task(id=new_task_id(), level=Level.HIGH, lane="task-x", first_lane="task-x")

        assert (await backend.add(task, settings)).lane == "task-x"
