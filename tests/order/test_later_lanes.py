"""Pushes that wait for their time do so on a lane of their own, which is opened when needed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.core.errors import Unreachable
from pushlane.core.lane import Lane, Message
from pushlane.core.names import later_lane, own_lane
from pushlane.core.ports import Delivery, Source, Taken
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.wire import bodies_of
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    drain,
    message_of,
    until,
    until_state,
    until_task,
)


def busy_at_first(delivery: Delivery) -> Outcome:
    return Outcome.retry("busy", after_s=0.1) if delivery.push.attempt == 1 else DELIVERED


class Watched:
    """A real broker that remembers what was opened, and how many pushes were published where."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.opened: list[str] = []
        self.published: Counter[str] = Counter()
        self.fails = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def open_lane(self, lane: str) -> None:
        self.opened.append(lane)
        if lane.startswith("task-") and self.fails:
            self.fails -= 1
            raise Unreachable("the broker is away")
        await self._real.open_lane(lane)

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float = 0,
        source: Source | None = None,
    ) -> None:
        await self._real.publish(lane, bodies, delay_s=delay_s, source=source)
        self.published[lane] += sum(len(list(bodies_of(body))) for body in bodies)


class Deck:
    """A reader that has so many messages."""

    def __init__(self, lane: str, count: int) -> None:
        self.lane = lane
        self._left = [message_of(lane, seq).taken for seq in range(1, count + 1)]

    def take(self) -> Taken | None:
        return self._left.pop(0) if self._left else None

    def refill_wait_s(self) -> float:
        return 0.0

    async def close(self) -> None:
        return None


def fed_lane(main: int, later: int) -> Lane:
    lane = Lane("task-a", Level.HIGH)
    for lane_input, count in ((lane.main, main), (lane.later, later)):
        lane_input.reader = Deck(lane_input.name, count)
        lane_input.has_more = True
        lane_input.add(map(Message, lane_input.pull()))
    return lane


def test_what_came_due_goes_before_the_rest_and_after_what_was_given_back() -> None:
    lane = fed_lane(main=2, later=2)
    first = lane.take()
    assert first is not None
    lane.give_back(first)

    taken = [lane.take() for _ in range(4)]

    assert [one and (one.came_on, one.seq) for one in taken] == [
        ("task-a-later", 1),
        ("task-a-later", 2),
        ("task-a", 1),
        ("task-a", 2),
    ]


def test_a_lane_is_dry_only_when_both_its_readers_are() -> None:
    lane = fed_lane(main=1, later=1)

    assert lane.take() is not None
    assert lane.fed
    assert lane.take() is not None
    assert not lane.fed
    assert lane.take() is None


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_retries_wait_on_the_later_lane_and_leave_the_main_lane_alone(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, level, 20)
        broker = Watched(backend.broker)

        await drain(with_other(backend, broker=broker), MemorySink(busy_at_first), settings)

        assert broker.published == {later_lane(task.lane): 20}


async def test_a_later_lane_is_opened_once_however_many_pushes_wait_for_it(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 15)
        broker = Watched(backend.broker)

        await drain(with_other(backend, broker=broker), MemorySink(busy_at_first), settings)

        assert broker.opened.count(later_lane(task.lane)) == 1


async def test_a_later_lane_that_cannot_be_opened_at_once_costs_no_push(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 20)
        broker = Watched(backend.broker)
        broker.fails = 2

        await drain(with_other(backend, broker=broker), MemorySink(busy_at_first), settings)

        (progress,) = await backend.registry.progress([task.id])
        assert (broker.fails, progress.delivered) == (0, 20)


async def test_a_task_in_which_no_push_waits_has_no_later_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 5)
        broker = Watched(backend.broker)

        await drain(with_other(backend, broker=broker), MemorySink(), settings)

        assert later_lane(task.lane) not in broker.opened


async def test_every_dispatcher_reads_a_later_lane_that_one_has_opened(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 10)
        async with dispatching(
            backend, MemorySink(lambda _: Outcome.retry("busy", after_s=0.5)), settings
        ):
            await until_task(backend, task, lambda now: now.has_later)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert Counter(sink.pushes()) == Counter((task.id, seq) for seq in range(1, 11))


