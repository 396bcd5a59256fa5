"""Pushes that wait for their time: they hold nothing up, and go out when it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace as with_other
from datetime import datetime
from pathlib import Path
from typing import Any

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.ports import Source
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.due import due_ms, hop_s
from pushlane.model.load import Standing
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
    until_state,
)

NOON_MS = int(datetime.fromisoformat("2026-11-21T12:00:00+00:00").timestamp() * 1000)
HOUR_MS = 3_600_000


def task(**fields: Any) -> Task:
    return Task(id="t", level=Level.HIGH, lane="task-t", **fields)


def push(**fields: Any) -> Push:
    return Push("t", 1, "r", **fields)


def test_a_push_without_times_is_due_at_once() -> None:
    assert due_ms(task(), push(), NOON_MS) == NOON_MS


def test_a_push_waits_for_the_later_of_its_own_start_and_its_tasks() -> None:
    both = (task(not_before_ms=NOON_MS + 5), push(not_before_ms=NOON_MS + 7))
    assert due_ms(*both, NOON_MS) == NOON_MS + 7
    assert due_ms(task(not_before_ms=NOON_MS + 9), both[1], NOON_MS) == NOON_MS + 9


def test_quiet_hours_are_by_the_zone_of_the_push_else_of_the_task_else_utc() -> None:
    quiet = {"quiet": "20:00-22:00"}
    for told, zone in ((task(**quiet, zone="Asia/Tokyo"), ""), (task(**quiet), "Asia/Tokyo")):
        assert due_ms(told, push(zone=zone), NOON_MS) == NOON_MS + HOUR_MS  # 21:00 in Tokyo
    assert due_ms(task(**quiet), push(), NOON_MS) == NOON_MS


def test_a_zone_that_this_machine_does_not_know_counts_as_utc() -> None:
    told = task(quiet="11:00-13:00", zone="Mars/Olympus")
    assert due_ms(told, push(), NOON_MS) == NOON_MS + HOUR_MS
    assert Standing(told, 1).starts_at_ms(NOON_MS) == NOON_MS + HOUR_MS


def test_a_start_within_quiet_hours_is_put_off_to_their_end() -> None:
    waiting = push(not_before_ms=NOON_MS + 11 * HOUR_MS)
    assert due_ms(task(quiet="22:00-08:00"), waiting, NOON_MS) == NOON_MS + 20 * HOUR_MS


def test_a_zone_that_is_not_known_here_counts_as_utc() -> None:
    assert due_ms(task(quiet="11:00-13:00"), push(zone="Mars/X"), NOON_MS) == NOON_MS + HOUR_MS


def test_a_start_that_no_calendar_holds_waits_like_any_other() -> None:
    far = push(not_before_ms=2**62)
    assert due_ms(task(quiet="22:00-08:00"), far, NOON_MS) == far.not_before_ms


def test_one_hop_is_a_day_at_most() -> None:
    assert hop_s(NOON_MS + 500, NOON_MS) == 0.5
    assert hop_s(NOON_MS + 72 * HOUR_MS, NOON_MS) == 24 * 3600


async def add_pushes(backend: Backend, level: Level, starts_ms: Sequence[int]) -> Task:
    """A sealed task of a push for each start."""
    made = await add_task(backend, level, 0, seal=False)
    bodies = [
        encode(Push(made.id, seq, f"to-{seq}", not_before_ms=start, attempt=3))
        for seq, start in enumerate(starts_ms, start=1)
    ]
    await backend.broker.publish(own_lane(made.id), bodies)
    await backend.registry.change(made.id, task_changes.seal(len(bodies)))
    return made


async def test_a_push_goes_out_after_its_time_and_those_behind_it_do_not_wait(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        now_ms = start_ms = task_changes.now_ms()
        start_ms += 200
        mixed = await add_pushes(backend, Level.HIGH, [start_ms, 0, start_ms, 0])
        sink = MemorySink()

        async with dispatching(backend, sink, settings, clock_ms=lambda: now_ms) as dispatcher:
            await until(lambda: dispatcher.stats.deferred >= 4)  # each came once before its time
            assert [seq for _, seq in sink.pushes()] == [2, 4]
            now_ms = start_ms
            await until_state(backend, mixed, State.DONE)

        assert sorted(seq for _, seq in sink.pushes()) == [1, 2, 3, 4]
        assert {delivery.push.attempt for delivery in sink.received} == {3}


async def test_a_push_that_expires_while_it_waits_is_counted_as_expired(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        soon_ms = task_changes.now_ms() + 300
        made = await add_task(backend, pushes=0, seal=False)
        body = encode(Push(made.id, 1, "r", not_before_ms=soon_ms, expires_at_ms=soon_ms - 100))
        await backend.broker.publish(own_lane(made.id), [body])
        await backend.registry.change(made.id, task_changes.seal(1))
        sink = MemorySink()

        await drain(backend, sink, settings)

        [progress] = await backend.registry.progress([made.id])
        assert (progress.expired, sink.received) == (1, [])


class _NothingLater:
    """The broker, but what is sent to wait is not accepted until the event is set."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.accepts = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float = 0.0,
        source: Source | None = None,
    ) -> None:
        if delay_s:
            await self.accepts.wait()
        await self._broker.publish(lane, bodies, delay_s=delay_s, source=source)


async def test_lanes_full_of_waiting_pushes_hold_up_nobody_while_they_are_put_off(
    tmp_path: Path,
) -> None:
    """More of them than outcomes have room for, and none can be settled meanwhile."""

    async with backend_in(tmp_path) as (backend, settings):
        broker = _NothingLater(backend.broker)
        held = with_other(backend, broker=broker)
        start_ms = task_changes.now_ms() + HOUR_MS
        waiting = [await add_pushes(backend, Level.HIGH, [start_ms] * 2_000) for _ in range(6)]
        sink = MemorySink()

        async with dispatching(held, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.deferred >= 5_000)
            for level in (Level.HIGH, Level.MEDIUM, Level.LOW):
                await add_task(backend, level, 500)
            await sink.until_received(1_500)
            broker.accepts.set()

        assert not {made.id for made in waiting} & {task_id for task_id, _ in sink.pushes()}
