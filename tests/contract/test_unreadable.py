"""What cannot be read back is never written, and what cannot be read is removed whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.ports import ALL, TaskQuery, listed, whole_pages
from pushlane.core.errors import InvalidChange, TaskConflict, UnknownFormat
from pushlane.core.names import dead_lane, lane_at, later_lane, own_lane
from pushlane.core.push import FORMAT, Kind
from pushlane.core.task import ACTIVE_STATES, Finished, Level, Task, Weights
from pushlane.model.limits import Limit, Subject, change_limit, read_limits, set_app_share
from pushlane.model.names import new_task_id
from pushlane.model.presence import Process
from pushlane.util.errors import DamagedRecord, UnknownTask, Unstorable
from pushlane.version import VERSION
from tests.unreadable import store_unreadable

LONG_S = 600

DAMAGED = pytest.mark.parametrize(
    "fields", [{"quota": 2.5}, {"level": "urgent"}, {"retention_s": "2h"}, {"reason": 5}]
)


def a_task(**fields: Any) -> Task:
    task_id = new_task_id()
    return replace(Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id)), **fields)


def a_process(**fields: Any) -> Process:
    known = Process(id="p1", kind="dispatcher", pid=7, version=VERSION, format=FORMAT)
    return replace(known, **fields)


@DAMAGED
async def test_a_task_that_could_not_be_read_back_is_not_written(connections, fields) -> None:
    async with connections:
        here, there = await connections.two()
        kept = await here.registry.add(a_task())

        with pytest.raises(Unstorable, match=f"task {kept.id} .* field {next(iter(fields))}"):
            await here.registry.change(kept.id, lambda task: replace(task, **fields))
        bad = a_task(key="sale", **fields)
        with pytest.raises(Unstorable, match=bad.id):
            await here.registry.add(bad)

        assert await listed(there.registry) == [kept]
        assert await there.registry.add(good := a_task(key="sale")) == await there.registry.get(
            good.id
        )


async def test_a_page_names_those_that_cannot_be_read(connections) -> None:
    async with connections:
        registry = (await connections.one()).registry
        [good, damaged, newer] = [await registry.add(a_task()) for _ in range(3)]
        await store_unreadable(registry, damaged.id, quota=2.5)
        await store_unreadable(registry, newer.id, format=99)

        for query in (ALL, TaskQuery(ACTIVE_STATES), TaskQuery(app=good.app)):
            found = [page async for page in whole_pages(registry, query)]

            assert [task.id for page in found for task in page.tasks] == [good.id]
            assert {one for page in found for one in page.unread} == {damaged.id, newer.id}


async def test_weights_that_could_not_be_read_back_are_not_written(connections) -> None:
    async with connections:
        registry = (await connections.one()).registry
        for weights in (Weights(high=2.5), Weights(0, 0, 0)):  # type: ignore[arg-type]
            with pytest.raises(Unstorable, match="the level weights"):
                await registry.set_weights(weights)

        assert await registry.weights() == Weights()


async def test_a_limit_that_could_not_be_read_back_is_not_written(connections) -> None:
    async with connections:
        documents = (await connections.one()).documents
        await set_app_share(documents, "shop", quota=3)
        subject = Subject("app", "shop")

        for bad in ({"quota": 2.5}, {"in_flight": "many"}, {"recipient_a_day": {"low": True}}):
            with pytest.raises(Exception, match=next(iter(bad))):
                await change_limit(documents, subject, lambda limit, b=bad: replace(limit, **b))

        assert await read_limits(documents) == {subject: Limit(quota=3)}


@DAMAGED
async def test_a_damaged_task_says_which_field_and_what_to_do(connections, fields) -> None:
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task(name="sale"))
        await store_unreadable(here.registry, task.id, **fields)

        with pytest.raises(DamagedRecord) as refused:
            await there.registry.get("sale")

        assert refused.value.task_id == task.id
        assert f"damaged in its field {next(iter(fields))}" in str(refused.value)
        assert f"pushlane forget {task.id} --force" in str(refused.value)


async def with_lanes(backend: Backend, task: Task) -> list[str]:
    own = own_lane(task.id)
    lanes = [own, later_lane(own), dead_lane(task.id), lane_at(task.id, "sms")]
    for lane in lanes:
        await backend.broker.open_lane(lane)
    await backend.broker.publish(own, [b"a message"])
    return lanes


@pytest.mark.parametrize("fields", [{"quota": 2.5}, {"format": 99}, {"quota": 2.5, "name": 5}])
async def test_what_cannot_be_read_is_removed_with_all_that_is_its(connections, fields) -> None:
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task(key="sale", name="autumn"))
        other = await here.registry.add(a_task(key="other"))
        lanes = await with_lanes(here, task)
        [other_lane, *_] = await with_lanes(here, other)
        await here.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        await change_limit(
            here.documents, Subject("task", task.id), lambda limit: replace(limit, in_flight=3)
        )
        await store_unreadable(here.registry, task.id, **fields)
        before = await there.registry.changes(0, timeout_s=30)
        assert [*before.unread] == [task.id]

        assert await here.discard(task.id)

        later = await there.registry.changes(before.version, timeout_s=30)
        assert task.id in later.forgotten
        for word in (task.id, "sale"):
            with pytest.raises(UnknownTask):
                await there.registry.get(word)
        left = await there.broker.lanes()
        assert not set(lanes) & set(left)
        assert other_lane in left
        [progress] = await there.registry.progress([task.id])
        assert progress.finished == 0
        assert await read_limits(there.documents) == {}
        assert [one.id for one in await listed(there.registry)] == [other.id]
        again = await there.registry.add(a_task(key="sale"))
        assert (await here.registry.get("sale")).id == again.id


async def test_removing_again_is_harmless_and_one_that_can_be_read_is_refused(connections) -> None:
    async with connections:
        backend = await connections.one()
        task = await backend.registry.add(a_task())

        with pytest.raises(InvalidChange, match=f"task {task.id} can be read"):
            await backend.discard(task.id)
        assert await backend.registry.get(task.id) == task
        assert await backend.discard("nosuchtask")
        assert not await backend.registry.discard("nosuchtask")


@pytest.mark.parametrize(
    "newer", [{"version": "99.0.0"}, {"format": FORMAT + 1}, {"lanes": "many"}, {"id": 5}]
)
async def test_it_stays_while_a_process_of_a_newer_version_is_there(connections, newer) -> None:
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())
        await store_unreadable(here.registry, task.id, format=99)
        process = a_process(**newer)
        await there.presence.announce(a_process(id="same"), LONG_S)
        await there.presence.announce(process, LONG_S)

        with pytest.raises(TaskConflict, match="a live process of a newer version") as refused:
            await here.discard(task.id)

        assert ("pid 7" in str(refused.value)) == (process.id == "p1")
        assert "same" not in str(refused.value)
        with pytest.raises(UnknownFormat):
            await here.registry.get(task.id)
        await there.presence.leave(process.id)
        assert await here.discard(task.id)
