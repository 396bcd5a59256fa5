"""A task that the registry does not have just now is not over: nothing of it is dropped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.ports import FoundTasks
from pushlane.core.errors import TaskInDoubt
from pushlane.core.names import later_lane, own_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher.tasks import Doubts
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.util.errors import UnknownTask
from tests.backends.test_contact import Clock
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
)
from tests.leader.recovering import GRACE_MS, Recovering

TWO_MINUTES_S = 121.0


class Lossy(Wrapped):
    """A registry that has lost some tasks for now, and may get them again. `asked` counts looks.

    Once `forgotten` is set, it has found out that they are gone for good.
    """

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.lost: set[str] = set()
        self.forgotten = False
        self.asked = 0
        self.looked_into = 0

    async def get(self, task_id: str) -> Task:
        if task_id in self.lost:
            raise UnknownTask(f"there is no task {task_id}")
        task: Task = await self._real.get(task_id)
        return task

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        self.asked += 1
        found: FoundTasks = await self._real.some([one for one in task_ids if one not in self.lost])
        return found

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        self.looked_into += 1
        found = await self.some(task_ids)
        if not self.forgotten:
            return found
        gone = [one for one in task_ids if one in self.lost]
        return found._replace(forgotten=[*found.forgotten, *gone])


def lossy(backend: Backend) -> tuple[Backend, Lossy]:
    registry = Lossy(backend.registry)
    return with_other(backend, registry=registry), registry


async def publish_of_nobody(backend: Backend, pushes: int = 1) -> str:
    """Pushes on the pool's lane of a task that was never added."""
    task_id = new_task_id()
    await backend.broker.open_lane("pool-0")
    bodies = [encode(Push(task_id, seq, f"to-{seq}")) for seq in range(1, pushes + 1)]
    await backend.broker.publish("pool-0", bodies)
    return task_id


async def test_its_pushes_on_a_shared_lane_wait_on_the_later_lane_and_hold_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (real, settings):
        backend, registry = lossy(real)
        task_id = await publish_of_nobody(real, 40)
        registry.lost.add(task_id)
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            other = Task(id=new_task_id(), level=Level.LOW, lane="pool-0", first_lane="pool-0")
            await real.registry.add(other)
            await real.registry.change(other.id, task_changes.start)
            bodies = [encode(Push(other.id, seq, "to")) for seq in range(1, 11)]
            await real.broker.publish("pool-0", bodies)
            await real.registry.change(other.id, task_changes.seal(10))
            await until_state(real, other, State.DONE)
            await until(lambda: dispatcher.stats.in_doubt == 40)
            await until(lambda: registry.looked_into)

        waiting = await real.broker.delayed(later_lane("pool-0"))
        assert waiting is not None
        assert waiting.messages == 40
        now_ms = task_changes.now_ms()
        assert waiting.last_ms < now_ms + 60_000
        assert waiting.first_ms > now_ms - 60_000
        assert await real.broker.backlog("pool-0") == 0
        assert sink.pushes() == [(other.id, seq) for seq in range(1, 11)]
    told = [one for one in caplog.records if getattr(one, "action", "") == "task_in_doubt"]
    assert len(told) == 1


async def test_they_are_dropped_once_it_is_known_that_it_was_forgotten(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (real, settings):
        backend, registry = lossy(real)
        task_id = await publish_of_nobody(real)
        registry.lost.add(task_id)
        registry.forgotten = True
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.in_doubt)
            await until(lambda: not dispatcher._lines[0].lookups.doubts.count())
            await real.broker.publish("pool-0", [encode(Push(task_id, 2, "to-2"))])
            await until(lambda: sum(dispatcher.stats.outcomes.values()) == 1)

        assert sink.received == []
        assert await real.broker.backlog("pool-0") == 0


