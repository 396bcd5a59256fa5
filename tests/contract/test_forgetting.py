"""What every registry promises of tasks that are looked for, and of those that are forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.backends.ports import Fence, Registry, TaskQuery, listed, pages
from pushlane.core.errors import InvalidChange
from pushlane.core.names import dead_lane, later_lane, own_lane
from pushlane.core.push import Kind
from pushlane.core.task import ACTIVE_STATES, TERMINAL_STATES, Finished, Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.util.errors import Superseded, UnknownTask
from tests.contract.reading import Reading, until

DONE = task_changes.finish(State.DONE)


def a_task(**fields: object) -> Task:
    task_id = str(fields.pop("id", "")) or new_task_id()
    task = Task(
        id=task_id,
        level=Level.HIGH,
        lane=own_lane(task_id),
        created_at_ms=task_changes.now_ms(),
    )
    return replace(task, **fields)


async def add_ended(registry: Registry, **fields: object) -> Task:
    task = await registry.add(a_task(**fields))
    return await registry.change(task.id, DONE)


async def test_tasks_come_page_by_page_newest_first_and_each_once(connections):
    async with connections:
        registry = (await connections.one()).registry
        ids = [(await registry.add(a_task(id=f"task{n}"))).id for n in range(7)]

        first = await registry.page(TaskQuery(), most=3)
        second = await registry.page(TaskQuery(), first.after, most=3)
        third = await registry.page(TaskQuery(), second.after, most=3)

        seen = [task.id for page in (first, second, third) for task in page.tasks]
        assert seen == ids[::-1]
        assert third.after == ""


@pytest.mark.parametrize("states", [ACTIVE_STATES, TERMINAL_STATES, (State.DONE, State.RUNNING)])
async def test_a_page_of_some_states_has_just_these(connections, states):
    async with connections:
        registry = (await connections.one()).registry
        for n in range(9):
            task = await registry.add(a_task(id=f"task{n}", state=State.RUNNING))
            if n % 3:
                await registry.change(task.id, task_changes.cancel if n % 2 else DONE)
        wanted = [task.id for task in await listed(registry) if task.state in states]

        found: list[str] = []
        after, is_last = "", False
        while not is_last:
            page = await registry.page(TaskQuery(states), after, most=2)
            found += [task.id for task in page.tasks]
            after, is_last = page.after, not page.after

        assert wanted
        assert found == wanted[::-1]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (TaskQuery(word="SALE"), ["b1", "a1"]),
        (TaskQuery(word="key-2"), ["a2"]),
        (TaskQuery(word="1"), ["b1", "a1"]),
        (TaskQuery(app="shop"), ["a2", "a1"]),
        (TaskQuery(level=Level.LOW), ["b1"]),
        (TaskQuery((State.DONE,), word="a"), ["a2"]),
        (TaskQuery(word="nothing has this"), []),
    ],
)
async def test_a_search_finds_what_fits_each_part_of_it(connections, query, wanted):
    async with connections:
        registry = (await connections.one()).registry
        await registry.add(a_task(id="a1", name="Autumn sale", app="shop"))
        await registry.add(a_task(id="a2", key="key-2", app="shop"))
        await registry.add(a_task(id="b1", name="Sale of old things", level=Level.LOW))
        await registry.change("a2", DONE)

        found = [task.id async for page in pages(registry, query) for task in page]

        assert found == wanted


async def test_of_some_ids_those_that_there_are_are_found(connections):
    async with connections:
        registry = (await connections.one()).registry
        one, other = await registry.add(a_task()), await registry.add(a_task(key="sale"))

        found = await registry.some([one.id, "nobody", other.id])

        assert {task.id for task in found.tasks} == {one.id, other.id}
        assert (await registry.some(["sale"])).tasks == []
        assert (await registry.some([])).tasks == []


async def test_what_ended_is_found_by_its_time_the_longest_ago_first(connections):
    async with connections:
        registry = (await connections.one()).registry
        for n, at_ms in enumerate([3000, 1000, 2000, 9000]):
            task = await registry.add(a_task(id=f"task{n}"))
            ended = replace(task, state=State.DONE, finished_at_ms=at_ms)
            await registry.change(task.id, lambda _, ended=ended: ended)
        await registry.add(a_task(id="runs"))

        async def ended(*asked: int) -> list[str]:
            return [task.id for task in (await registry.ended(*asked)).tasks]

        assert await ended(4000, 10) == ["task1", "task2", "task0"]
        assert await ended(4000, 1, 1) == ["task2"]
        assert await ended(1000, 10) == []


async def test_a_forgotten_task_leaves_nothing_behind(connections):
    async with connections:
        here, there = await connections.two()
        registry = here.registry
        task = await add_ended(registry, key="sale-7", name="autumn")
        await registry.record([Finished(task.id, Kind.DELIVERED, [1, 2, 3])])

        assert await registry.forget(task.id)

        for word in (task.id, "sale-7", "autumn"):
            with pytest.raises(UnknownTask):
                await there.registry.get(word)
        assert await listed(there.registry) == []
        assert (await there.registry.ended(task_changes.now_ms() + 1000, 10)).tasks == []
        [progress] = await there.registry.progress([task.id])
        assert progress.finished == 0
        assert await there.registry.finished(task.id, [1, 2]) == [False, False]
        assert not await registry.forget(task.id)


async def test_a_key_that_was_forgotten_can_be_used_again(connections):
    async with connections:
        registry = (await connections.one()).registry
        old = await add_ended(registry, key="sale-7")
        await registry.forget(old.id)

        new = await registry.add(a_task(key="sale-7"))

        assert new.id != old.id
        assert await registry.get("sale-7") == new


@pytest.mark.parametrize("state", ACTIVE_STATES)
async def test_a_task_that_has_not_ended_is_not_forgotten(connections, state):
    async with connections:
        registry = (await connections.one()).registry
        task = await registry.add(a_task(state=state))

        with pytest.raises(InvalidChange, match=f"{task.id} is {state}.*pushlane cancel"):
            await registry.forget(task.id)

        assert await registry.get(task.id) == task


async def test_who_led_before_forgets_nothing(connections):
    async with connections:
        here, there = await connections.two()
        task = await add_ended(here.registry)
        number = (await here.lease.acquire("janitor", "a", 600)).number
        await here.lease.release("janitor", "a")
        latest = (await there.lease.acquire("janitor", "b", 600)).number

        with pytest.raises(Superseded):
            await here.registry.forget(task.id, Fence("janitor", number))

        assert await here.registry.get(task.id) == task
        assert await there.registry.forget(task.id, Fence("janitor", latest))


async def test_who_follows_the_changes_hears_of_it(connections):
    async with connections:
        here, there = await connections.two()
        task = await here.registry.add(a_task())
        known = await there.registry.changes(0, timeout_s=30)
        await here.registry.change(task.id, task_changes.cancel)
        await here.registry.forget(task.id)

        changes = await there.registry.changes(known.version, timeout_s=30)

        assert list(changes.forgotten) == [task.id]
        assert changes.tasks == []
        assert list((await there.registry.changes(0, timeout_s=30)).forgotten) == []


async def test_a_task_is_forgotten_with_its_lanes_and_its_dead(connections):
    async with connections:
        backend = await connections.one()
        task = await add_ended(backend.registry)
        lanes = [own_lane(task.id), later_lane(own_lane(task.id)), dead_lane(task.id)]
        for lane in lanes:
            await backend.broker.open_lane(lane)

        assert await backend.forget(task)

        assert not {*lanes} & {*await backend.broker.lanes()}


async def test_a_running_task_keeps_its_lanes(connections):
    async with connections:
        backend = await connections.one()
        task = await backend.registry.add(a_task(state=State.RUNNING))
        await backend.broker.open_lane(own_lane(task.id))

        with pytest.raises(InvalidChange):
            await backend.forget(task)

        assert own_lane(task.id) in await backend.broker.lanes()


async def test_a_lane_is_past_an_end_once_all_before_it_is_acked(connections):
    async with connections:
        backend = await connections.one()
        broker = backend.broker
        await broker.open_lane("pool-0")
        empty = await broker.end_of("pool-0")
        assert await broker.is_past("pool-0", empty)
        await broker.publish("pool-0", [b"1"])
        await broker.publish("pool-0", [b"2"])
        end = await broker.end_of("pool-0")
        await broker.publish("pool-0", [b"3"])
        reading = await Reading.of(broker, "pool-0")
        one, two, _ = await reading.take(3)

        assert not await broker.is_past("pool-0", end)
        await broker.ack([two])
        assert not await broker.is_past("pool-0", end)
        await broker.ack([one])
        await until(lambda: broker.is_past("pool-0", end))
        assert not await broker.is_past("pool-0", await broker.end_of("pool-0"))


async def test_a_lane_is_not_past_what_waits_for_its_time(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane("pool-0")
        await broker.publish("pool-0", [b"later"], delay_s=600)

        assert not await broker.is_past("pool-0", await broker.end_of("pool-0"))


async def test_a_lane_that_is_gone_is_past_everything(connections):
    async with connections:
        broker = (await connections.one()).broker
        await broker.open_lane("pool-0")
        await broker.publish("pool-0", [b"1"])
        end = await broker.end_of("pool-0")
        await broker.drop_lane("pool-0", force=True)

        assert await broker.is_past("pool-0", end)
