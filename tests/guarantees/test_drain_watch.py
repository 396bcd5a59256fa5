"""A drain ends by what was given up when it decided, whatever changes right after."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.dispatcher.service import DrainWatch
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.model import task_changes
from tests.core.support import DEADLINE_S, add_task, backend_in, until

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


@pytest.mark.parametrize(("rest_a_look", "looks"), [(0, 4), (1e9, 1)])
async def test_after_a_look_it_rests_in_proportion_however_many_tasks_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest_a_look: float, looks: int
) -> None:
    monkeypatch.setattr("pushlane.dispatcher.service._REST_A_LOOK", rest_a_look)
    async with backend_in(tmp_path) as (backend, _):
        tasks = KnownTasks(backend)
        task = await add_task(backend, Level.HIGH, 5)
        tasks.apply(task)
        tasks.synced.set()
        watch = DrainWatch(backend, tasks, {"default"}, now_ms)
        seen: list[Task] = []
        monkeypatch.setattr(watch, "_can_move", lambda task: seen.append(task) or True)

        def has_seen(count: int) -> bool:
            return len(seen) == count

        waiting = asyncio.create_task(watch.wait())
        for seen_by_then in range(1, 4):
            await until(partial(has_seen, min(seen_by_then, looks)))
            for _ in range(A_WHILE):  # it waits for a change by then, or rests
                await backend.registry.get(task.id)
            watch.on_task(task)
        for _ in range(A_WHILE):
            await backend.registry.get(task.id)
        waiting.cancel()

    assert len(seen) == looks


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


@pytest.mark.parametrize(("delivered", "ends"), [(2, True), (1, False)])
async def test_a_task_left_open_is_waited_for_until_all_of_its_pushes_have_ended(
    tmp_path: Path, delivered: int, ends: bool
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = KnownTasks(backend)
        task = await add_task(backend, Level.HIGH, 2)
        task = await backend.registry.change(task.id, lambda one: replace(one, total=None))
        task = await backend.registry.change(task.id, task_changes.left_open(2))
        tasks.apply(task)
        tasks.synced.set()
        seqs = list(range(1, delivered + 1))
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, seqs)])
        watch = DrainWatch(backend, tasks, {"default"}, now_ms)

        ended = asyncio.create_task(watch.wait())
        if ends:
            async with asyncio.timeout(DEADLINE_S):
                assert await ended == frozenset()
            assert watch.empty == [task]
            return
        for _ in range(A_WHILE):  # its answers come in the order of the questions
            await backend.registry.progress([task.id])
        assert not ended.done()
        ended.cancel()
