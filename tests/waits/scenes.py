"""Tasks, a sink that takes its time, and what receipts say of waits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.ports import Delivery, Sink
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, Task, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.wire import packed
from tests.core.support import dispatching
from tests.guarantees.test_receipts import batches
from tests.waits.virtual import Clock, run_in

SETTINGS = Settings(slots=4, receipts="required")
TOOK_S = 0.05
BEGUN_S = 5.0


class TakesTime:
    """Takes so long for each push, and answers as it is told; `got` says what came when."""

    mixes_tasks = True
    hosts_code = False

    def __init__(
        self,
        took_s: float | Callable[[], float] = TOOK_S,
        answer: Callable[[Delivery], Outcome] = lambda _: DELIVERED,
        batch_size: int = 1,
    ) -> None:
        self.batch_size = batch_size
        self.name = "takes-time"
        self.got: list[tuple[int, str, int]] = []
        self._took_s = took_s
        self._answer = answer

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self.got += [(now_ms(), one.push.task_id, one.push.seq) for one in batch]
        took_s = self._took_s
        await asyncio.sleep(took_s() if callable(took_s) else took_s)
        return [self._answer(one) for one in batch]

    async def close(self) -> None:
        return None


class Told(NamedTuple):
    """A receipt's wait: `parts` of `waited_ms`, from submitted to dispatched.

    One that was never dispatched has waited until it ended.
    """

    task_id: str
    seq: int
    attempt: int
    outcome: str
    submitted_ms: int
    dispatched_ms: int
    responded_ms: int
    parts: dict[str, int]

    @property
    def waited_ms(self) -> int:
        until_ms = self.dispatched_ms or self.responded_ms
        return max(0, until_ms - self.submitted_ms) if self.submitted_ms else 0


async def told(backend: Backend) -> list[Told]:
    """Return all receipts, in the order of their pushes and attempts."""
    found: list[Told] = []
    for batch in await batches(backend):
        assert batch.waits is not None
        for row in range(len(batch)):
            parts = {cause: column[row] for cause, column in batch.waits.items() if column[row]}
            times = (
                batch.submitted_at_ms[row],
                batch.dispatched_at_ms[row],
                batch.responded_at_ms[row],
            )
            task_id = batch.tasks[batch.task[row]].task_id
            ended = batch.attempt[row], batch.outcome[row]
            found.append(Told(task_id, batch.seq[row], *ended, *times, parts))
    return sorted(found)


def add_up(receipts: Sequence[Told]) -> None:
    """See the law: parts are positive, and their sum is the wait."""
    for one in receipts:
        assert min(one.parts.values(), default=1) > 0, one
        assert sum(one.parts.values()) == one.waited_ms, one


def split(receipts: Sequence[Told]) -> dict[str, float]:
    """Return which part of all waits each cause had."""
    sums: Counter[str] = Counter()
    for one in receipts:
        sums.update(one.parts)
    return {cause: spent / sums.total() for cause, spent in sums.items()}


async def add(
    backend: Backend,
    level: Level = Level.HIGH,
    pushes: int = 400,
    of_push: Callable[[int], dict[str, Any]] = lambda seq: {},
    task_id: str = "",
    **fields: Any,
) -> Task:
    """A task whose pushes were submitted now, sealed, on its lane.

    `of_push` says what a push of this seq has besides.
    """
    task_id = task_id or new_task_id()
    lane = pool_lane(task_id, 2) if level is Level.LOW else own_lane(task_id)
    task = Task(id=task_id, level=level, lane=lane, first_lane=lane, bundle=32, **fields)
    await backend.registry.add(task)
    await backend.broker.open_lane(lane)
    now = now_ms()
    bodies = [
        encode(Push(**{"submitted_at_ms": now, **of_push(seq), **_place(task_id, seq)}))
        for seq in range(1, pushes + 1)
    ]
    await backend.broker.publish(lane, [one.message for one in packed(bodies, 32)])
    await backend.registry.change(task_id, task_changes.start)
    await backend.registry.change(task_id, task_changes.seal(pushes))
    return task


def _place(task_id: str, seq: int) -> dict[str, Any]:
    return {"task_id": task_id, "seq": seq, "recipient": f"to-{seq}"}


Scene = Callable[[Backend], Coroutine[Any, Any, None]]


def played(patch: pytest.MonkeyPatch, scene: Scene, clock: Clock | None = None) -> list[Told]:
    """Play a scene to its end, and return all receipts, which keep the law."""

    async def play() -> list[Told]:
        async with MemoryBackend().connect(SETTINGS) as backend:
            await scene(backend)
            return await told(backend)

    receipts = run_in(clock or Clock(), patch, play())
    add_up(receipts)
    return receipts


@asynccontextmanager
async def serving(
    backend: Backend, sink: Sink | Mapping[str, Sink], settings: Settings = SETTINGS
) -> AsyncIterator[Dispatcher]:
    """A dispatcher that has been idle for a while, and is stopped gently in the end."""
    async with dispatching(backend, sink, settings, clock_s=time.monotonic) as dispatcher:
        await asyncio.sleep(BEGUN_S)
        yield dispatcher


async def sent(sink: TakesTime, pushes: int) -> None:
    """Wait until so many have been sent, and are settled."""
    while len(sink.got) < pushes:
        await asyncio.sleep(1.0)
    await asyncio.sleep(1.0)
