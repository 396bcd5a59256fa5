"""While clocks step, or differ, the leader destroys nothing until they can be believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.ports import Grant
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.dispatcher.leader.janitor import Janitor
from pushlane.model import task_changes
from pushlane.settings import Settings
from tests.core.support import DEADLINE_S, Wrapped, add_task, backend_in, until_task

HOUR_S = 3600.0
RENEWED_S = 4.0  # a leader asks for its lease again within that time


class Times:
    """The monotonic clock, and how far the store's and this machine's wall clock are ahead."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.store_ahead_s = 0.0
        self.wall_ahead_s = 0.0
        self._begun_ms = now_ms()

    def seconds(self) -> float:
        return 1_000.0 + self.passed_s

    def wall_ms(self) -> int:
        return self._begun_ms + round((self.passed_s + self.wall_ahead_s) * 1000)

    def store_ms(self) -> int:
        return self._begun_ms + round((self.passed_s + self.store_ahead_s) * 1000)


class TimedLease(Wrapped):
    """A real lease that tells the store's time of the test, and when it was asked."""

    def __init__(self, real: Any, times: Times) -> None:
        super().__init__(real)
        self._times = times
        self.asked = asyncio.Condition()
        self.grants = 0

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        grant = await self._real.acquire(name, holder, ttl_s)
        async with self.asked:
            self.grants += 1
            self.asked.notify_all()
        return grant and Grant(grant.number, self._times.store_ms())


class Leading:
    """A janitor at work, on clocks of the test's own."""

    def __init__(self, backend: Backend, times: Times) -> None:
        self.times = times
        self.lease = TimedLease(backend.lease, times)
        self.janitor = Janitor(
            with_other(backend, lease=self.lease), "one", Settings(), times.seconds, times.wall_ms
        )

    async def goes_on(self, rounds: int = 2, every_s: float = RENEWED_S) -> None:
        """Let the janitor do so many rounds, each with a new grant, `every_s` apart."""
        for _ in range(rounds):
            self.times.passed_s += every_s
            before = self.lease.grants
            async with asyncio.timeout(DEADLINE_S), self.lease.asked:
                await self.lease.asked.wait_for(lambda: self.lease.grants > before)  # noqa: B023


@asynccontextmanager
async def leading(backend: Backend, times: Times, *tasks: Task) -> AsyncIterator[Leading]:
    one = Leading(backend, times)
    for task in tasks:
        one.janitor.on_task(task)
    running = asyncio.create_task(one.janitor.run())
    await one.goes_on(rounds=1)
    yield one
    running.cancel()


async def expiring(backend: Backend, in_s: float) -> Task:
    return await add_task(backend, pushes=1, expires_at_ms=now_ms() + round(in_s * 1000))


async def state_of(backend: Backend, task: Task) -> State:
    return (await backend.registry.get(task.id)).state


async def test_a_step_forward_ends_nothing_for_ten_minutes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, times = await expiring(backend, 2 * HOUR_S), Times()
        async with leading(backend, times, task) as one:
            times.store_ahead_s = times.wall_ahead_s = 3 * HOUR_S

            await one.goes_on()
            assert one.janitor.is_waiting
            await one.goes_on(every_s=290.0)
            assert await state_of(backend, task) is State.RUNNING

            times.passed_s += 20.0
            ended = await until_task(backend, task, lambda one: one.state.is_terminal)
            assert ended.state is State.EXPIRED
            assert not one.janitor.is_waiting


async def test_a_step_back_keeps_no_lane_for_longer_than_ten_minutes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, times = await add_task(backend, pushes=1), Times()
        times.store_ahead_s = times.wall_ahead_s = HOUR_S
        async with leading(backend, times, task) as one:
            times.store_ahead_s = times.wall_ahead_s = 0.0
            await one.goes_on()
            one.janitor.on_task(await backend.registry.change(task.id, task_changes.cancel))

            await one.goes_on()
            assert one.janitor.is_waiting
            assert task.lane in await backend.broker.lanes()
            times.passed_s += 600.0

            await until_task(backend, task, lambda one: one.lane_dropped)


async def test_while_clocks_differ_nothing_ends_and_all_goes_on_once_they_agree(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, times = await expiring(backend, HOUR_S / 2), Times()
        times.store_ahead_s = HOUR_S
        async with leading(backend, times, task) as one:
            await one.goes_on()
            assert one.janitor.is_waiting
            assert one.janitor.leader.store_clock.apart_s == pytest.approx(HOUR_S, abs=1.0)
            assert await state_of(backend, task) is State.RUNNING
            assert "3,600 s ahead of this machine's" in caplog.text
            assert "NTP" in caplog.text

            times.wall_ahead_s = HOUR_S
            times.passed_s += RENEWED_S
            ended = await until_task(backend, task, lambda one: one.state.is_terminal)

            assert ended.state is State.EXPIRED


async def test_while_clocks_differ_what_is_counted_is_still_called_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, times = await add_task(backend, pushes=0, seal=False), Times()
        task = await backend.registry.change(task.id, task_changes.seal(0))
        times.store_ahead_s = HOUR_S
        async with leading(backend, times, task):
            await until_task(backend, task, lambda one: one.state is State.DONE)


async def ended(backend: Backend, task: Task, times: Times) -> Task:
    """The task, ended by a process whose clock is right."""

    def finish(task: Task) -> Task:
        return replace(task_changes.finish(State.DONE)(task), finished_at_ms=times.wall_ms())

    return await backend.registry.change(task.id, finish)


async def test_a_clock_that_was_wrong_at_the_start_makes_no_shared_lane_passed(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        first, times = await add_task(backend, Level.LOW, pushes=0), Times()
        times.store_ahead_s = times.wall_ahead_s = HOUR_S
        async with leading(backend, times) as one:
            times.store_ahead_s = times.wall_ahead_s = 0.0
            await one.goes_on()
            await one.goes_on(every_s=300.0)
            one.janitor.on_task(await ended(backend, first, times))
            await until_task(backend, first, lambda task: task.lane_dropped)

            while (left := await add_task(backend, Level.LOW, pushes=1)).lane != first.lane:
                pass
            times.passed_s += 1.0
            one.janitor.on_task(await ended(backend, left, times))
            await one.goes_on(rounds=4)

            assert not (await backend.registry.get(left.id)).lane_dropped


async def test_the_registry_keeps_up_while_it_leads_even_if_clocks_are_in_doubt(
    tmp_path: Path,
) -> None:
    class Counting(Wrapped):
        looks = 0

        async def keep_up(self) -> None:
            self.looks += 1

    async with backend_in(tmp_path) as (backend, _):
        registry, times = Counting(backend.registry), Times()
        await backend.lease.acquire("janitor", "another", 10.0)
        await Janitor(with_other(backend, registry=registry), "two", Settings())._round()
        assert not registry.looks
        await backend.lease.release("janitor", "another")

        async with leading(with_other(backend, registry=registry), times) as one:
            await one.goes_on()
            assert registry.looks
            times.store_ahead_s = times.wall_ahead_s = 3 * HOUR_S
            await one.goes_on()
            assert one.janitor.is_waiting

            before = registry.looks
            await one.goes_on()
            assert registry.looks > before
