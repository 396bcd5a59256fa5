"""Tasks, a sink that takes its time, and what receipts say of waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, Task, now_ms
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.wire import packed
from tests.guarantees.test_receipts import batches

SETTINGS = Settings(slots=4, receipts="required")
TOOK_S = 0.05


class TakesTime:
    """Takes so long for each push, and answers as it is told; `got` says what came when."""

    batch_size = 1
    mixes_tasks = True
    hosts_code = False

    def __init__(
        self,
        took_s: float = TOOK_S,
        answer: Callable[[Delivery], Outcome] = lambda _: DELIVERED,
    ) -> None:
        self.name = "takes-time"
        self.got: list[tuple[int, str, int]] = []
        self._took_s = took_s
        self._answer = answer

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self.got += [(now_ms(), one.push.task_id, one.push.seq) for one in batch]
        await asyncio.sleep(self._took_s)
        return [self._answer(one) for one in batch]

    async def close(self) -> None:
        return None


class Told(NamedTuple):
    """A receipt's wait: `parts` of `waited_ms`, from submitted to dispatched."""

    task_id: str
    seq: int
    attempt: int
    outcome: str
    submitted_ms: int
    dispatched_ms: int
    parts: dict[str, int]

    @property
    def waited_ms(self) -> int:
        return max(0, self.dispatched_ms - self.submitted_ms)


async def told(backend: Backend) -> list[Told]:
    """Return all receipts, in the order of their pushes and attempts."""
    found: list[Told] = []
    for batch in await batches(backend):
        assert batch.waits is not None
        for row in range(len(batch)):
            parts = {cause: column[row] for cause, column in batch.waits.items() if column[row]}
            times = batch.submitted_at_ms[row], batch.dispatched_at_ms[row]
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
    backend: Backend, level: Level = Level.HIGH, pushes: int = 400, **fields: Any
) -> Task:
    """A task whose pushes were submitted now, sealed, on its lane."""
    task_id = new_task_id()
    lane = pool_lane(task_id, 2) if level is Level.LOW else own_lane(task_id)
    task = Task(id=task_id, level=level, lane=lane, first_lane=lane, bundle=32, **fields)
    await backend.registry.add(task)
    await backend.broker.open_lane(lane)
    await backend.registry.change(task_id, task_changes.start)
    bodies = [
        encode(Push(task_id, seq, f"to-{seq}", submitted_at_ms=now_ms()))
        for seq in range(1, pushes + 1)
    ]
    await backend.broker.publish(lane, [one.message for one in packed(bodies, 32)])
    await backend.registry.change(task_id, task_changes.seal(pushes))
    return task