async def test_pushes_that_wait_follow_their_task_to_a_lane_of_its_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.LOW, 10)
        sink = MemorySink(
            lambda d: Outcome.retry("busy", after_s=0.5) if d.push.attempt == 1 else DELIVERED
        )
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(10)
            await backend.promote(task.id, Level.HIGH)
            await until_state(backend, task, State.DONE)

            assert dispatcher.stats.forwarded >= 10
        assert {d.level for d in sink.received[10:]} == {Level.HIGH}


async def test_both_lanes_of_a_task_are_dropped_when_it_has_ended(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 10)
        async with dispatching(backend, MemorySink(busy_at_first), settings):
            await until_task(backend, task, lambda now: now.lane_dropped)

        left = set(await backend.broker.lanes())
        assert not left & {task.lane, later_lane(task.lane)}


async def test_a_task_that_has_ended_gets_no_later_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 1)
        await backend.registry.change(task.id, task_changes.cancel)

        assert not (await backend.open_later(task.id)).has_later
        assert later_lane(own_lane(task.id)) not in await backend.broker.lanes()


class EndsInBetween:
    """A registry whose task is cancelled while its later lane is being opened."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def change(self, task_id: str, edit: task_changes.Edit) -> Task:
        await self._real.change(task_id, task_changes.cancel)
        task: Task = await self._real.change(task_id, edit)
        return task


async def test_a_task_that_ends_while_its_later_lane_opens_leaves_no_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 1)

        await with_other(backend, registry=EndsInBetween(backend.registry)).open_later(task.id)

        assert later_lane(task.lane) not in await backend.broker.lanes()


async def test_a_lane_that_has_to_be_opened_holds_up_no_other(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        slow, quick = await add_task(backend, Level.HIGH, 5), await add_task(backend, Level.HIGH, 5)
        opened = asyncio.Event()

        class Slow(Watched):
            async def open_lane(self, lane: str) -> None:
                if lane == later_lane(slow.lane):
                    await opened.wait()
                await super().open_lane(lane)

        broker = Slow(backend.broker)
        async with dispatching(
            with_other(backend, broker=broker), MemorySink(busy_at_first), settings
        ):
            await until_state(backend, quick, State.DONE)
            assert not (await backend.registry.get(slow.id)).has_later
            opened.set()
            await until_state(backend, slow, State.DONE)


class NoMoreAcks(Watched):
    """A broker to which no ack gets through, as if the process died just before each."""

    async def ack(self, taken: Sequence[Taken]) -> None:
        await asyncio.Event().wait()


async def test_a_process_lost_between_republish_and_ack_loses_no_push(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 15)
        broker = NoMoreAcks(backend.broker)
        lost = Dispatcher(with_other(backend, broker=broker), MemorySink(busy_at_first), settings)
        running = asyncio.create_task(lost.run())
        await until(lambda: broker.published[later_lane(task.lane)] >= 15)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        sink = MemorySink()

        await drain(backend, sink, settings)

        [progress] = await backend.registry.progress([task.id])
        assert progress.delivered == 15
        assert {seq for _, seq in sink.pushes(task)} == set(range(1, 16))


@pytest.mark.parametrize("moves", [False, True])
async def test_a_pool_lane_that_is_over_our_own_number_is_drained_too(
    tmp_path: Path, moves: bool
) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (backend, settings):
        await backend.broker.open_lane("pool-7")
        task = await add_task(backend, Level.LOW, 0, seal=False)
        await backend.registry.change(
            task.id, lambda now: replace(now, lane="pool-7", first_lane="pool-7")
        )
        await backend.broker.publish("pool-7", [encode(Push(task.id, 1, "to-1"))])
        if moves:
            await backend.promote(task.id, Level.HIGH)
        await backend.registry.change(task.id, task_changes.seal(1))
        sink = MemorySink(busy_at_first)

        await drain(backend, sink, settings)

        assert sink.pushes(task) == [(task.id, 1)] * 2
