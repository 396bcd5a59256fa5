"""One look at the backlog serves all who ask; of many tasks it is at most two seconds old."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.core.task import Level, State, Task
from pushlane.diagnosis import look
from pushlane.diagnosis.look import backlog

TASK = Task(id="a", level=Level.HIGH, lane="task-a", state=State.RUNNING, total=9)


class Clock(SimpleNamespace):
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(look, "time", clock)
    monkeypatch.setattr(look, "_MANY", 1)
    return clock


async def quota(backend: Backend, task: Task | None = None) -> int:
    [one] = (await backlog(backend, task)).standings
    return one.task.quota


async def set_quota(backend: Backend, quota: int) -> Task:
    return await backend.registry.change("a", lambda task: replace(task, quota=quota))


async def test_who_asks_within_two_seconds_shares_a_look(clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(TASK)
        first, second = await asyncio.gather(backlog(backend), backlog(backend))
        assert first is second
        await set_quota(backend, 7)
        clock.now_s += 0.9
        assert await backlog(backend) is first
        clock.now_s += 1.1
        assert await quota(backend) == 7


async def test_the_next_look_is_made_while_the_last_is_still_good(clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(TASK)
        assert await quota(backend) == 1
        await set_quota(backend, 7)
        clock.now_s += 1.5
        assert await quota(backend) == 1  # nobody waits for the next
        [making] = [one for one in asyncio.all_tasks() if one.get_name() == "look"]
        await making
        assert await quota(backend) == 7
        assert (await backlog(backend)).flows == {}


async def test_a_task_that_has_changed_is_looked_at_anew(clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(TASK)
        assert await quota(backend) == 1
        changed = await set_quota(backend, 7)
        assert await quota(backend, changed) == 7
        assert await quota(backend) == 7


async def test_of_few_tasks_each_look_is_new(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_MANY", 2)
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(TASK)
        assert await quota(backend) == 1
        await set_quota(backend, 7)
        assert await quota(backend) == 7
