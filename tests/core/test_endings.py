"""Endings are late no longer once they are durable, whoever is still told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pushlane.core import endings
from pushlane.core.endings import Ending, Flusher
from pushlane.core.lane import Lane, Message
from pushlane.core.ports import Taken
from pushlane.core.push import Kind, Push, encode
from pushlane.core.task import Finished, Level, Progress
from tests.core.support import DEADLINE_S


class Services:
    """A broker and a registry that take all."""

    async def ack(self, taken: Sequence[Taken]) -> None:
        """Done."""

    async def record(self, finished: Sequence[Finished]) -> Sequence[Progress]:
        return []


class SlowListener:
    """Takes its time once it has heard."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def settled(self, *_: Any) -> None:
        self.heard.set()
        await asyncio.Event().wait()


async def no_receipts(_: Sequence[Ending]) -> None:
    """There are none."""


async def test_a_lane_that_wakes_the_loop_finds_nothing_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endings, "_LATEST_S", 0.0)
    late: list[bool] = []
    lane = Lane("lane", Level.HIGH, mark=lambda _: late.append(flusher.is_late))
    services: Any = Services()
    listener = SlowListener()
    flusher = Flusher(services, services, no_receipts, [listener])
    lane.add(lane.main, [Message(Taken(encode(Push("t", 1, "to-1")), lane.name, None))])
    job = lane.take()
    assert job is not None
    flusher.count(lane)
    flusher.add_new([Ending(job, Kind.DELIVERED, Kind.DELIVERED)])
    assert flusher.is_late
    late.clear()

    running = asyncio.create_task(flusher.run())
    async with asyncio.timeout(DEADLINE_S):
        await listener.heard.wait()
    running.cancel()

    assert late == [False]
    assert not flusher.is_late
