"""What is left of each task, and at which sink, as registry and broker tell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from pushlane.backends.backend import Backend
from pushlane.core.names import lane_at, later_lane, own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, Progress, State, Task
from pushlane.dispatcher.leader.backlogs import Backlogs, TaskBacklog
from pushlane.model import task_changes
from tests.core.support import Wrapped, add_task, backend_in, bundle_of

LATER_MS = 5_000
SUBMITTED = {"state": State.SUBMITTED}


class Looking:
    """Looks at a store at a time that a test sets."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.now_ms = 1_000
        self.tasks: dict[str, Task] = {}
        self.backlogs = Backlogs(backend, self.tasks, lambda: self.now_ms)

    async def know(self, *tasks: Task) -> None:
        for task in tasks:
            self.tasks[task.id] = await self.backend.registry.get(task.id)

    async def look(self) -> dict[tuple[str, str], TaskBacklog]:
        return {(one.task.id, one.sink): one for one in await self.backlogs.look()}

    async def one(self) -> TaskBacklog:
        [found] = (await self.look()).values()
        return found


@asynccontextmanager
async def looking(folder: Path) -> AsyncIterator[Looking]:
    async with backend_in(folder) as (backend, _):
        yield Looking(backend)


class CountingRegistry(Wrapped):
    """Remembers of how many tasks it was asked at a time."""

    def __init__(self, real: object) -> None:
        super().__init__(real)
        self.asked: list[str] = []

    async def progress(self, task_ids: Sequence[str]) -> Sequence[Progress]:
        self.asked += task_ids
        return [Progress(task_id, delivered=1) for task_id in task_ids]


async def test_of_a_sealed_task_it_is_what_no_process_has_finished(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, pushes=10)
        await at.know(task)
        await at.backend.registry.record([Finished(task.id, Kind.DEAD, [1, 2, 2, 3])])

        assert (await at.one()).left == 7


async def test_of_a_task_that_is_not_sealed_it_is_what_its_lane_may_hold(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, pushes=0, seal=False, is_fed=True, bundle=4)
        await at.backend.broker.publish(task.lane, [bundle_of(task, [1, 2, 3, 4])] * 3)
        await at.know(task)

        assert (await at.one()).left == 12


async def test_streams_on_a_shared_lane_have_what_sealed_tasks_leave_of_it(tmp_path: Path) -> None:
    """Each alone would count what is on the lane once more."""
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, Level.LOW, pushes=7, seal=False, is_fed=True)
        await at.know(task)
        stream = at.tasks[task.id]
        for name, fields in (("other", {}), ("sealed", {"total": 3}), ("new", SUBMITTED)):
            at.tasks[name] = with_fields(stream, id=name, **fields)
        found = {task_id: one.left for (task_id, _), one in (await at.look()).items()}

        assert found == {task.id: 2, "other": 2, "sealed": 3, "new": 0}


async def test_a_stream_waits_since_its_lane_was_seen_empty(tmp_path: Path) -> None:
    """It was submitted long before what waits of it now."""
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, pushes=0, seal=False, is_fed=True)
        await at.know(task)
        await at.look()
        at.now_ms = LATER_MS
        await at.backend.broker.publish(task.lane, [bundle_of(task, [1])])

        assert (await at.one()).since_ms == LATER_MS
        at.now_ms *= 2
        assert (await at.one()).since_ms == LATER_MS


async def test_what_waits_for_its_time_is_told_apart(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, pushes=10)
        lane = later_lane(own_lane(task.id))
        await at.backend.broker.open_lane(lane)
        await at.backend.registry.change(task.id, task_changes.later_opened)
        await at.backend.broker.publish(lane, [bundle_of(task, [n]) for n in (1, 2)], delay_s=60)
        await at.know(task)

        found = await at.one()
        assert (found.left, found.later, found.may_go) == (10, 2, 8)


async def test_what_has_gone_on_is_at_the_next_sink(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        task = await add_task(at.backend, pushes=10, sinks=("fcm", "sms"))
        lane = lane_at(task.id, "sms")
        await at.backend.broker.open_lane(lane)
        await at.backend.registry.change(task.id, task_changes.reached("sms"))
        await at.backend.broker.publish(lane, [bundle_of(task, [n]) for n in (1, 2, 3)])
        await at.know(task)

        found = await at.look()
        assert found[task.id, "fcm"].left == 7
        assert found[task.id, "sms"].left == 3


async def test_of_very_many_some_are_counted_at_a_time_and_all_in_the_end(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        registry = CountingRegistry(at.backend.registry)
        backlogs = Backlogs(
            replace(at.backend, registry=registry),
            at.tasks,
            lambda: at.now_ms,  # type: ignore[arg-type]
        )
        for number in range(12_000):
            task = Task(id=f"t{number}", level=Level.HIGH, lane=own_lane(f"t{number}"), total=3)
            at.tasks[task.id] = task
        for _ in range(3):
            before = len(registry.asked)
            found = await backlogs.look()
            assert len(registry.asked) - before == 5_000

        assert {one.left for one in found} == {2}
        assert set(registry.asked) == set(at.tasks)


async def test_what_is_over_is_forgotten(tmp_path: Path) -> None:
    async with looking(tmp_path) as at:
        await at.know(await add_task(at.backend))
        await at.look()
        at.tasks.clear()

        assert await at.look() == {}
        assert not at.backlogs._finished
