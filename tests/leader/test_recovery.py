"""What the leader makes good when registry and broker no longer fit together."""

from __future__ import annotations

from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

from pushlane.backends.backend import Backend
from pushlane.core.names import dead_lane, later_lane, own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from tests.core.support import Wrapped, add_task, backend_in
from tests.leader.recovering import GRACE_MS, MINUTE_MS, Recovering


class Forgetful(Wrapped):
    """A registry that has lost its counts this moment."""

    async def counted_since_ms(self) -> int:
        return task_changes.now_ms()


class Asking(Wrapped):
    """A broker that remembers which lanes it was asked to measure."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked: list[str] = []

    async def backlog(self, lane: str) -> int:
        self.asked.append(lane)
        count: int = await self._real.backlog(lane)
        return count


async def test_a_lane_that_no_task_knows_is_dropped_after_a_grace(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        orphan = own_lane(new_task_id())
        await backend.broker.open_lane(orphan)
        recovering = Recovering(backend)

        await recovering.step()
        await recovering.step(GRACE_MS - MINUTE_MS)
        assert orphan in await backend.broker.lanes()

        await recovering.step(MINUTE_MS)
        assert orphan not in await backend.broker.lanes()


async def test_lanes_of_tasks_and_shared_ones_are_never_taken_for_orphans(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend)
        mine = [task.lane, later_lane(task.lane), "pool-0", later_lane("pool-0"), "dead"]
        for lane in mine:
            await backend.broker.open_lane(lane)
        recovering = Recovering(backend)

        await recovering.step()
        await recovering.step(2 * GRACE_MS)

        assert set(mine) <= set(await backend.broker.lanes())


async def test_a_lane_whose_task_comes_to_be_known_in_the_grace_stays(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task_id = new_task_id()
        await backend.broker.open_lane(own_lane(task_id))
        recovering = Recovering(backend)
        await recovering.step()
        task = Task(id=task_id, level="high", lane=own_lane(task_id))
        await backend.registry.add(task)

        await recovering.step(2 * GRACE_MS)

        assert own_lane(task_id) in await backend.broker.lanes()


async def test_a_running_task_without_a_lane_gets_it_anew_and_says_so(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend)
        await backend.broker.drop_lane(task.lane)
        recovering = Recovering(backend)
        recovering.know(task)

        await recovering.step()

        assert task.lane in await backend.broker.lanes()
        assert "missing" in (await backend.registry.get(task.id)).reason


async def test_a_task_on_a_lane_of_another_name_lacks_none(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = Task(id=new_task_id(), level=Level.HIGH, lane="queue-high")
        await backend.broker.open_lane(task.lane)
        await backend.registry.add(task)
        task = await backend.registry.change(task.id, task_changes.start)
        recovering = Recovering(backend)
        recovering.know(task)

        await recovering.step()

        assert (await backend.registry.get(task.id)).reason == ""
        assert own_lane(task.id) not in await backend.broker.lanes()


async def test_a_task_that_nobody_was_left_to_call_done_is_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, other = await add_task(backend, pushes=3), await add_task(backend, pushes=3)
        recovering = Recovering(backend)
        recovering.know(task)
        recovering.know(other)
        await recovering.step()
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2, 3])])
        await backend.registry.record([Finished(other.id, Kind.DELIVERED, [1, 2])])

        await recovering.step(MINUTE_MS)

        assert (await backend.registry.get(task.id)).state is State.DONE
        assert (await backend.registry.get(other.id)).state is State.RUNNING


async def lost_counts(backend: Backend, **options: Any) -> tuple[Task, Recovering]:
    """A task of ten pushes of which four are counted, with an empty lane."""
    task = await add_task(backend, pushes=0, seal=False, **options)
    task = await backend.registry.change(task.id, task_changes.seal(10))
    await backend.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2, 3, 4])])
    recovering = Recovering(with_other(backend, registry=Forgetful(backend.registry)))
    recovering.know(task)
    return task, recovering


async def state_after_looks(backend: Backend, task: Task, recovering: Recovering) -> Task:
    for _ in range(4):
        await recovering.step(2_000)
    return await backend.registry.get(task.id)


async def test_a_task_whose_counts_were_lost_ends_once_nothing_is_left(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, recovering = await lost_counts(backend)

        ended = await state_after_looks(backend, task, recovering)

        assert ended.state is State.DONE
        assert "of its pushes are not accounted for: counts were lost" in ended.reason


async def test_one_that_has_something_left_goes_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, recovering = await lost_counts(backend)
        await backend.broker.open_lane(later_lane(task.lane))
        await backend.broker.publish(later_lane(task.lane), [b"waits"], delay_s=60)

        assert (await state_after_looks(backend, task, recovering)).state is State.RUNNING


async def test_one_that_still_makes_progress_goes_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, recovering = await lost_counts(backend)

        for seq in (5, 6, 7, 8):
            await backend.registry.record([Finished(task.id, Kind.DELIVERED, [seq])])
            await recovering.step(2_000)

        assert (await backend.registry.get(task.id)).state is State.RUNNING


async def test_lanes_are_asked_about_only_while_counts_stand_still_and_then_seldom(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        asking = Asking(backend.broker)
        task, recovering = await lost_counts(with_other(backend, broker=asking))
        await backend.broker.publish(task.lane, [b"left"])
        for seq in (5, 6, 7):
            await recovering.step(2_000)
            await backend.registry.record([Finished(task.id, Kind.DELIVERED, [seq])])
        await recovering.step(2_000)
        assert asking.asked == []

        for _ in range(15):
            await recovering.step(2_000)

        assert asking.asked == [task.lane]


async def test_a_store_that_keeps_its_counts_ends_nothing_early(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, _ = await lost_counts(backend)
        recovering = Recovering(backend)
        recovering.know(task)

        assert (await state_after_looks(backend, task, recovering)).state is State.RUNNING


async def test_dead_pushes_stay_for_as_long_as_their_task_is_known(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        ended = await add_task(backend)
        await backend.registry.change(ended.id, task_changes.finish(State.DONE))
        await backend.registry.change(ended.id, task_changes.lane_dropped)
        kept, orphan = dead_lane(ended.id), dead_lane(new_task_id())
        for lane in (kept, orphan):
            await backend.broker.open_lane(lane)
        recovering = Recovering(backend)

        await recovering.step()
        await recovering.step(2 * GRACE_MS)

        left = await backend.broker.lanes()
        assert (kept in left, orphan in left) == (True, False)
