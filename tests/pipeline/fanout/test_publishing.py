"""What a worker of Spark puts on a lane, without a Spark: rows that were frozen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.backends.backend import connect
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.pipeline.fanout.fan_out import publish_part
from pushlane.pipeline.fanout.stage import FrozenRows, Part
from pushlane.settings import Settings
from pushlane.wire import bodies_of, fields_of, packed, unnumbered

LANE = "task-t1"


def bodies(first: int, last: int) -> list[bytes]:
    return [encode(Push("t1", seq, f"user-{seq}")) for seq in range(first, last + 1)]


def rows(*sizes: int) -> pa.Table:
    """Frozen bundles of so many pushes, the first of which has seq 1."""
    left_open, last = [], 0
    for size in sizes:
        left_open.append(unnumbered([fields_of(one) for one in bodies(last + 1, last + size)]))
        last += size
    return pa.table({"packed": left_open, "pushes": pa.array(sizes, pa.int32())})


@pytest.fixture
def opened(settings: Settings) -> Settings:
    async def add() -> None:
        async with connect(settings) as backend:
            await backend.registry.add(Task(id="t1", level=Level.HIGH, lane=LANE, first_lane=LANE))
            await backend.broker.open_lane(LANE)
            await backend.registry.change("t1", task_changes.start)

    asyncio.run(add())
    return settings


def publish(
    settings: Settings, folder: Path, found: pa.Table, first: int = 1, start: int = 1
) -> None:
    frozen = FrozenRows(folder)
    for each in (frozen.rows, frozen.progress):
        each.mkdir(exist_ok=True)
    pq.write_table(found, frozen.rows / "file", row_group_size=2)
    publish_part(settings, frozen, "t1", False, (Part("file", 0, first, 11), start))


def on_lane(settings: Settings) -> list[bytes]:
    async def read() -> list[bytes]:
        async with connect(settings) as backend:
            return [body async for page in backend.broker.replay(LANE) for body in page]

    return asyncio.run(read())


def test_frozen_bundles_get_their_seqs(opened: Settings, tmp_path: Path) -> None:
    publish(opened, tmp_path, rows(4, 4, 3))

    assert on_lane(opened) == [one.message for one in packed(bodies(1, 11), 4)]


def test_a_second_attempt_adds_nothing(opened: Settings, tmp_path: Path) -> None:
    for _ in range(2):
        publish(opened, tmp_path, rows(4, 4, 3))

    found = [body for message in on_lane(opened) for body in bodies_of(message)]
    assert found == bodies(1, 11)


def test_a_part_is_published_from_where_it_starts(opened: Settings, tmp_path: Path) -> None:
    publish(opened, tmp_path, rows(4, 4, 3), start=5)

    assert on_lane(opened) == [one.message for one in packed(bodies(5, 11), 4)]
    assert (tmp_path / "progress" / "5").read_text() == "11"


def test_pushes_that_are_to_go_alone_are_none_in_a_bundle(opened: Settings, tmp_path: Path) -> None:
    """Where older processes are to read them, which know no bundles."""
    publish(opened, tmp_path, rows(1, 1, 1))

    assert on_lane(opened) == bodies(1, 3)
