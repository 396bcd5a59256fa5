"""Keeps a backlog: writes task after task while faults go on, and knows what it has written.

Each step is tried again until it holds, as a producer does; a batch sent twice is kept once by the
broker. Levels take turns; low tasks share the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TypeVar

from bench.backlog import BUNDLE
from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import DEFAULT_SINK, own_lane, pool_lane
from pushlane.core.ports import Source
from pushlane.core.push import Push, encode
from pushlane.core.task import DeliveryMode, Level, OnUnknown, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.wire import packed

_AGAIN_S = 0.1
_PUBLISH_AT_ONCE = 500
_BODY = "x" * 150

Result = TypeVar("Result")


@dataclass(frozen=True)
class Mode:
    """The promise of a row's tasks, by the `name` that the table has for it.

    With others `among` it, tasks take turns with those, in one stream.
    """

    name: str
    delivery: DeliveryMode
    on_unknown: OnUnknown = OnUnknown.RESEND
    honour: bool = False
    among: tuple[Mode, ...] = ()

    @property
    def is_strict(self) -> bool:
        """Tell whether a push that may have arrived is never sent again."""
        return self.delivery is DeliveryMode.AT_MOST_ONCE


class Feeder:
    """Writes tasks of `pushes` each to a `sink`. `totals` holds every push that a task was sealed
    with, `lanes` where they are, `modes` what each promises.
    """

    def __init__(
        self, backend: Backend, pool_lanes: int, mode: Mode, pushes: int, attempts: int, sink: str
    ) -> None:
        self._backend = backend
        self._pool_lanes = pool_lanes
        self._modes = cycle(mode.among or (mode,))
        self._pushes = pushes
        self._attempts = attempts
        self._sink = sink
        self._levels = cycle(Level)
        self.totals: dict[str, int] = {}
        self.lanes: dict[str, str] = {}
        self.modes: dict[str, Mode] = {}

    @property
    def written(self) -> int:
        return sum(self.totals.values())

    def totals_of(self, mode: Mode) -> dict[str, int]:
        return {task: total for task, total in self.totals.items() if self.modes[task] is mode}

    async def write(self) -> str:
        """One more task; its id, once all of it is durable."""
        task_id = await self.begin()
        await self.seal(task_id)
        return task_id

    async def begin(self, start_in_s: float = 0.0) -> str:
        """One more task, all of which is published; it is not sealed."""
        start_ms = task_changes.now_ms() + round(start_in_s * 1000) if start_in_s else 0
        level = next(self._levels)
        task_id = new_task_id()
        self.modes[task_id] = next(self._modes)
        lane = self._lane(task_id, level)
        await self._patiently(lambda: self._open(task_id, level, lane, start_ms))
        self.totals[task_id] = self._pushes
        self.lanes[task_id] = lane
        for first in range(1, self._pushes + 1, _PUBLISH_AT_ONCE):
            await self._patiently(partial(self._publish, task_id, lane, first))
        return task_id

    async def seal(self, task_id: str) -> None:
        seal = task_changes.seal(self._pushes)
        await self._patiently(lambda: self._backend.change_known(task_id, seal))

    async def cancel(self, task_id: str) -> None:
        """Cancel it; what has not arrived of it is not to arrive any more."""
        await self._patiently(lambda: self._backend.change_known(task_id, task_changes.cancel))
        del self.totals[task_id]

    def _lane(self, task_id: str, level: Level) -> str:
        if level is Level.LOW:
            return pool_lane(task_id, self._pool_lanes, self._sink)
        return own_lane(task_id)

    async def _open(self, task_id: str, level: Level, lane: str, start_ms: int) -> None:
        task = Task(
            id=task_id,
            level=level,
            lane=lane,
            bundle=BUNDLE,
            key=f"feed-{task_id}",  # so that it can be added again
            created_at_ms=task_changes.now_ms(),
            not_before_ms=start_ms,
            max_attempts=self._attempts,
            delivery=self.modes[task_id].delivery,
            on_unknown=self.modes[task_id].on_unknown,
            sinks=() if self._sink == DEFAULT_SINK else (self._sink,),
        )
        await self._backend.registry.add(task)
        await self._backend.broker.open_lane(lane)
        await self._backend.change_known(task_id, task_changes.start)

    async def _publish(self, task_id: str, lane: str, first: int) -> None:
        last = min(first + _PUBLISH_AT_ONCE, self._pushes + 1)
        bodies = [encode(Push(task_id, seq, f"r{seq}", "t", _BODY)) for seq in range(first, last)]
        bundles = list(packed(bodies, BUNDLE))
        source = Source(f"feed-{task_id}", [bundle.last_seq for bundle in bundles])
        messages = [bundle.message for bundle in bundles]
        await self._backend.broker.publish(lane, messages, source=source)

    async def _patiently(self, step: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await step()
            except Unreachable:
                await asyncio.sleep(_AGAIN_S)
