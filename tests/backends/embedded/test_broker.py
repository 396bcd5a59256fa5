"""What the embedded broker promises beyond the contract: order, overlap, bounds, drops."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.embedded import messages
from pushlane.backends.embedded.broker import BYTES_HELD, fair_depth
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.messages import ClaimRequest, claim, give_back, register
from pushlane.backends.embedded.schema import prepare
from pushlane.core.errors import PushlaneError
from pushlane.core.ports import Source
from pushlane.settings import Settings
from tests.contract.reading import LANE, Reading, bodies, numbered, until


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.but(**{"prefetch": 16})


@pytest.fixture
def store(tmp_path):
    """A store as jobs see it, with one lane."""
    connection = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    prepare(connection, tmp_path)
    messages.open_lane(connection, LANE)
    yield connection
    connection.close()


@asynccontextmanager
async def open_broker(settings):
    async with connect(settings) as backend:
        await backend.broker.open_lane(LANE)
        yield backend.broker


async def test_what_comes_back_goes_before_what_is_fresh(settings):
    async with open_broker(settings) as broker:
        await broker.publish(LANE, numbered(1, 100))
        leaving = await Reading.of(broker)
        await leaving.take(3)
        await leaving.close()

        reading = await Reading.of(broker)

        assert bodies(await reading.take(100)) == numbered(1, 100)


async def test_two_readers_of_one_process_share_a_lane(settings):
    async with open_broker(settings) as broker:
        first, second = await Reading.of(broker), await Reading.of(broker)
        await broker.publish(LANE, numbered(1, 16))

        taken = await _take_from_both(first, second, 16)

        assert sorted(taken, key=int) == numbered(1, 16)


async def _take_from_both(first: Reading, second: Reading, count: int) -> list[bytes]:
    taken: list[bytes] = []
    while len(taken) < count:
        taken += [one.body for r in (first, second) if (one := r.reader.take())]
        await asyncio.sleep(0)
    return taken


def test_a_publish_that_overlaps_an_earlier_one_adds_only_what_is_new(store):
    messages.publish(store, LANE, numbered(1, 10), 0, Source("submit", range(1, 11)))

    messages.publish(store, LANE, numbered(6, 15), 0, Source("submit", range(6, 16)))
    messages.publish(store, LANE, numbered(3, 4), 0, Source("submit", range(3, 5)))

    assert _claim_all(store) == numbered(1, 15)


def test_numbers_may_leave_gaps(store):
    messages.publish(store, LANE, [b"8", b"16"], 0, Source("submit", [8, 16]))

    messages.publish(store, LANE, [b"16", b"17"], 0, Source("submit", [16, 17]))
    messages.publish(store, LANE, [b"12", b"40"], 0, Source("submit", [12, 40]))

    assert _claim_all(store) == [b"8", b"16", b"17", b"40"]


def test_a_publish_of_nothing_is_not_remembered(store):
    messages.publish(store, LANE, [], 0, Source("submit", []))

    assert store.execute("SELECT count(*) FROM publishers").fetchone() == (0,)


def test_sources_do_not_count_for_each_other(store):
    messages.publish(store, LANE, [b"a"], 0, Source("one", [1]))
    messages.publish(store, LANE, [b"b"], 0, Source("two", [1]))

    assert _claim_all(store) == [b"a", b"b"]


def test_what_is_due_goes_before_what_is_fresh(store):
    messages.publish(store, LANE, [b"fresh"], 0, None)
    messages.publish(store, LANE, [b"due"], 500, None)
    messages.publish(store, LANE, [b"not yet"], 2000, None)

    assert _claim_all(store, now_ms=1000) == [b"due", b"fresh"]


def test_a_claim_says_when_the_next_comes_due(store):
    messages.publish(store, LANE, [b"not yet"], 2000, None)

    batch = _claim(store, most=10, now_ms=1000)

    assert (batch.taken, batch.more, batch.due_at_ms) == ([], False, 2000)


def test_a_claim_takes_no_more_than_it_wants_and_says_there_is_more(store):
    messages.publish(store, LANE, numbered(1, 5), 0, None)
    messages.publish(store, LANE, numbered(6, 9), 500, None)

    batch = _claim(store, most=5, now_ms=1000)

    assert bodies(batch.taken) == [*numbered(6, 9), b"1"]
    assert batch.more


def test_an_ack_of_what_has_gone_back_finishes_it(store):
    messages.publish(store, LANE, [b"1"], 0, None)
    reader_id, lane_id = register(store, "owner", LANE)
    [batch] = claim(store, [ClaimRequest(reader_id, lane_id, LANE, 5)], 0)
    give_back(store, reader_id, lane_id)

    messages.ack(store, [batch.taken[0].handle])

    assert messages.backlog(store, LANE) == 0
    assert _claim_all(store) == []


def test_a_dropped_lane_is_swept_in_chunks_and_wholly(store):
    for due_at_ms in (0, 5000):
        messages.publish(store, LANE, [b"x"] * (messages.DROP_CHUNK + 1), due_at_ms, None)
    messages.open_lane(store, "task-b")
    messages.publish(store, "task-b", [b"kept"], 0, None)
    messages.drop_lane_now(store, messages.lane_id(store, LANE))

    sweeps = 0
    while messages.sweep(store):
        sweeps += 1

    assert sweeps > 2
    assert store.execute("SELECT count(*) FROM waiting").fetchone() == (0,)
    assert store.execute("SELECT body FROM messages").fetchall() == [(b"kept",)]


async def test_a_drop_that_was_cut_off_is_finished_by_the_next_process(settings):
    async with open_broker(settings) as broker:
        await broker.publish(LANE, numbered(1, 10))
    database = Database(settings.data_dir)
    await database.open()
    await database.write(lambda c: messages.drop_lane_now(c, messages.lane_id(c, LANE)))

    async with connect(settings) as backend:
        await backend.broker.open_lane("task-b")
        await backend.broker.read("task-b", lambda _: None)

        async def is_swept() -> bool:
            return await database.read(
                lambda c: c.execute("SELECT count(*) FROM messages").fetchone() == (0,)
            )

        await until(is_swept)

    await database.close()


async def test_few_readers_hold_half_of_what_each_was_given(settings):
    async with open_broker(settings) as broker:
        await broker.publish(LANE, numbered(1, 100))
        for depth, half in ((0, 8), (2, 1), (1, 1), (9, 4)):
            reading = await Reading.of(broker, depth=depth)
            await reading.ready()

            assert reading.reader.held == half


@pytest.mark.parametrize("readers", [1, 4096])
def test_all_readers_together_hold_no_more_than_a_process_may(readers):
    depth = fair_depth(readers=readers, body_bytes=1000)

    assert BYTES_HELD / 2 < depth * readers * 1000 <= BYTES_HELD


def test_every_reader_may_hold_one_message():
    assert fair_depth(readers=100_000, body_bytes=64_000) == 1


async def test_a_feeder_that_dies_is_told_to_the_next_caller(settings):
    def fail(reader) -> None:
        raise KeyError("a defect")

    async with open_broker(settings) as broker:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await broker.read(LANE, fail)
        await broker.publish(LANE, [b"1"])

        async def is_told() -> bool:
            try:
                await broker.ack([])
            except PushlaneError as error:
                return "feeder died with KeyError" in str(error)
            return False

        await until(is_told)


def _claim(store, most: int, now_ms: int):
    reader_id, lane_id = register(store, "owner", LANE)
    [batch] = claim(store, [ClaimRequest(reader_id, lane_id, LANE, most)], now_ms)
    return batch


def _claim_all(store, now_ms: int = 0) -> list[bytes]:
    reader_id, lane_id = register(store, "owner", LANE)
    batches = claim(store, [ClaimRequest(reader_id, lane_id, LANE, 1000)], now_ms)
    return [body for batch in batches for body in bodies(batch.taken)]
