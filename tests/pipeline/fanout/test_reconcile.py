"""A part goes on behind all that is on a lane, or was finished."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import TaskConflict
from pushlane.core.names import later_lane, own_lane
from pushlane.core.push import Kind, Push, encode
from pushlane.core.task import Finished, Level, Task, now_ms
from pushlane.pipeline.fanout.fan_out import parts_to_reconcile, reconcile
from pushlane.pipeline.fanout.request import AudienceCounts
from pushlane.pipeline.fanout.stage import (
    FORMAT,
    FanoutStage,
    FrozenRows,
    Part,
    Signature,
    StageManifest,
)
from pushlane.settings import Settings
from pushlane.wire import packed

FIRST, SECOND = Part("a", 0, 1, 50), Part("b", 1, 51, 50)
POOL = "pool-0"


@pytest.fixture
def frozen(settings: Settings) -> FrozenRows:
    return FanoutStage(settings, "k").begin("t1")


@asynccontextmanager
async def begun(settings: Settings) -> AsyncIterator[tuple[Backend, Task]]:
    """A pooled task with its lanes."""
    task = Task(id="t1", level=Level.LOW, lane=POOL, first_lane=POOL, created_at_ms=now_ms())
    async with connect(settings) as backend:
        for lane in (POOL, own_lane("t1"), later_lane(own_lane("t1"))):
            await backend.broker.open_lane(lane)
        yield backend, await backend.registry.add(task)


def manifest(task: Task) -> StageManifest:
    counts = AudienceCounts(100, 0, 0, 0, 0, 100)
    return StageManifest(
        task, [FIRST, SECOND], counts, Signature(), "users", "", created_at_ms=1, format=FORMAT
    )


def pushes(seqs: range, task_id: str = "t1", bundle: int = 1) -> list[bytes]:
    """The messages that they travel in."""
    bodies = (encode(Push(task_id, seq, "somebody")) for seq in seqs)
    return [one.message for one in packed(bodies, bundle)]


@pytest.mark.parametrize("bundle", [1, 8])
async def test_a_part_goes_on_behind_what_is_on_its_lane(settings, frozen, bundle: int) -> None:
    async with begun(settings) as (backend, task):
        ours, others = pushes(range(1, 21), "t1", bundle), pushes(range(51, 60), "other", bundle)
        await backend.broker.publish(POOL, ours + others)

        await reconcile(backend, task, manifest(task), frozen, [FIRST, SECOND])

    assert frozen.starts([FIRST, SECOND]) == {1: 21, 51: 51}


async def test_what_waits_for_its_time_was_published_too(settings, frozen) -> None:
    async with begun(settings) as (backend, task):
        await backend.broker.publish(later_lane(own_lane("t1")), pushes(range(60, 63)))

        await reconcile(backend, task, manifest(task), frozen, [FIRST, SECOND])

    assert frozen.starts([FIRST, SECOND]) == {1: 1, 51: 63}


async def test_what_was_finished_was_published(settings, frozen) -> None:
    async with begun(settings) as (backend, task):
        await backend.registry.record([Finished("t1", Kind.DELIVERED, [1, 2, 30])])

        await reconcile(backend, task, manifest(task), frozen, [FIRST, SECOND])

    assert frozen.starts([FIRST, SECOND]) == {1: 31, 51: 51}


async def test_a_second_reconciliation_goes_on_from_the_first(settings, frozen) -> None:
    async with begun(settings) as (backend, task):
        frozen.store_starts({1: 25, 51: 51})

        await reconcile(backend, task, manifest(task), frozen, [FIRST])

    assert frozen.starts([FIRST, SECOND]) == {1: 25, 51: 51}


async def test_counts_that_were_lost_make_it_impossible(settings, frozen, monkeypatch) -> None:
    async def lost_since(_: object) -> int:
        return now_ms() + 1

    async with begun(settings) as (backend, task):
        monkeypatch.setattr(type(backend.registry), "counted_since_ms", lost_since)

        with pytest.raises(TaskConflict, match="stopped too long ago"):
            await reconcile(backend, task, manifest(task), frozen, [FIRST])


def test_only_a_part_that_stopped_long_ago_on_pulsar_is_forgotten(settings, frozen) -> None:
    (frozen.progress / "1").write_text("8")
    (frozen.progress / "51").write_text("100")
    made = manifest(Task(id="t1", level=Level.LOW, lane=POOL))
    pulsar = settings.but(**{"broker": "pulsar://x", "dedup_window_s": 1e-9})

    assert parts_to_reconcile(made, frozen, pulsar) == [FIRST]
    assert parts_to_reconcile(made, frozen, settings) == []
    assert parts_to_reconcile(made, frozen, pulsar.but(**{"dedup_window_s": 60.0})) == []
