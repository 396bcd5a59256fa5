"""Two dispatchers on one store: one leads, and both tell how long the backlog takes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry

from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.model.presence import DrainFigures
from pushlane.settings import Settings
from pushlane.util.errors import NoLeader
from tests.contract.conftest import Connections
from tests.core.support import DEADLINE_S, MemorySink, add_task, until


def _shown(registry: CollectorRegistry) -> dict[str, float]:
    """What is shown of all processes together, but for times."""
    return {
        f"{sample.name} {sorted(sample.labels.items())}": sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name in ("pushlane_backlog", "pushlane_task_backlog", "pushlane_app_backlog")
    }


async def test_one_of_two_shows_what_is_left_and_both_tell_it(
    connections: Connections, settings: Settings, tmp_path: Path
) -> None:
    async with connections, asyncio.timeout(DEADLINE_S):
        backends = await connections.two()
        urgent = await add_task(backends[0], Level.HIGH, 40, app="shop")
        slow = await add_task(backends[0], Level.LOW, 30, app="news")
        sink, registries = MemorySink(), [CollectorRegistry(), CollectorRegistry()]
        sink.gate.clear()
        both = [
            Dispatcher(backend, sink, settings.but(slots=4), registry=registry)
            for backend, registry in zip(backends, registries, strict=True)
        ]
        running = [asyncio.create_task(one.run()) for one in both]
        await until(lambda: any(map(_shown, registries)))
        shown = [_shown(registry) for registry in registries]
        told = [await _drain(one) for one in both]
        sink.gate.set()
        for one in both:
            one.stop()
        await asyncio.gather(*running)

        assert sorted(map(len, shown)) == [0, 7]
        assert max(shown, key=len) == {
            "pushlane_backlog [('level', 'high'), ('sink', 'default')]": 40,
            "pushlane_backlog [('level', 'medium'), ('sink', 'default')]": 0,
            "pushlane_backlog [('level', 'low'), ('sink', 'default')]": 30,
            _task(urgent.id, "high"): 40,
            _task(slow.id, "low"): 30,
            "pushlane_app_backlog [('app', 'shop'), ('sink', 'default')]": 40,
            "pushlane_app_backlog [('app', 'news'), ('sink', 'default')]": 30,
        }
        assert [one.backlog for one in told] == [70, 70]


async def _drain(dispatcher: Dispatcher) -> DrainFigures:
    """What it tells, once the one that leads has said it."""
    while True:
        with suppress(NoLeader):
            return await dispatcher.drain()


def _task(task_id: str, level: str) -> str:
    labels = [("level", level), ("sink", "default"), ("task", task_id)]
    return f"pushlane_task_backlog {labels}"
