"""What the leader forgets, and when: with a clock of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dispatcher.forgetting import Forgetting
from dispatcher.half_made import HalfMade
from dispatcher.passed import Passed
from dispatcher.recovery import GRACE_MS
from lanes import life
from lanes.backend import Backend
from lanes.leader import Leader
from lanes.naming import DEAD_LANE, DEAD_LEASE, dead_lane, own_lane, submit_lease
from lanes.push import DeadPush, Push, encode, encode_dead
from lanes.search import listed
from lanes.task import Level, State, Task
from tests.unit.dispatcher.recovering import DEAD_RETENTION_S, MINUTE_MS, Clock, Recovering
from tests.unit.dispatcher.support import Wrapped, add_task, backend_in

DAY_S = 86_400.0
DAY_MS = 86_400_000


class Leading:
    """A leader's forgetting by hand: `step` is what happens after so many milliseconds."""

    def __init__(self, backend: Backend, settings: Any) -> None:
        self.clock = Clock()
        leader = Leader(backend.lease, "janitor", "one")
        self._forgetting = Forgetting(backend, leader, settings, self.clock)

    async def step(self, later_ms: int = 0) -> None:
        self.clock.now_ms += later_ms
        await self._forgetting.step()


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[tuple[Backend, Leading]]:
    kept = {"task_retention_s": 7 * DAY_S, "dead_retention_s": DAY_S}
    async with backend_in(folder, **kept) as (backend, settings):
        yield backend, Leading(backend, settings)


async def ended(backend: Backend, *, tidy: bool = True, **fields: Any) -> Task:
    task = await add_task(backend, pushes=1, **fields)
    task = await backend.registry.change(task.id, life.finish(State.DONE))
    if not tidy:
        return task
    await backend.broker.drop_lane(task.lane)
    return await backend.registry.change(task.id, life.lane_dropped)


async def ids(backend: Backend) -> set[str]:
    return {task.id for task in await listed(backend.registry)}


async def test_a_task_is_forgotten_when_its_time_is_over(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend)
        running = await add_task(backend)

        await leader.step(7 * DAY_MS - MINUTE_MS)
        assert await ids(backend) == {task.id, running.id}
        await leader.step(2 * MINUTE_MS)

        assert await ids(backend) == {running.id}


