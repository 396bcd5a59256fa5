"""What the embedded store forgets by itself, with a clock of the test's own."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.backends.embedded import tasks as expiry
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Source
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, Moved, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.settings import Settings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [task_changes.now_ms()]
    monkeypatch.setattr(expiry, "now_ms", lambda: now[0])
    return now


@asynccontextmanager
async def store(folder: Path) -> AsyncIterator[Backend]:
    async with connect(Settings(broker="embedded", data_dir=folder)) as backend:
        yield backend


def rows(folder: Path, table: str) -> int:
    with sqlite3.connect(folder / "pushlane.db") as connection:
        [count] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


async def ended(backend: Backend) -> Task:
    task_id = new_task_id()
    await backend.registry.add(Task(id=task_id, level=Level.HIGH, lane=f"task-{task_id}"))
    await backend.registry.record([Finished(task_id, Kind.DELIVERED, [1, 2])])
    await backend.registry.move([Moved(task_id, [3])])
    return await backend.registry.change(task_id, task_changes.finish(State.DONE))


async def test_which_seqs_were_counted_goes_a_day_after_the_lanes(
    tmp_path: Path, clock: list[int]
) -> None:
    async with store(tmp_path) as backend:
        task = await ended(backend)
        await backend.registry.change(task.id, task_changes.lane_dropped)
        clock[0] += expiry.KEPT_MS - 1
        other = await ended(backend)
        assert await backend.registry.finished(task.id, [1, 3]) == [True, False]

        clock[0] += 1
        await backend.registry.change(other.id, task_changes.lane_dropped)

        assert await backend.registry.finished(task.id, [1]) == [False]
        assert await backend.registry.finished(other.id, [1]) == [True]
        late = [Finished(task.id, Kind.DROPPED, [2, 9]), Finished(other.id, Kind.DROPPED, [2, 9])]
        of_task, of_other = await backend.registry.record(late)
        assert (of_task.delivered, of_task.dropped) == (2, 0)
        assert (of_other.delivered, of_other.dropped) == (2, 1)
        await backend.registry.move([Moved(task.id, [4])])
    assert rows(tmp_path, "seen") == 2


async def test_what_is_counted_of_no_task_goes_in_a_day(tmp_path: Path, clock: list[int]) -> None:
    async with store(tmp_path) as backend:
        await backend.registry.record([Finished("nobody", Kind.DROPPED, [1])])
        await ended(backend)
        assert rows(tmp_path, "progress") == 2

        clock[0] += expiry.KEPT_MS
        await ended(backend)

    assert rows(tmp_path, "progress") == 2
    assert rows(tmp_path, "fading") == 0


async def test_forgotten_tasks_leave_no_row(tmp_path: Path, clock: list[int]) -> None:
    async with store(tmp_path) as backend:
        for _ in range(3):
            task = await ended(backend)
            await backend.registry.change(task.id, task_changes.lane_dropped)
            await backend.registry.forget(task.id)
        clock[0] += expiry.KEPT_MS
        last = await ended(backend)
        await backend.registry.forget(last.id)

    tables = ("tasks", "progress", "seen", "ended", "fading")
    assert {table: rows(tmp_path, table) for table in tables} == dict.fromkeys(tables, 0)
    assert rows(tmp_path, "forgotten") == 1


@pytest.mark.parametrize("table", ["shelf", "presence", "ended", "fading", "forgotten", "beats"])
async def test_a_store_of_before_0_2_0_is_refused_and_left_as_it_is(
    tmp_path: Path, table: str
) -> None:
    async with store(tmp_path) as backend:
        await ended(backend)
    with sqlite3.connect(tmp_path / "pushlane.db") as connection:
        connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP TABLE put_off")

    with pytest.raises(Unreachable, match=r"before release 0\.2\.0.* open it once"):
        async with store(tmp_path):
            pass

    with sqlite3.connect(tmp_path / "pushlane.db") as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert not there & {table, "put_off"}


async def test_what_published_a_forgotten_task_is_forgotten_too(tmp_path: Path) -> None:
    async with store(tmp_path) as backend:
        await backend.broker.open_lane("pool-0")
        tasks = [Task(id=f"t{n}", level=Level.LOW, lane="pool-0") for n in range(3)]
        for task in tasks:
            await backend.registry.add(task)
            for name in (f"submit-{task.id}", f"fanout-{task.id}-1", f"fanout-{task.id}-90"):
                await backend.broker.publish("pool-0", [b"x"], source=Source(name, [1]))
        await backend.registry.change("t1", task_changes.finish(State.DONE))

        await backend.registry.forget("t1")

    assert rows(tmp_path, "publishers") == 6
