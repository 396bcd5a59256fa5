"""Messages at hand are bounded in bytes over all lanes, and yet each lane gets its turn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.embedded import broker as feeder
from pushlane.backends.embedded import messages
from pushlane.backends.embedded.broker import EmbeddedBroker
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.messages import ClaimedBatch, ClaimRequest, claim, register
from pushlane.backends.embedded.schema import prepare
from tests.contract.reading import Reading, bodies, until

LANES = [f"task-{number:02}" for number in range(12)]
KIB = 1024
AT_ONCE = 16 * KIB
HELD = 64 * KIB


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store as jobs see it."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        prepare(connection, tmp_path)
        yield connection


def filled(store: sqlite3.Connection, lane: str, *sizes: int, due_at_ms: int = 0) -> ClaimRequest:
    """A request of a reader for all of a lane that has messages of these sizes."""
    messages.open_lane(store, lane)
    messages.publish(
        store, lane, [body_of(size, n) for n, size in enumerate(sizes)], due_at_ms, None
    )
    return ClaimRequest(*register(store, "owner", lane), lane, 100)


def body_of(size: int, number: int) -> bytes:
    return b"%d" % number + b"." * (size - len(str(number)))


def sizes_of(batches: Sequence[ClaimedBatch]) -> list[list[int]]:
    return [[len(one.body) for one in batch.taken] for batch in batches]


def test_each_lane_gets_one_before_any_gets_more(store: sqlite3.Connection) -> None:
    requests = [filled(store, lane, 10, 10, 10) for lane in ("a", "b", "c")]

    batches = claim(store, requests, 0, most_bytes=45)

    assert sizes_of(batches) == [[10, 10], [10], [10]]
    assert [batch.more for batch in batches] == [True] * 3


def test_a_lane_without_room_has_more_and_keeps_all(store: sqlite3.Connection) -> None:
    requests = [filled(store, "a", 30), filled(store, "b", 30, 20), filled(store, "c", 5)]

    batches = claim(store, requests, 0, most_bytes=40)

    assert sizes_of(batches) == [[30], [], [5]]
    assert [batch.more for batch in batches] == [False, True, False]
    assert messages.backlog(store, "b") == 2
    assert sizes_of(claim(store, requests, 0, most_bytes=50)) == [[30, 20]]


def test_one_that_is_larger_than_all_may_be_goes_alone(store: sqlite3.Connection) -> None:
    requests = [filled(store, "a", 90, 1), filled(store, "b", 1)]

    assert sizes_of(claim(store, requests, 0, most_bytes=50)) == [[90], []]
    assert sizes_of(claim(store, requests, 0, most_bytes=50)) == [[1], [1]]


def test_what_came_due_and_has_no_room_is_still_due_and_first(store: sqlite3.Connection) -> None:
    due = filled(store, "a", 20, 21, 22, due_at_ms=500)
    messages.publish(store, "a", [b"." * 5], 0, None)

    rounds = [sizes_of(claim(store, [due], 1_000, most_bytes=41)) for _ in range(3)]

    assert rounds == [[[20, 21]], [[22, 5]], []]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[EmbeddedBroker]:
    database = Database(folder)
    await database.open()
    broker = EmbeddedBroker(database, depth=64, beat_s=3600)
    try:
        yield broker
    finally:
        await broker.close()
        await database.close()


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each claim that brought something; the bounds are small."""
    seen: list[int] = []

    def counted(*given: Any) -> list[ClaimedBatch]:
        batches = claim(*given)
        if total := sum(map(sum, sizes_of(batches))):
            seen.append(total)
        return batches

    monkeypatch.setattr(feeder, "claim", counted)
    monkeypatch.setattr(feeder, "BYTES_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(feeder, "BYTES_HELD", HELD)
    return seen


async def fill(broker: EmbeddedBroker, lane: str, count: int, size: int) -> list[bytes]:
    await broker.open_lane(lane)
    all_of_it = [body_of(size, number) for number in range(count)]
    await broker.publish(lane, all_of_it)
    return all_of_it


async def test_a_round_over_many_lanes_is_bounded_and_all_get_something(
    tmp_path: Path, claimed: list[int]
) -> None:
    async with opened(tmp_path) as broker:
        for lane in LANES:
            await fill(broker, lane, 3, 6 * KIB)
        readings = [await Reading.of(broker, lane) for lane in LANES]
        for reading in readings:
            await reading.ready()

        assert max(claimed) <= AT_ONCE


async def test_greedy_lanes_keep_no_other_from_its_turn(tmp_path: Path, claimed: list[int]) -> None:
    """Only two fit into a claim: those that were left out go before those that ask again."""
    async with opened(tmp_path) as broker:
        for lane in LANES:
            await broker.open_lane(lane)
        readings = [await Reading.of(broker, lane) for lane in LANES]
        greedy = [asyncio.create_task(reading.take(100)) for reading in readings[:4]]
        for lane in LANES[:4]:
            await fill(broker, lane, 100, 7 * KIB)
        for lane in LANES[4:]:
            await fill(broker, lane, 1, 7 * KIB)
        for reading in readings[4:]:
            await reading.ready()

        assert not any(task.done() for task in greedy)
        assert max(claimed) <= AT_ONCE
        assert [len(taken) for taken in await asyncio.gather(*greedy)] == [100] * 4


async def test_what_is_at_hand_is_counted_and_not_guessed(
    tmp_path: Path, claimed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sizes that were seen before, all of the lane would be taken at hand."""
    monkeypatch.setattr(feeder, "_FIRST_GUESS", 10)
    monkeypatch.setattr(feeder.Feeder, "_weigh", lambda *_: None)
    async with opened(tmp_path) as broker:
        large = await fill(broker, "large", 64, 8 * KIB)
        reading = await Reading.of(broker, "large", depth=1_000)
        taken = await reading.take(1)

        async def is_full() -> bool:
            return broker._feeder.bytes_held >= HELD

        await until(is_full)
        for _ in range(5):
            await broker.ping()
        assert broker._feeder.bytes_held <= HELD + AT_ONCE

        assert bodies([*taken, *await reading.take(63)]) == large
        assert max(claimed) <= AT_ONCE
        assert broker._feeder.bytes_held == 0


async def test_lanes_that_nobody_takes_from_keep_no_other_from_its_turn(
    tmp_path: Path, claimed: list[int]
) -> None:
    """Beyond the bound each lane gets one message: what rests at a sink holds nothing else up."""
    async with opened(tmp_path) as broker:
        for lane in LANES:
            await fill(broker, lane, 64, 4 * KIB)
        idle = [await Reading.of(broker, lane, depth=1_000) for lane in LANES[:-1]]
        for reading in idle:
            await reading.ready()
        late = await Reading.of(broker, LANES[-1], depth=1_000)

        assert len(await late.take(64)) == 64
        assert broker._feeder.bytes_held <= HELD + AT_ONCE + len(LANES) * 4 * KIB


async def test_a_look_for_all_lanes_at_once_is_bounded_too(
    tmp_path: Path, claimed: list[int]
) -> None:
    """So it is after a freeze."""
    async with opened(tmp_path) as broker:
        for lane in LANES:
            await fill(broker, lane, 10, 6 * KIB)
        readings = [await Reading.of(broker, lane) for lane in LANES]
        for reading in readings:
            await reading.ready()
        claimed.clear()

        for _ in range(3):
            broker._feeder.ask_for_all()
            await broker.ping()

        taken = await asyncio.gather(*(reading.take(10) for reading in readings))
        assert [len(of_lane) for of_lane in taken] == [10] * len(LANES)
        assert max(claimed) <= AT_ONCE
