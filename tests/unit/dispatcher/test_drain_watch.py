"""A drain ends by what it decided last, whatever changes right after."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pushlane.dispatcher.drain_watch import DrainWatch
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.lanes.task import Level
from pushlane.lanes.task_transitions import now_ms
from tests.unit.dispatcher.support import add_task, backend_in


async def test_it_says_which_sinks_it_gave_up_when_it_ended(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = KnownTasks(backend)
        tasks.apply(await add_task(backend, Level.HIGH, 5))
        tasks.synced.set()
        watch = DrainWatch(backend, tasks, {"default"}, now_ms)
        ended = asyncio.create_task(watch.wait())
        await asyncio.sleep(0)
        assert not ended.done()

        watch.give_up(frozenset({"default"}))
        while not ended.done():
            await asyncio.sleep(0)
        watch.give_up(frozenset())  # its answers are accepted a moment later

        assert await ended == {"default"}
