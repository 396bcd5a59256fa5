"""Recovery with a clock of the test's own, as a leader would run it."""

from __future__ import annotations

from pushlane.backends.backend import Backend
from pushlane.core.task import Task
from pushlane.dispatcher.leader.recovery import GRACE_S, Recovery
from pushlane.model import task_changes

MINUTE_MS = 60_000
GRACE_MS = round(GRACE_S * 1000)
DEAD_RETENTION_S = 86_400.0


class Clock:
    """Unix milliseconds, and the same as a monotonic clock in seconds."""

    def __init__(self) -> None:
        self.now_ms = task_changes.now_ms()

    def __call__(self) -> int:
        return self.now_ms

    def seconds(self) -> float:
        return self.now_ms / 1000


class Recovering:
    """A recovery by hand: `step` is what happens after so many milliseconds."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._clock = Clock()
        self._recovery = Recovery(
            backend, self._change, self._leads, DEAD_RETENTION_S, self._clock, self._clock.seconds
        )
        self.leads = True

    async def _leads(self) -> bool:
        return self.leads

    def know(self, task: Task) -> None:
        self._recovery.on_task(task)

    async def step(self, later_ms: int = 0) -> None:
        self._clock.now_ms += later_ms
        await self._recovery.step()

    async def _change(self, task: Task, edit: task_changes.Edit) -> None:
        self._recovery.on_task(await self._backend.registry.change(task.id, edit))
