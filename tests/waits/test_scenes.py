"""Waits in scenes whose answer is known, in virtual time: each within a few parts in a hundred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from tests.core.support import dispatching
from tests.waits.scenes import SETTINGS, TakesTime, Told, add, add_up, split, told
from tests.waits.virtual import Clock, run_in

Scene = Callable[[Backend], Coroutine[Any, Any, None]]


def played(patch: pytest.MonkeyPatch, scene: Scene, clock: Clock | None = None) -> list[Told]:
    """Play a scene to its end, and return all receipts."""

    async def play() -> list[Told]:
        async with MemoryBackend().connect(SETTINGS) as backend:
            await scene(backend)
            return await told(backend)

    receipts = run_in(clock or Clock(), patch, play())
    add_up(receipts)
    return receipts


async def sent(sink: TakesTime, pushes: int) -> None:
    while len(sink.got) < pushes:
        await asyncio.sleep(0.1)


def test_alone_on_a_full_sink_all_is_its_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        await add(backend)
        async with dispatching(backend, sink, SETTINGS, clock_s=time.monotonic):
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["slot"] + split(receipts)["unseen"] >= 0.98


def test_of_two_equal_tasks_half_is_the_others_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        for _ in range(2):
            await add(backend)
        async with dispatching(backend, sink, SETTINGS, clock_s=time.monotonic):
            await sent(sink, 800)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["share"] == pytest.approx(0.5, abs=0.02)
