"""The dispatcher when something goes wrong: no push is lost, nobody else waits, and it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dispatcher.completion import Completion
from lanes.backend import Backend
from lanes.settings import Settings
from lanes.task import Progress, State
from tests.unit.dispatching import (
    add_task,
    in_backend,
    until_state,
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
