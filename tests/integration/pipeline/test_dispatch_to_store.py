"""What a dispatcher did with pushes, by its registry, is what the store counts of them."""

from __future__ import annotations

import asyncio
from collections import Counter

from pushlane.backends.backend import connect
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.task import Level, Progress, Task
from pushlane.settings import Settings
from tests.core.support import MemorySink, add_task, drain
from tests.integration.pipeline.receipts_support import Pipe

KINDS = ("delivered", "dead", "expired", "dropped")


def answer(delivery: Delivery) -> Outcome:
    """Every fifth push is refused at first, every tenth of them for good."""
    push = delivery.push
    if push.seq % 5 == 0 and push.attempt == 1:
        return Outcome.retry("busy", after_s=0.0)
    return Outcome.dead("unregistered") if push.seq % 10 == 0 else DELIVERED


async def dispatched(settings: Settings) -> list[tuple[Task, Progress]]:
    """Tasks that are over: one of each level, and one that came too late."""
    async with connect(settings) as backend:
        added = [await add_task(backend, level, 100) for level in Level]
        added.append(await add_task(backend, pushes=30, push_expires_at_ms=1))
        await drain(backend, MemorySink(answer), settings)
        ended = [await backend.registry.get(task.id) for task in added]
        found = await backend.registry.progress([task.id for task in ended])
        return list(zip(ended, found, strict=True))


def test_finished_pushes_are_counted_as_the_registry_counts_them(spark, tmp_path):
    pipe = Pipe(spark, tmp_path, pool_lanes=2, slots=8)
    tasks = asyncio.run(dispatched(pipe.settings))
    pipe.run()

    progress = Counter({(t.id, kind): getattr(n, kind) for t, n in tasks for kind in KINDS})
    retries = Counter({(task.id, "retry"): 20 for task, _ in tasks[:-1]})
    assert pipe.counted() == +(progress + retries)
    assert progress.total() == 330
    assert {kind for (_, kind), n in progress.items() if n} == {"delivered", "dead", "expired"}
    for task, _ in tasks:
        assert pipe.seqs(task.id) == list(range(1, task.total + 1))