async def test_its_own_lane_is_left_and_read_again_until_the_registry_has_it(
    tmp_path: Path,
) -> None:
    """A push of a lost task on a lane that another task has alone: nobody drops it."""
    async with backend_in(tmp_path) as (real, settings):
        backend, registry = lossy(real)
        host = await add_task(real, pushes=2, seal=False)
        lost = new_task_id()
        registry.lost.add(lost)
        await real.broker.publish(host.lane, [encode(Push(lost, 1, "to-1"))])
        sink, clock = MemorySink(), Clock()

        async with dispatching(backend, sink, settings, clock_s=clock) as dispatcher:
            await until(lambda: dispatcher.stats.in_doubt and not dispatcher.reads(host.lane))
            assert [one.why for one in dispatcher._reports[0].waiting()] == ["doubt"]
            assert await real.broker.backlog(host.lane) == 1
            registry.forgotten = True
            clock.now_s += 61.0
            await until(lambda: not dispatcher._lines[0].lookups.doubts.count())
            clock.now_s += 61.0
            await until(lambda: sum(dispatcher.stats.outcomes.values()) == 3)

        assert await real.broker.backlog(host.lane) == 0
        assert sink.pushes() == [(host.id, 1), (host.id, 2)]


async def test_a_retry_whose_lane_is_missing_waits_until_its_task_is_known(tmp_path: Path) -> None:
    def busy(given: Delivery) -> Outcome:
        return Outcome.retry("busy", after_s=0.01) if given.push.attempt == 1 else DELIVERED

    async with backend_in(tmp_path) as (real, settings):
        backend, registry = lossy(real)
        task = await add_task(real, pushes=1)
        sink = MemorySink(busy)
        sink.gate.clear()

        async with dispatching(backend, sink, settings):
            await sink.until_received(1)
            await real.broker.drop_lane(task.lane, force=True)
            registry.lost.add(task.id)
            sink.gate.set()
            await until(lambda: registry.looked_into > 2)
            assert (await real.registry.progress([task.id]))[0].finished == 0
            registry.lost.clear()
            await real.broker.open_lane(task.lane)
            await until_state(real, task, State.DONE)

        [progress] = await real.registry.progress([task.id])
        assert progress.delivered == 1
        assert progress.dropped == 0


async def test_its_lanes_are_no_orphans(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (real, _):
        backend, registry = lossy(real)
        task = await add_task(real)
        registry.lost.add(task.id)
        recovering = Recovering(backend)

        await recovering.step()
        await recovering.step(2 * GRACE_MS)

        assert task.lane in await real.broker.lanes()


async def test_a_leader_that_was_superseded_meanwhile_drops_no_lane(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        lane = own_lane(new_task_id())
        await backend.broker.open_lane(lane)
        await backend.broker.publish(lane, [b"one", b"two"])
        recovering = Recovering(backend)
        recovering.leads = False
        await recovering.step()
        await recovering.step(2 * GRACE_MS)
        assert lane in await backend.broker.lanes()

        recovering.leads = True
        with caplog.at_level(logging.WARNING):
            await recovering.step(2 * GRACE_MS)

        assert lane not in await backend.broker.lanes()
    assert "2 messages" in caplog.text


async def test_a_task_that_is_found_nowhere_is_no_reason_to_open_its_lane_anew(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (real, _):
        backend, registry = lossy(real)
        task = await add_task(real)
        await real.broker.drop_lane(task.lane)
        registry.lost.add(task.id)
        recovering = Recovering(backend)
        recovering.know(task)

        await recovering.step()

        assert task.lane not in await real.broker.lanes()


async def test_who_knows_that_a_task_was_added_is_told_to_wait(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (real, _):
        backend, registry = lossy(real)
        task = await add_task(real)
        registry.lost.add(task.id)

        for ask in (backend.find, backend.known):
            with pytest.raises(TaskInDoubt, match=task.id):
                await ask(task.id)

        registry.forgotten = True
        assert await backend.find(task.id) is None
        with pytest.raises(UnknownTask, match="forgotten"):
            await backend.known(task.id)


def test_the_longer_a_task_is_in_doubt_the_longer_its_pushes_wait() -> None:
    clock = Clock()
    doubts = Doubts(clock)

    waits = []
    for _ in range(8):
        waits.append(doubts.wait_s("a"))
        clock.now_s += waits[-1]

    assert all(10.0 <= wait_s <= 60.0 for wait_s in waits)
    assert waits[0] <= 12.5
    assert waits[-1] >= 48.0
    assert doubts.count() == 1
    clock.now_s += TWO_MINUTES_S
    assert doubts.count() == 0
