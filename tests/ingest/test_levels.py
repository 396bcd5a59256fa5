"""Records that name a level: each goes on a lane of its level, once, whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import BadInput
from pushlane.core.task import Level, State
from pushlane.ingest import ingest, lane
from pushlane.ingest.lane import PartitionLane
from pushlane.ingest.mapping import Made, compiled
from pushlane.ingest.metrics import INGEST_METRICS
from pushlane.ingest.position import kept_of
from pushlane.ingest.source import SourceChanged
from pushlane.ingest.steering import Seek, ask_for, asked_for, reset
from pushlane.model import task_changes
from pushlane.producers.stream_tasks import apply
from pushlane.util.metrics import MetricCollector
from tests.core.support import until
from tests.ingest.sources import (
    STREAM,
    TO_DEVICE,
    Log,
    pushes,
    reading,
    recipients,
    tasks,
    value,
)

LEVELS = ("high", "medium", "low", "")
BY_LEVEL = compiled({"recipient": "device", "level": "how"}, "levels")


def add(log: Log, first: int, last: int, levels: Sequence[str] = LEVELS) -> None:
    log.add("0", *(value(f"d{n}", how=levels[n % len(levels)]) for n in range(first, last)))


async def by_level(backend: Backend) -> dict[str, list[int]]:
    """The numbers of the pushes on the lanes of each level."""
    level = {task.id: str(task.level) for task in await tasks(backend)}
    found: dict[str, list[int]] = {}
    for push in await pushes(backend):
        found.setdefault(level[push.task_id], []).append(int(push.recipient[1:]))
    return {name: sorted(some) for name, some in found.items()}


def wanted(count: int) -> dict[str, list[int]]:
    """A record without a level has that of the stream, which is high."""
    both = [n for n in range(count) if n % 4 in (0, 3)]
    return {"high": both, "medium": list(range(1, count, 4)), "low": list(range(2, count, 4))}


async def test_each_record_is_on_the_lane_of_its_level(settings: Settings) -> None:
    log = Log()
    add(log, 0, 1_000)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()

        assert await by_level(backend) == wanted(1_000)
        assert len(await tasks(backend)) == 4
        assert reader.source.committed == {"0": 1_000}


async def test_a_kill_puts_nothing_on_a_lane_twice_though_one_is_ahead_of_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    add(log, 0, 400)
    put = PartitionLane.put

    async def dies(one: PartitionLane, *given: object, **more: object) -> None:
        if one.level is Level.LOW and given[0]:
            raise RuntimeError("killed")
        await put(one, *given, **more)  # type: ignore[arg-type]

    async with connect(settings) as backend:
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLane, "put", dies)
            with pytest.raises(RuntimeError, match="killed"):
                async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
                    await reader.read()
        ahead = await by_level(backend)
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()

        assert ahead.keys() == {"high", "medium"}
        assert await by_level(backend) == wanted(400)


async def test_a_task_that_is_cancelled_takes_no_record_of_another_level_with_it(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 40)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            [low] = [task for task in await tasks(backend) if task.level is Level.LOW]
            await backend.registry.change(low.id, task_changes.cancel)
            add(log, 40, 80)
            await reader.read()
            await reader.kill(backend)
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()

        found = await by_level(backend)
        assert found["high"] == wanted(80)["high"]
        assert found["medium"] == wanted(80)["medium"]
        assert set(found["low"]) >= set(range(42, 80, 4))
        assert len(found["low"]) == len(set(found["low"]))


async def test_a_task_that_ends_in_the_middle_of_a_chunk_has_each_record_counted_once(
    settings: Settings, tmp_path: Path
) -> None:
    log, bad = Log(), tmp_path / "bad.jsonl"
    add(log, 0, 40)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL, bad=bad) as reader:
            await reader.read()
            [low] = [task for task in await tasks(backend) if task.level is Level.LOW]
            await backend.registry.change(low.id, task_changes.cancel)
            log.add("0", value(" ", how="high"), value(" ", how="low"), None, b"[]")
            add(log, 40, 80)
            await reader.read()

        counted, held = reader.ingest.counted, await tasks(backend)
        assert len([task for task in held if task.level is Level.LOW]) == 2
        assert (counted.pushes, counted.repeated) == (80, 0)
        assert (counted.bad, counted.skipped) == (3, 1)
        assert len(bad.read_bytes().splitlines()) == 3


async def test_a_level_that_has_gone_quiet_has_its_task_ended_after_a_day(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 3_600.0)
    log = Log()
    add(log, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            assert [task.total for task in await tasks(backend)] == [None] * 4
            with monkeypatch.context() as patch:
                patch.setattr(lane, "LONGEST_S", 0.0)
                add(log, 8, 12, ["high"])
                await reader.read()
            quiet = {str(t.level): t.total for t in await tasks(backend) if t.level != "high"}
            add(log, 12, 20)
            await reader.read()

        found = [int(name[1:]) for name in await recipients(backend)]
        assert quiet == {"medium": 2, "low": 2}
        assert sorted(found) == list(range(20))


async def test_a_partition_that_has_gone_quiet_has_its_tasks_ended_after_a_day(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.005)
    log = Log()
    add(log, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            lanes = reader.ingest.held["0"].partition.lanes
            with monkeypatch.context() as patch:
                patch.setattr(lane, "LONGEST_S", 0.0)
                await until(lambda: not any(one.position.task_id for one in lanes))
            totals = [task.total for task in await tasks(backend)]
            add(log, 8, 16)
            await reader.read()

        assert totals == [2] * 4
        assert await by_level(backend) == wanted(16)
        assert reader.source.committed == {"0": 16}


async def test_a_partition_is_idle_once_old_tasks_are_ended(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 3_600.0)
    log = Log()
    add(log, 0, 8)
    async with (
        connect(settings) as backend,
        reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader,
    ):
        await reader.read()
        monkeypatch.setattr(lane, "LONGEST_S", 0.0)
        partition = reader.ingest.held["0"].partition
        partition.end_old()
        await partition.idle()  # what a seek and a rebalance wait for

        assert [one.position.task_id for one in partition.lanes] == [""] * 4
        assert [task.total for task in await tasks(backend)] == [2] * 4


async def test_a_change_of_the_stream_leaves_the_levels_that_records_name(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            await apply(backend, replace(STREAM, level=Level.LOW, paused=True, reason="held"))

        found = sorted((str(task.level), task.key) for task in await tasks(backend))
        assert [level for level, _ in found] == ["high", "low", "low", "medium"]
        assert all(task.state is State.PAUSED for task in await tasks(backend))


async def test_what_is_sent_again_goes_by_its_level(settings: Settings) -> None:
    log = Log()
    add(log, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            await reader.ingest.held["0"].partition.go_to(4, again=1)
            reader.source.at["0"] = 4
            await reader.read()

        found = await by_level(backend)
        assert found == {"high": [0, 3, 4, 4, 7, 7], "medium": [1, 5, 5], "low": [2, 6, 6]}


async def test_a_seek_with_again_is_done_once_by_each_level_though_the_process_dies_between_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.005)
    log = Log()
    add(log, 0, 8)
    go_to = PartitionLane.go_to

    async def dies(one: PartitionLane, offset: int, **more: int) -> None:
        if one.level is None:
            raise RuntimeError("killed")
        await go_to(one, offset, **more)

    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
        await ask_for(backend.documents, STREAM, ["0"], Seek(offset=4, again=True))
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLane, "go_to", dies)
            with pytest.raises(RuntimeError, match="killed"):
                async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
                    await reader.running
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()  # what levels that went there have to send
            await until(lambda: "0" in reader.source.seeks)
            await reader.read()

        assert await asked_for(backend.documents, STREAM) == {}
        found = await by_level(backend)
        assert found == {"high": [0, 3, 4, 4, 7, 7], "medium": [1, 5, 5], "low": [2, 6, 6]}


async def kept_at(backend: Backend, level: Level | None, at: int) -> None:
    """Leave the position of a lane where a process that was killed may have."""
    kept = await kept_of(backend.documents, STREAM, "0", level)
    assert kept.position is not None
    await kept.save(replace(kept.position, at=at))


async def test_records_that_are_gone_are_missed_by_the_level_that_is_furthest_behind(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
        await kept_at(backend, Level.LOW, 5)
        log.low["0"] = 7
        with pytest.raises(BadInput, match="begins at 7, and was read up to 5: the 2 records"):
            async with reading(backend, settings, log, "0", mapping=BY_LEVEL):
                pass


async def test_a_source_that_was_cut_off_is_so_for_the_level_that_is_furthest_ahead(
    settings: Settings,
) -> None:
    log, cut = Log(), Log()
    add(log, 0, 8)
    add(cut, 0, 7)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
        await kept_at(backend, None, 6)
        with pytest.raises(SourceChanged, match="ends at 7, and was read up to 8: it was cut off"):
            async with reading(backend, settings, cut, "0", mapping=BY_LEVEL):
                pass


async def test_lag_is_that_of_the_level_that_is_furthest_behind(settings: Settings) -> None:
    log = Log()
    add(log, 0, 8)
    async with (
        connect(settings) as backend,
        reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader,
    ):
        await reader.read()
        held = reader.ingest.held["0"]
        held.partition.lane.note(held.seen(8, passed_s=1.0))
        low = held.partition.lanes.by_level[Level.LOW]
        low.position = replace(low.position, at=5)
        metrics = CollectorRegistry()
        metrics.register(MetricCollector(INGEST_METRICS, lambda: [(reader.ingest, ())]))

        assert metrics.get_sample_value("pushlane_ingest_lag", {"partition": "0"}) == 3


@pytest.mark.parametrize(("first", "then"), [(TO_DEVICE, BY_LEVEL), (BY_LEVEL, TO_DEVICE)])
async def test_levels_begin_and_end_with_another_mapping(
    settings: Settings, first: Made, then: Made
) -> None:
    log = Log()
    async with connect(settings) as backend:
        for count, mapping in enumerate((first, then, first), start=1):
            add(log, 20 * count - 20, 20 * count)
            changed: Any = {"mapping": mapping, "change": True}
            async with reading(backend, settings, log, "0", **changed) as reader:
                await reader.read()

        found = [int(name[1:]) for name in await recipients(backend)]
        assert sorted(found) == list(range(60))
        assert len([task for task in await tasks(backend) if task.total is None]) in (1, 4)


async def test_levels_begin_behind_what_a_killed_process_had_put_on_the_one_lane(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 20)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            await reader.kill(backend)
        add(log, 20, 40)
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL, change=True) as reader:
            await reader.read()

        found = [int(name[1:]) for name in await recipients(backend)]
        assert sorted(found) == list(range(40))
        [low] = [task for task in await tasks(backend) if task.level is Level.LOW]
        assert low.total is None


async def test_another_mapping_waits_for_levels_that_are_behind_after_a_kill(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 40)
    other = compiled({"recipient": "device", "title": {"value": "Hi"}}, "other")
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            await reader.kill(backend)
        add(log, 40, 80)
        for _ in range(2):
            with pytest.raises(
                BadInput, match=r"some levels ahead of others.*with the previous mapping"
            ):
                async with reading(
                    backend, settings, log, "0", mapping=other, change=True
                ) as reader:
                    await reader.read()
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL, change=True) as reader:
            await reader.read()
        async with reading(backend, settings, log, "0", mapping=other, change=True) as reader:
            await reader.read()

        assert await by_level(backend) == wanted(80)


async def test_a_reset_ends_the_tasks_of_all_levels(settings: Settings) -> None:
    log, anew = Log(), Log("second")
    add(log, 0, 8)
    anew.low["0"] = 2
    add(anew, 0, 8)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=BY_LEVEL) as reader:
            await reader.read()
            await reader.kill(backend)
        assert await reset(backend, settings, STREAM) == 1
        assert all(task.total == 2 for task in await tasks(backend))
        async with reading(backend, settings, anew, "0", mapping=BY_LEVEL) as reader:
            await reader.read()

        assert reader.source.committed == {"0": 8}
        assert len(await pushes(backend)) == 8 + 6
