"""Tasks that start later: they wait in nobody's way, and go when their time has come."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pushlane.core.task import Level, State, Task
from pushlane.dispatcher.lanes import StartTimer
from pushlane.model import task_changes
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    drain,
    until_state,
)

NOW_MS = 2_000_000_000_000


class Clock:
    """Stands still until it is set."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


async def test_a_scheduled_task_waits_for_its_time_and_then_goes_without_any_change(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        clock = Clock(NOW_MS)
        later = await add_task(backend, Level.HIGH, 50, not_before_ms=NOW_MS + 1)
        now = await add_task(backend, Level.LOW, 200)
        sink = MemorySink()

        async with dispatching(backend, sink, settings, clock_ms=clock):
            await until_state(backend, now, State.DONE)
            assert not sink.pushes(later)
            clock.now_ms = NOW_MS + 1
            await until_state(backend, later, State.DONE)

        assert sorted(sink.pushes(later)) == [(later.id, seq) for seq in range(1, 51)]


async def test_a_scheduled_task_that_is_paused_waits_for_its_resume_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        clock = Clock(NOW_MS)
        task = await add_task(backend, pushes=5, not_before_ms=NOW_MS + 1)
        await backend.pause(task.id)
        sink = MemorySink()

        async with dispatching(backend, sink, settings, clock_ms=clock):
            clock.now_ms = NOW_MS + 1
            other = await add_task(backend, pushes=5)
            await until_state(backend, other, State.DONE)
            assert not sink.pushes(task)
            await backend.registry.change(task.id, task_changes.resume)
            await until_state(backend, task, State.DONE)


async def test_a_scheduled_task_that_is_cancelled_sends_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        clock = Clock(NOW_MS)
        task = await add_task(backend, pushes=5, not_before_ms=NOW_MS + 1)
        sink = MemorySink()

        async with dispatching(backend, sink, settings, clock_ms=clock):
            await backend.registry.change(task.id, task_changes.cancel)
            clock.now_ms = NOW_MS + 1
            other = await add_task(backend, pushes=5)
            await until_state(backend, other, State.DONE)

        assert not sink.pushes(task)


async def test_a_drain_does_not_wait_for_what_starts_later(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        later = await add_task(backend, pushes=5, not_before_ms=task_changes.now_ms() + 3_600_000)
        now = await add_task(backend, pushes=5)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert (len(sink.pushes(now)), sink.pushes(later)) == (5, [])


async def test_starts_come_in_the_order_of_their_times_and_once_each() -> None:
    clock = Clock(NOW_MS)
    schedule = StartTimer(clock)
    started: list[str] = []
    last = asyncio.Event()

    def start(task_id: str) -> None:
        started.append(task_id)
        if task_id == "last":
            last.set()

    for name, in_ms in (("last", 3), ("first", 1), ("first", 1), ("second", 2)):
        assert schedule.waits(task(name, NOW_MS + in_ms))
    clock.now_ms += 3
    running = asyncio.create_task(schedule.run(start))
    async with asyncio.timeout(DEADLINE_S):
        await last.wait()
    running.cancel()
    assert started == ["first", "second", "last"]


async def test_a_start_that_was_moved_comes_at_its_new_time_alone() -> None:
    clock = Clock(NOW_MS)
    schedule = StartTimer(clock)
    started: list[str] = []
    last = asyncio.Event()

    def start(task_id: str) -> None:
        started.append(task_id)
        if task_id == "last":
            last.set()

    for name in ("later", "at once"):
        assert schedule.waits(task(name, NOW_MS + 1))
    assert schedule.waits(task("later", NOW_MS + 3))
    assert not schedule.waits(task("at once", NOW_MS))
    assert schedule.waits(task("last", NOW_MS + 2))
    clock.now_ms += 2
    running = asyncio.create_task(schedule.run(start))
    async with asyncio.timeout(DEADLINE_S):
        await last.wait()
    running.cancel()
    assert started == ["last"]


def test_a_task_whose_time_has_come_does_not_wait() -> None:
    assert not StartTimer(Clock(NOW_MS)).waits(task("due", NOW_MS))


def task(name: str, not_before_ms: int) -> Task:
    return Task(id=name, level=Level.HIGH, lane=f"task-{name}", not_before_ms=not_before_ms)
