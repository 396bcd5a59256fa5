"""Ingests that are steered while they run: another place, another mapping, a new beginning."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import BadInput, TaskConflict, UserError
from pushlane.core.task import Task
from pushlane.ingest import ingest, lane
from pushlane.ingest.ingest import Start
from pushlane.ingest.lane import PartitionLane
from pushlane.ingest.mapping import compiled
from pushlane.ingest.position import kept_of
from pushlane.ingest.source import SourceChanged
from pushlane.ingest.steering import Seek, ask_for, asked_for, reset
from tests.core.support import until
from tests.ingest.sources import STREAM, Log, Reader, pushes, reading, recipients, tasks, value

OTHER = compiled({"recipient": "device", "title": {"value": "Hi"}}, "other")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.005)


def named(*spans: tuple[int, int]) -> list[str]:
    return [f"d{n}" for span in spans for n in range(*span)]


def add(log: Log, first: int, last: int) -> None:
    log.add("0", *(value(f"d{n}") for n in range(first, last)))


async def sought(backend: Backend, reader: Reader, seek: Seek) -> None:
    """Ask for a seek, and wait until the process has done it, and read on."""
    await ask_for(backend.documents, STREAM, ["0"], seek)
    await until(lambda: reader.running.done() or "0" in reader.source.seeks)
    await reader.read()


async def test_a_seek_back_sends_nothing_again(settings: Settings) -> None:
    log = Log()
    add(log, 0, 10)
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        await reader.read()
        await sought(backend, reader, Seek(offset=4))
        add(log, 10, 12)
        await reader.read()

        assert await recipients(backend) == named((0, 12))
        assert (reader.ingest.counted.repeated, reader.ingest.counted.skipped) == (6, 0)
        assert await asked_for(backend.documents, STREAM) == {}


async def test_with_again_all_from_there_is_sent_once_more_by_a_new_task(
    settings: Settings,
) -> None:
    log = Log()
    add(log, 0, 10)
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        await reader.read()
        await sought(backend, reader, Seek(at_ms=4, again=True))
        add(log, 10, 12)
        await reader.read()

        assert await recipients(backend) == named((0, 10), (4, 12))
        assert [task.total for task in reversed(await tasks(backend))] == [10, None]


async def test_what_is_sent_again_goes_without_the_key_by_which_it_would_be_a_duplicate(
    settings: Settings,
) -> None:
    log, by_key = Log(), compiled({"recipient": "device", "key": "device"}, "one")
    add(log, 0, 4)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0", mapping=by_key) as reader:
            await reader.read()
            await sought(backend, reader, Seek(offset=1, again=True))
            await sought(backend, reader, Seek(offset=3, again=True))  # and 4 was not sent yet
            await reader.kill(backend)
        add(log, 4, 6)
        async with reading(backend, settings, log, "0", mapping=by_key) as reader:
            await reader.read()

        keys = [push.key for push in await pushes(backend)]
        assert await recipients(backend) == named((0, 4), (1, 4), (3, 6))
        assert keys == [*named((0, 4)), "", "", "", "", "d4", "d5"]


async def test_a_seek_ahead_passes_records_over(settings: Settings) -> None:
    log = Log()
    add(log, 0, 5)
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:
        await reader.read()
        reader.source.pause("0")
        add(log, 5, 10)
        await sought(backend, reader, Seek(offset=8))
        await sought(backend, reader, Seek(offset=99))  # there is no more than this
        add(log, 10, 11)
        await reader.read()

        assert await recipients(backend) == named((0, 5), (8, 11))


async def test_a_time_that_the_source_does_not_know_changes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    add(log, 0, 5)
    async with connect(settings) as backend, reading(backend, settings, log, "0") as reader:

        async def unknown(partition: str, at_ms: int) -> int:
            raise BadInput("lines have no time")

        monkeypatch.setattr(reader.source, "offset_at", unknown)
        await reader.read()
        await sought(backend, reader, Seek(at_ms=1, again=True))
        add(log, 5, 8)
        await reader.read()

        assert await recipients(backend) == named((0, 8))


async def test_who_has_the_partition_next_does_what_was_asked_for(settings: Settings) -> None:
    log = Log()
    add(log, 0, 5)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        await ask_for(backend.documents, STREAM, ["0"], Seek(offset=0, again=True))
        async with reading(backend, settings, log, "0") as reader:
            await until(lambda: "0" in reader.source.seeks)
            await reader.read()

        assert await recipients(backend) == named((0, 5), (0, 5))


async def test_a_seek_waits_until_a_partition_is_taken_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    add(log, 0, 5)
    asked, goes_on = asyncio.Event(), asyncio.Event()
    last_of = PartitionLane._last_of

    async def slow(lane: PartitionLane, task: Task) -> int:
        asked.set()
        await goes_on.wait()
        return await last_of(lane, task)

    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        monkeypatch.setattr(PartitionLane, "_last_of", slow)
        await ask_for(backend.documents, STREAM, ["0"], Seek(offset=0, again=True))
        async with reading(backend, settings, log, "0") as reader:
            idle = asyncio.create_task(reader.ingest.held["0"].partition.idle())
            await asked.wait()
            await until(lambda: "0" in reader.source.paused or "0" in reader.source.seeks)
            assert not idle.done()  # though the seek has begun
            goes_on.set()
            await until(lambda: "0" in reader.source.seeks)
            await reader.read()

        assert await recipients(backend) == named((0, 5), (0, 5))
        assert [task.total for task in reversed(await tasks(backend))] == [5, None]


async def test_what_is_sent_once_more_is_so_once_though_the_process_dies_in_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    add(log, 0, 5)
    died = asyncio.Event()

    async def dies(*_: object) -> None:
        died.set()
        await asyncio.Event().wait()

    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            await ask_for(backend.documents, STREAM, ["0"], Seek(offset=0, again=True))
            with monkeypatch.context() as patch:
                patch.setattr(ingest, "carried_out", dies)
                await died.wait()
                await reader.kill(backend)
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            while await asked_for(backend.documents, STREAM):
                await asyncio.sleep(0)
            await reader.read()

            assert reader.source.seeks == {}
            assert await recipients(backend) == named((0, 5), (0, 5))


async def test_another_mapping_is_refused_unless_it_is_a_change(settings: Settings) -> None:
    log = Log()
    add(log, 0, 5)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as old:
            await old.read()
            with pytest.raises(BadInput, match=r"another mapping file.*add --change"):
                async with reading(backend, settings, log, mapping=OTHER) as refused:
                    await refused.running
            async with reading(backend, settings, log, mapping=OTHER, change=True) as new:
                with pytest.raises(BadInput, match="has a new mapping file"):
                    await old.running
                add(log, 5, 8)
                await new.source.give("0")
                await new.read()

        assert await recipients(backend) == named((0, 8))
        assert [task.total for task in reversed(await tasks(backend))] == [5, None]


async def test_a_reset_begins_with_what_a_source_that_was_made_anew_has(
    settings: Settings,
) -> None:
    log, anew = Log(), Log("second")
    add(log, 0, 10)
    add(anew, 100, 103)
    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
            with pytest.raises(UserError, match="is being read; stop all processes"):
                await reset(backend, settings, STREAM)
            await reader.kill(backend)  # no position tells of what is on the lane
        with pytest.raises(SourceChanged, match="pushlane ingest reset orders"):
            async with reading(backend, settings, anew, "0"):
                pass
        assert await reset(backend, settings, STREAM) == 1
        async with reading(backend, settings, anew, "0", mapping=OTHER) as reader:
            await reader.read()

        assert await recipients(backend) == [*named((0, 10)), *named((100, 103))]
        assert [task.total for task in reversed(await tasks(backend))] == [10, None]
        kept = await kept_of(backend.documents, STREAM, "0")
        assert kept.position is not None
        assert kept.position.source_id == "second"


async def test_a_reset_leaves_a_task_of_which_nobody_knows_what_is_on_its_lane(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    add(log, 0, 5)

    async def forgotten(*_: object) -> list[int]:
        raise TaskConflict("publishing stopped too long ago to go on")

    async with connect(settings) as backend:
        async with reading(backend, settings, log, "0") as reader:
            await reader.read()
        [task] = await tasks(backend)
        with monkeypatch.context() as patch:
            patch.setattr(lane, "reached", forgotten)
            patch.setattr(PartitionLane, "_remembers", lambda *_: False)
            patch.setattr(backend.broker, "last_of", AsyncMock(return_value=0))
            with pytest.raises(BadInput, match="with: pushlane ingest reset orders"):
                async with reading(backend, settings, log, "0") as reader:
                    await reader.read()
            assert await reset(backend, settings, STREAM) == 1
        add(log, 5, 8)
        async with reading(backend, settings, log, "0", start=Start.END) as reader:
            add(log, 8, 10)
            await reader.read()

        assert f"pushlane cancel {task.id}" in caplog.text
        assert await recipients(backend) == named((0, 5), (8, 10))
