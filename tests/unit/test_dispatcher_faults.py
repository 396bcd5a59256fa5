"""The dispatcher when something goes wrong: no push is lost, nobody else waits, and it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

from dispatcher.completion import Completion
from dispatcher.janitor import Janitor
from lanes import life
from lanes.backend import Backend
from lanes.errors import TaskConflict, Unreachable
from lanes.settings import Settings
from lanes.task import Progress, State, Task
from tests.unit.dispatching import (
    add_task,
    in_backend,
    until_state,
    until_task,
)


class Wrapped:
    """A real adapter, in all but what a subclass changes."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class SlowCounts(Wrapped):
    """A registry whose first answer about progress is held back after it was read."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def progress(self, task_ids: Sequence[str]) -> Sequence[Progress]:
        result: Sequence[Progress] = await self._real.progress(task_ids)
        self.asked.set()
        await self.answer.wait()
        return result


def test_a_task_sealed_while_counts_are_being_read_is_done_too(tmp_path: Path) -> None:
    async def work(backend: Backend, settings: Settings) -> None:
        tasks = {task.id: task for task in [await add_task(backend, pushes=0) for _ in range(2)]}
        first, second = tasks.values()
        registry = SlowCounts(backend.registry)
        completion = Completion(registry, tasks.get, lambda _: None)
        running = asyncio.create_task(completion.run())

        completion.on_task(first)
        await registry.asked.wait()
        completion.on_task(second)
        registry.answer.set()

        await until_state(backend, first, State.DONE)
        await until_state(backend, second, State.DONE)
        running.cancel()

    in_backend(tmp_path, work)


@asynccontextmanager
async def tidying(backend: Backend, *tasks: Task) -> AsyncIterator[None]:
    """A janitor at work that has heard of these tasks."""
    janitor = Janitor(backend, "one")
    for task in tasks:
        janitor.on_task(task)
    running = asyncio.create_task(janitor.run())
    yield
    running.cancel()


class FailsOnce(Wrapped):
    """An adapter one of whose methods raises, the first time it is called."""

    def __init__(self, real: Any, method: str, error: Exception) -> None:
        super().__init__(real)
        self._method = method
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = ""
            return self._fail
        return super().__getattr__(name)

    async def _fail(self, *_: Any) -> None:
        raise self._error


async def ended_task(backend: Backend) -> Task:
    return await backend.registry.change((await add_task(backend)).id, life.cancel)


def test_a_take_over_that_failed_is_made_up_for(tmp_path: Path) -> None:
    async def work(backend: Backend, settings: Settings) -> None:
        old = await ended_task(backend)
        flaky = FailsOnce(backend.registry, "list", Unreachable("away"))

        async with tidying(with_other(backend, registry=flaky)):
            await until_task(backend, old, lambda now: now.lane_dropped)

    in_backend(tmp_path, work)


def test_a_change_that_others_stand_in_the_way_of_is_tried_again(tmp_path: Path) -> None:
    async def work(backend: Backend, settings: Settings) -> None:
        task = await ended_task(backend)
        flaky = FailsOnce(backend.registry, "change", TaskConflict("busy"))

        async with tidying(with_other(backend, registry=flaky), task):
            await until_task(backend, task, lambda now: now.lane_dropped)

    in_backend(tmp_path, work)


class StuckLane(Wrapped):
    """A broker that can never drop one of its lanes."""

    def __init__(self, real: Any, lane: str) -> None:
        super().__init__(real)
        self._lane = lane

    async def drop_lane(self, lane: str) -> bool:
        if lane == self._lane:
            raise Unreachable(f"lane {lane} is broken")
        dropped: bool = await self._real.drop_lane(lane)
        return dropped


def test_a_lane_that_cannot_be_dropped_keeps_no_other(tmp_path: Path) -> None:
    async def work(backend: Backend, settings: Settings) -> None:
        stuck, other = await ended_task(backend), await ended_task(backend)
        broker = StuckLane(backend.broker, stuck.lane)

        async with tidying(with_other(backend, broker=broker), stuck, other):
            await until_task(backend, other, lambda now: now.lane_dropped)

    in_backend(tmp_path, work)
