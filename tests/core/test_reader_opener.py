"""When a dispatcher begins: once what is on its first lanes has come off them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pushlane.core.lane import Lane
from pushlane.core.task import Level
from pushlane.dispatcher import lanes as reader_opener
from pushlane.dispatcher.lanes import ReaderOpener

FOR_EVER_S = 1_000.0


async def test_it_begins_when_nothing_more_comes_off_the_first_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes = [Lane(f"task-{number}", Level.HIGH, 8) for number in range(3)]
    unfed = iter(lanes)
    waits = 0

    async def feed_one(_: float) -> None:
        nonlocal waits
        waits += 1
        if lane := next(unfed, None):
            lane.main.messages = 1

    monkeypatch.setattr(reader_opener.asyncio, "sleep", feed_one)

    await opener(lanes).first_opened(FOR_EVER_S)

    assert all(lane.main.messages for lane in lanes)
    assert waits == len(lanes) + 2


@pytest.mark.parametrize(("fed", "looks"), [(0, 1_000), (1, 8)])
async def test_lanes_that_do_not_open_are_waited_for_until_something_is_at_hand(
    monkeypatch: pytest.MonkeyPatch, fed: int, looks: int
) -> None:
    lanes = [Lane(f"task-{number}", Level.HIGH, 8) for number in range(2)]
    waiting, waits = opener(lanes), 0
    waiting.open(lanes[1], lanes[1].main)
    lanes[0].main.messages = fed

    async def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 1_000:
            raise TimeoutError

    monkeypatch.setattr(reader_opener.asyncio, "sleep", wait)

    await waiting.first_opened(FOR_EVER_S)

    assert waits == looks


async def test_lanes_that_go_on_opening_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = [Lane(f"task-{number}", Level.HIGH, 8) for number in range(100)]
    waiting, waits = opener(lanes), 0
    waiting.open(lanes[-1], lanes[-1].main)

    async def feed_one_in_five(_: float) -> None:
        nonlocal waits
        waits += 1
        lanes[min(waits // 5, 99)].main.messages = 1

    monkeypatch.setattr(reader_opener.asyncio, "sleep", feed_one_in_five)
    lanes[0].main.messages = 1

    await waiting.first_opened(FOR_EVER_S)

    assert all(lane.main.messages for lane in lanes)


async def test_it_begins_in_time_though_a_first_lane_does_not_open() -> None:
    lane = Lane("task-0", Level.HIGH, 8)
    waiting = opener([lane])
    waiting.open(lane, lane.main)

    await waiting.first_opened(timeout_s=0.0)

    assert lane.main.reader is None


def opener(lanes: list[Lane]) -> ReaderOpener:
    synced = asyncio.Event()
    synced.set()
    known = SimpleNamespace(by_name={lane.name: lane for lane in lanes})
    return ReaderOpener(None, SimpleNamespace(synced=synced), known, lambda lane: None)
