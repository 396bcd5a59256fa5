"""The index of all tasks has what the registry has, whatever changes there."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.backends.ports import Changes, TaskPage, TaskQuery, listed
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.diagnosis import index as module
from pushlane.diagnosis.index import TaskIndex


def task(task_id: str, **fields: object) -> Task:
    made = Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id), state=State.RUNNING, total=9)
    return replace(made, **fields)


async def same(index: TaskIndex, backend: Backend) -> None:
    """Fail where the index, brought up to date, is not what the registry has."""
    await index.follow(backend.registry)
    there = {one.id: one for one in await listed(backend.registry)}
    assert {one.id: one.state for one in index.rows.values()} == {
        task_id: one.state for task_id, one in there.items()
    }
    unfinished = {task_id for task_id, one in there.items() if not one.state.is_terminal}
    assert {task_id: there[task_id] for task_id in unfinished} == index.unfinished


async def test_it_follows_what_is_added_changed_ended_and_forgotten() -> None:
    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        registry = backend.registry
        await same(index, backend)
        for name in ("a", "b", "c"):
            await registry.add(task(name))
        await registry.add(task("old", state=State.DONE))
        await same(index, backend)
        await registry.change("a", lambda one: replace(one, quota=7))
        await registry.change("b", lambda one: replace(one, state=State.DONE))
        await same(index, backend)
        assert index.rows["a"].quota == 7
        await registry.forget("b")
        await same(index, backend)
        assert "b" not in index.rows


async def test_tasks_that_ended_before_it_was_there_are_in_it() -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(task("ended", state=State.DONE, created_at_ms=1))
        await backend.registry.add(task("runs", created_at_ms=2))
        index = TaskIndex()
        await same(index, backend)
        assert [*index.rows] == ["ended", "runs"]


async def test_after_an_hour_without_a_look_it_is_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock:
        now_s = 10.0

        def monotonic(self) -> float:
            return self.now_s

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(task("a", state=State.DONE))
        await same(index, backend)
        index.rows["ghost"] = index.rows["a"]
        clock.now_s += 3_599
        await index.follow(backend.registry)
        assert "ghost" in index.rows
        clock.now_s += 3_600
        await index.follow(backend.registry)
        assert [*index.rows] == ["a"]


async def test_of_a_registry_that_was_set_back_it_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = TaskIndex()
    async with MemoryBackend().connect() as first, MemoryBackend().connect() as second:
        for number in range(5):
            await first.registry.add(task(f"a{number}"))
        await same(index, first)
        await second.registry.add(task("b"))
        changes = second.registry.changes

        async def from_the_first(since: int, timeout_s: float) -> Changes:
            """Answer as Redis does to who knows a later version."""
            return await changes(min(since, 0), timeout_s)

        monkeypatch.setattr(second.registry, "changes", from_the_first)
        await same(index, second)


async def test_words_are_looked_for_in_id_key_and_name() -> None:
    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(task("x1", name="Summer sale"))
        await backend.registry.add(task("x2", key="shop/autumn"))
        await index.follow(backend.registry)
        for word, found in (
            ("SALE", ["x1"]),
            ("autumn", ["x2"]),
            ("x", ["x1", "x2"]),
            ("", ["x1", "x2"]),
            ("x1\0", []),
            ("sale\nx2", []),
        ):
            assert [one.id for one in index.find(word)] == found


async def test_words_are_found_among_many_that_came_changed_and_went() -> None:
    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        registry = backend.registry
        for number in range(1_500):
            await registry.add(task(f"t{number:04}", name=f"Name {number % 7}"))
        await index.follow(registry)
        for number in range(0, 1_400):
            await registry.change(f"t{number:04}", lambda one: replace(one, state=State.DONE))
            await registry.forget(f"t{number:04}")
        await registry.change("t1499", lambda one: replace(one, quota=3))
        await registry.add(task("late", name="name 3"))
        await index.follow(registry)

        there = [f"t{number:04}" for number in range(1_400, 1_500) if number % 7 == 3]
        assert [one.id for one in index.find("name 3")] == [*there, "late"]
        assert [one.id for one in index.find("t14")] == [f"t{n}" for n in range(1_400, 1_500)]
        assert [*index.find("t0001")] == []


async def test_a_task_that_comes_again_is_found_once() -> None:
    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(task("again"))
        await index.follow(backend.registry)
        index.rows.pop("again").is_gone = True  # as one that could not be read for a while
        await backend.registry.change("again", lambda one: replace(one, quota=3))
        await index.follow(backend.registry)

        assert [one.quota for one in index.find("again")] == [3]


async def test_100_000_tasks_take_no_more_than_they_may() -> None:
    tracemalloc.start()
    try:
        index = TaskIndex()
        for number in range(100_000):
            index._take([_finished(number)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(index.rows) == 100_000
    assert taken <= 64 * 2**20


def _finished(number: int) -> Task:
    """A task with texts and times of its own, as the registry reads them."""
    return task(
        f"01J9Z8K3M4N5P6Q7R8S9T{number:06}",
        name=f"autumn sale of shop {number}",
        key=f"shop/sale-{number:06}",
        app=f"app-{number % 50}",
        state=State.DONE,
        total=1_000 + number,
        created_at_ms=1_790_000_000_000 + number,
        finished_at_ms=1_790_000_100_000 + number,
        expires_at_ms=1_790_001_000_000 + number,
    )


async def test_a_reading_that_was_broken_off_goes_on_where_it_stopped() -> None:
    class Slow:
        """Reads a task a page, and is broken off at the third."""

        def __init__(self, registry: Any) -> None:
            self._registry = registry
            self.read: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._registry, name)

        async def page(self, query: TaskQuery, after: str = "") -> TaskPage:
            if len(self.read) == 2:
                self.read.append("broken off")
                raise asyncio.CancelledError
            page = await self._registry.page(query, after, 1)
            self.read += [one.id for one in page.tasks]
            return page

    index = TaskIndex()
    async with MemoryBackend().connect() as backend:
        for number in range(4):
            await backend.registry.add(task(f"t{number}", state=State.DONE))
        slow = Slow(backend.registry)
        with pytest.raises(asyncio.CancelledError):
            await index.follow(cast(Any, slow))
        await backend.registry.forget("t3")
        await index.follow(cast(Any, slow))

        assert slow.read == ["t3", "t2", "broken off", "t1", "t0"]
        await same(index, backend)
