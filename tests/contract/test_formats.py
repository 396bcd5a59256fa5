"""Which format new tasks are published in, and how large their bundles are, on every backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.formats import format_to_write, min_format, set_min_format
from pushlane.backends.ports import TaskPage, TaskQuery
from pushlane.core.errors import UnknownFormat
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.push import FORMAT
from pushlane.core.task import Level, Task
from pushlane.model.names import new_task_id
from pushlane.model.presence import Process
from pushlane.settings import Settings
from pushlane.wire import MOST_POOLED, MOST_PUSHES

LONG_S = 600
OLDER = Process(id="older", kind="dispatcher", pid=7, version="0.1.0", format=FORMAT - 1)


def new_task(level: Level = Level.HIGH) -> Task:
    task_id = new_task_id()
    lane = pool_lane(task_id, 1) if level is Level.LOW else own_lane(task_id)
    return Task(id=task_id, level=level, lane=lane, first_lane=lane)


async def written_by(backend: Backend) -> int:
    return await format_to_write(backend.documents, backend.registry, backend.presence)


async def test_the_newest_is_written_from_the_first_task_on_and_all_must_read_it(connections):
    async with connections:
        here, there = await connections.two()
        assert await min_format(here.documents) == 1

        numbers = await asyncio.gather(written_by(here), written_by(there))

        assert numbers == [FORMAT, FORMAT]
        assert await min_format(there.documents) == FORMAT
        await here.registry.add(new_task())
        assert await written_by(there) == FORMAT


async def test_a_first_task_that_another_makes_meanwhile_is_none_of_before(connections):
    async with connections:
        here, there = await connections.two()

        class Late:
            """A registry in which the other's first task is there when it is looked at."""

            async def page(self, query: TaskQuery, *, most: int) -> TaskPage:
                await written_by(there)
                await there.registry.add(new_task())
                return await here.registry.page(query, most=most)

        assert await format_to_write(here.documents, Late(), here.presence) == FORMAT


async def test_an_older_one_is_written_where_there_were_tasks_before_until_it_is_raised(
    connections,
):
    async with connections:
        backend = await connections.one()
        await backend.registry.add(new_task())

        assert (await written_by(backend), await min_format(backend.documents)) == (1, 1)
        await set_min_format(backend.documents, backend.presence, FORMAT)
        assert await written_by(backend) == FORMAT


async def test_an_older_one_is_written_while_a_process_lives_that_reads_no_newer(connections):
    async with connections:
        here, there = await connections.two()
        await there.presence.announce(OLDER, LONG_S)

        assert (await written_by(here), await min_format(here.documents)) == (1, 1)
        await there.presence.leave(OLDER.id)
        assert await written_by(here) == FORMAT


@pytest.mark.parametrize(("lowest", "written"), [(1, 1), (FORMAT, FORMAT), (FORMAT + 1, FORMAT)])
async def test_what_was_set_for_all_is_written_as_far_as_it_is_known(connections, lowest, written):
    async with connections:
        backend = await connections.one()
        await set_min_format(backend.documents, backend.presence, lowest, reads=lowest)

        assert await written_by(backend) == written


async def test_nothing_is_written_when_only_a_newer_version_knows_the_format(connections):
    async with connections:
        backend = await connections.one()
        await backend.documents.put("format", "min", msgspec.json.encode({"pushes": 2}), None)

        with pytest.raises(UnknownFormat):
            await backend.add(new_task(), Settings())


@pytest.mark.parametrize(
    ("level", "batch", "bundle"),
    [
        (Level.HIGH, 1, 1),
        (Level.HIGH, 8, 8),
        (Level.MEDIUM, 10_000, MOST_PUSHES),
        (Level.LOW, 8, 8),
        (Level.LOW, 10_000, MOST_POOLED),
    ],
)
async def test_a_new_task_gets_bundles_as_large_as_is_set_and_its_lane_allows(
    connections, settings, level, batch, bundle
):
    async with connections:
        backend = await connections.one()

        task = await backend.add(new_task(level), settings.but(**{"batch": batch}))

        assert task.bundle == (await backend.registry.get(task.id)).bundle == bundle


async def test_a_new_task_goes_push_by_push_as_long_as_bundles_may_not_be_written(
    connections, settings
):
    async with connections:
        backend = await connections.one()
        await set_min_format(backend.documents, backend.presence, 1)

        assert (await backend.add(new_task(), settings)).bundle == 1


async def test_a_task_keeps_the_size_that_it_began_with(connections, settings):
    async with connections:
        backend = await connections.one()
        task = await backend.add(replace(new_task(), key="k"), settings.but(**{"batch": 16}))
        await set_min_format(backend.documents, backend.presence, 1)

        again = await backend.add(replace(new_task(), key="k"), settings)

        assert (again.id, again.bundle) == (task.id, 16)
        assert (await backend.sized(task, settings)).bundle == 16