async def test_one_whose_lane_is_still_there_stays_and_holds_up_no_other(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        stuck = await ended(backend, tidy=False)
        others = [await ended(backend) for _ in range(3)]

        await leader.step(8 * DAY_MS)

        assert await ids(backend) == {stuck.id}
        assert others


async def test_more_than_a_page_of_stuck_ones_holds_up_no_other(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        for n in range(300):
            task = Task(id=f"stuck{n}", level=Level.HIGH, lane=f"task-stuck{n}")
            await backend.registry.add(replace(task, state=State.DONE, finished_at_ms=1))
        last = await ended(backend)

        await leader.step(8 * DAY_MS)

        assert last.id not in await ids(backend)


async def test_a_retention_of_its_own_that_is_longer_is_kept_to(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend, retention_s=30 * DAY_S)

        await leader.step(29 * DAY_MS)
        assert await ids(backend) == {task.id}
        await leader.step(2 * DAY_MS)

        assert await ids(backend) == set()


async def test_who_does_not_lead_forgets_nothing(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend)
        await backend.lease.acquire("janitor", "another", 3600)

        await leader.step(8 * DAY_MS)

        assert await ids(backend) == {task.id}


def dead(task_id: str, seq: int, died_at_ms: int) -> bytes:
    return encode_dead(
        DeadPush(task_id, seq, 5, "HTTP 410", died_at_ms, encode(Push(task_id, seq, "somebody")))
    )


async def test_old_dead_pushes_of_a_shared_lane_are_purged(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        now = leader.clock.now_ms
        await backend.broker.open_lane(DEAD_LANE)
        ages = [3 * DAY_MS, 2 * DAY_MS, 0]
        await backend.broker.publish(
            DEAD_LANE, [dead("t", n, now - age) for n, age in enumerate(ages, start=1)]
        )

        await leader.step()

        assert await backend.broker.backlog(DEAD_LANE) == 1


async def test_who_looks_through_the_dead_is_not_disturbed(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        await backend.broker.open_lane(DEAD_LANE)
        await backend.broker.publish(DEAD_LANE, [dead("t", 1, 1)])
        await backend.lease.acquire(DEAD_LEASE, "a command", 3600)

        await leader.step()
        assert await backend.broker.backlog(DEAD_LANE) == 1
        await backend.lease.release(DEAD_LEASE, "a command")
        await leader.step(MINUTE_MS)

        assert await backend.broker.backlog(DEAD_LANE) == 0


async def test_dead_pushes_of_a_lane_of_their_own_go_after_their_time(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await backend.broker.open_lane(dead_lane(task.id))
        recovering = Recovering(backend)

        await recovering.step(round(DEAD_RETENTION_S * 1000) - MINUTE_MS)
        await recovering.step(2 * MINUTE_MS)
        assert dead_lane(task.id) in await backend.broker.lanes()
        await recovering.step(GRACE_MS)

        assert dead_lane(task.id) not in await backend.broker.lanes()


class Watching:
    """A look at half-made tasks by hand."""

    def __init__(self, backend: Backend) -> None:
        self.clock = Clock()
        self._backend = backend
        self._half_made = HalfMade(backend, self._change, DAY_S, self.clock)

    async def _change(self, task: Task, edit: life.Edit) -> None:
        self._half_made.on_task(await self._backend.registry.change(task.id, edit))

    async def step(self, task: Task, later_ms: int) -> Task:
        self.clock.now_ms += later_ms
        self._half_made.on_task(await self._backend.registry.get(task.id))
        await self._half_made.step()
        return await self._backend.registry.get(task.id)


async def half_made(backend: Backend) -> Task:
    return await add_task(backend, pushes=1, seal=False, created_at_ms=life.now_ms())


async def test_a_half_made_task_is_marked_and_ends_when_nobody_comes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend)

        assert (await watching.step(task, 1_000)).stalled_at_ms == 0
        marked = await watching.step(task, MINUTE_MS)
        assert marked.stalled_at_ms == watching.clock.now_ms
        assert (await watching.step(task, DAY_MS - MINUTE_MS)).state is State.RUNNING

        gone = await watching.step(task, MINUTE_MS)
        assert (gone.state, "did not come back" in gone.reason) == (State.EXPIRED, True)


async def test_one_whose_submit_runs_again_is_not_counted_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend)
        await watching.step(task, MINUTE_MS)
        await backend.lease.acquire(submit_lease(task.id), "a submit", 3600)

        assert (await watching.step(task, DAY_MS)).stalled_at_ms == 0
        await backend.lease.release(submit_lease(task.id), "a submit")
        await watching.step(task, MINUTE_MS)

        assert (await watching.step(task, DAY_MS - MINUTE_MS)).state is State.RUNNING


async def test_a_task_that_is_complete_is_never_half_made(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await add_task(backend), Watching(backend)

        assert (await watching.step(task, DAY_MS)).stalled_at_ms == 0


class Counting(Wrapped):
    """A broker that counts the looks at the ends of its lanes."""

    looks = 0

    async def end_of(self, lane: str) -> Any:
        self.looks += 1
        return await self._real.end_of(lane)


async def test_a_shared_lane_is_passed_once_what_was_there_at_the_end_is_acked(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        broker, clock = Counting(backend.broker), Clock()
        task = Task(id="a", level=Level.LOW, lane="pool-0", first_lane="pool-0")
        passed = Passed(broker, clock)
        for _ in range(2):
            await broker.open_lane("pool-0")
            await broker.publish("pool-0", [b"of the task"])
        reader = await broker.read("pool-0", lambda _: None)
        ended_ms = clock.now_ms

        await passed.look([(task, ended_ms)])
        assert not passed.is_past(task, ended_ms)
        await reader.close()
        await drop_all(broker)
        await broker.publish("pool-0", [b"of another task"])
        await passed.look([(task, ended_ms)])

        assert passed.is_past(task, ended_ms)
        clock.now_ms += 1
        assert not passed.is_past(task, clock.now_ms)


async def drop_all(broker: Any) -> None:
    """Take the lane away with all on it, and make it anew."""
    await broker.drop_lane("pool-0", force=True)
    await broker.open_lane("pool-0")


async def test_a_task_with_a_lane_of_its_own_waits_for_none(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        broker = Counting(backend.broker)
        task = Task(id="a", level=Level.HIGH, lane=own_lane("a"), first_lane=own_lane("a"))
        passed = Passed(with_other(backend, broker=broker).broker, Clock())

        await passed.look([(task, 1)])

        assert passed.is_past(task, 1)
        assert broker.looks == 0
