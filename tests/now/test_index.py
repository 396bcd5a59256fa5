"""The index of all tasks has what the registry has, whatever changes there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.backends.ports import Changes, listed
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.now import index as module
from pushlane.now.index import TaskIndex


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
        await backend.registry.add(task("x1", name="summer sale"))
        await backend.registry.add(task("x2", key="shop/autumn"))
        await index.follow(backend.registry)
        for word, found in (("sale", ["x1"]), ("autumn", ["x2"]), ("x", ["x1", "x2"])):
            assert [one.id for one in index.rows.values() if one.has(word)] == found
