"""A drain ends by what was given up when it decided, whatever changes right after."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pushlane.core.task import Level, State, now_ms
from pushlane.dispatcher.service import DrainWatch
from pushlane.dispatcher.tasks import KnownTasks
from tests.core.support import DEADLINE_S, add_task, backend_in

A_WHILE = 20  # turns of the loop: it waits for nothing else


async def test_it_returns_the_sinks_that_it_gave_up(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = KnownTasks(backend)
        tasks.apply(await add_task(backend, Level.HIGH, 5))
        tasks.synced.set()
        watch = DrainWatch(backend, tasks, {"default"}, now_ms)
        ended = asyncio.create_task(watch.wait())
        for _ in range(A_WHILE):
            await asyncio.sleep(0)
        assert not ended.done()

        watch.give_up(frozenset({"default"}))

        async with asyncio.timeout(DEADLINE_S):
            assert await ended == {"default"}


class Accepting:
    """A broker whose lanes are empty; a sink is accepted while it is asked."""

    def __init__(self) -> None:
        self.accept: Any = None
        self.was_asked = asyncio.Event()

    async def backlog(self, lane: str) -> int:
        self.accept()
        self.was_asked.set()
        return 0


async def test_what_is_accepted_while_it_decides_is_waited_for(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks, broker = KnownTasks(backend), Accepting()
        task = await add_task(backend, Level.HIGH, 5, sinks=("a", "b"))
        task = replace(task, state=State.RUNNING, total=5, reached=("b",))
        tasks.apply(task)
        tasks.synced.set()
        asked: Any = broker
        watch = DrainWatch(dataclasses.replace(backend, broker=asked), tasks, {"a", "b"}, now_ms)
        broker.accept = lambda: watch.give_up(frozenset())
        watch.give_up(frozenset({"b"}))

        ended = asyncio.create_task(watch.wait())
        async with asyncio.timeout(DEADLINE_S):
            await broker.was_asked.wait()
            for _ in range(A_WHILE):
                await asyncio.sleep(0)
            assert not ended.done()
            done = replace(task, state=State.DONE, version=task.version + 1)
            tasks.apply(done)
            watch.on_task(done)
            assert await ended == frozenset()
