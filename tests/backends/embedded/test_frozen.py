"""A process that is frozen loses what it has claimed, and reads on when it wakes."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from contextlib import asynccontextmanager, closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from pushlane.backends.embedded import messages
from pushlane.backends.embedded.broker import EmbeddedBroker, EmbeddedReader, Feeder
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.messages import ClaimedBatch, take_from_frozen
from pushlane.backends.embedded.owners import last_beats
from pushlane.core.ports import Taken
from pushlane.settings import STORE_FILE
from tests.contract.reading import LANE, Reading, bodies, numbered, until
from tests.processes import ROOT

BEAT_S = 0.2
AT_HAND = 3  # messages that a reader holds

HOLD = """
import asyncio, sys
from pathlib import Path
from tests.contract.reading import LANE, Reading
from tests.backends.embedded.test_frozen import opened

async def hold():
    async with opened(Path(sys.argv[1])) as (broker, _):
        reading = await Reading.of(broker)
        late = await reading.take(3)
        print("holding", flush=True)
        [after] = await reading.take(1)
        await broker.ack([*late, after])
        print("acked", after.body.decode(), flush=True)
        await asyncio.Event().wait()

asyncio.run(hold())
"""


@asynccontextmanager
async def opened(folder, beat_s: float = BEAT_S):
    database = Database(folder)
    await database.open()
    broker = EmbeddedBroker(database, depth=2 * AT_HAND, beat_s=beat_s)
    try:
        await broker.open_lane(LANE)
        yield broker, database
    finally:
        await broker.close()
        await database.close()


@asynccontextmanager
async def holder(folder):
    """A process that holds three messages of the lane, and takes one more when it can."""
    process = await create_subprocess_exec(
        sys.executable, "-c", HOLD, str(folder), cwd=ROOT, stdout=PIPE
    )
    try:
        assert await process.stdout.readline() == b"holding\n"
        yield process
    finally:
        process.kill()
        await process.wait()


def freeze(process, folder) -> None:
    """SIGSTOP, but not while it holds the store: nobody could write to that before it wakes."""
    with closing(sqlite3.connect(folder / STORE_FILE, isolation_level=None, timeout=30)) as store:
        store.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        store.execute("ROLLBACK")


async def test_a_frozen_process_loses_its_claims_and_reads_on_when_it_wakes(tmp_path):
    async with opened(tmp_path) as (broker, _):
        await broker.publish(LANE, numbered(1, 3))
        async with holder(tmp_path) as process:
            freeze(process, tmp_path)

            reading = await Reading.of(broker)
            taken = await reading.take(3)
            assert sorted(bodies(taken)) == numbered(1, 3)
            await broker.ack(taken)
            await reading.close()

            await broker.publish(LANE, [b"late"])
            process.send_signal(signal.SIGCONT)
            assert await process.stdout.readline() == b"acked late\n"
            assert await broker.backlog(LANE) == 0


async def test_a_lane_that_only_a_frozen_process_reads_can_be_dropped(tmp_path):
    async with opened(tmp_path) as (broker, _):
        await broker.publish(LANE, numbered(1, 3))
        async with holder(tmp_path) as process:
            freeze(process, tmp_path)
            assert not await broker.drop_lane(LANE)

            await broker.open_lane("task-b")
            await broker.read("task-b", lambda _: None)  # who reads looks after the others

            await until(lambda: broker.drop_lane(LANE))


async def freeze_here(broker: EmbeddedBroker, database: Database) -> None:
    """What another process does when this one was frozen."""

    def job(connection: sqlite3.Connection) -> bool:
        return all(take_from_frozen(connection, last) for last in last_beats(connection))

    assert await database.write(job)


async def test_what_was_prefetched_before_the_freeze_is_not_handed_out(tmp_path):
    async with opened(tmp_path, beat_s=3600) as (broker, database):
        await broker.publish(LANE, numbered(1, 4))
        reading = await Reading.of(broker)
        [held] = await reading.take(1)
        await freeze_here(broker, database)
        await database.write(lambda store: messages.ack(store, [held.handle + 1]))

        broker._feeder.ask_for_all()  # as the next beat has it do
        await until_back(database)

        assert bodies(await reading.take(3)) == [b"1", b"3", b"4"]


async def test_a_beat_brings_back_a_reader_that_has_no_reason_to_claim(tmp_path):
    async with opened(tmp_path, beat_s=0.01) as (broker, database):
        await broker.publish(LANE, numbered(1, 3))
        reading = await Reading.of(broker)
        await reading.ready()
        await freeze_here(broker, database)

        await until_back(database)

        assert bodies(await reading.take(3)) == numbered(1, 3)


async def until_back(database: Database) -> None:
    async def is_back() -> bool:
        return bool(await database.read(last_beats))

    await until(is_back)


def test_what_was_taken_is_its_own_from_the_first_of_beats_that_others_cannot_have_missed(
    monkeypatch,
):
    clock = Mock(return_value=100.0)
    monkeypatch.setattr("pushlane.backends.embedded.broker.time.monotonic", clock)
    broker = EmbeddedBroker(Mock(folder=Path()), depth=4, beat_s=10.0)
    held_since_s = {}
    beats = {100: 100.0, 110: 110.0, 139: 138.0, 200: None, 201: 201.0}  # when heard, when made
    for now_s in range(100, 240):
        clock.return_value = now_s
        if now_s in beats:
            broker._beaten(beats[now_s])
        held_since_s[now_s] = broker.held_since_s

    assert {held_since_s[now_s] for now_s in range(100, 168)} == {100}
    assert {held_since_s[now_s] for now_s in range(168, 201)} == {math.inf}
    assert {held_since_s[now_s] for now_s in range(201, 231)} == {201}
    assert {held_since_s[now_s] for now_s in range(231, 240)} == {math.inf}


@pytest.mark.parametrize("beat_s", [0, 3600])
async def test_a_process_that_ends_after_it_was_frozen_leaves_nothing(tmp_path, beat_s):
    async with opened(tmp_path, beat_s) as (broker, database):
        await broker.publish(LANE, numbered(1, 3))
        await Reading.of(broker)
        await freeze_here(broker, database)

    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as store:
        for table in ("owners", "readers", "beats", "claims"):
            assert store.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert messages.backlog(store, LANE) == 3


async def test_what_lay_here_for_long_is_not_said_to_be_had_by_nobody_else():
    """A freeze may have been between, that has not been noticed yet."""
    loop_now = asyncio.get_running_loop().time
    feeder = Feeder(None, "owner", beat_s=10)
    reader = EmbeddedReader(LANE, 1, 1, AT_HAND, lambda _: None, feeder)
    for first_until_s in (loop_now() + 3600, loop_now() - 1):
        batch = ClaimedBatch(1, [Taken(b"1", LANE, 1, is_first=True)], False, None)
        reader.fill(batch, most=AT_HAND, first_until_s=first_until_s)
        assert reader.take().is_first is (first_until_s > loop_now())
