"""The dispatcher when something goes wrong: no push is lost, nobody else waits, and it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.ports import FoundTasks
from pushlane.core.errors import PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.core.ports import Delivery, LaneReader, OnReady
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, encode
from pushlane.core.task import Level, Progress, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.leader.janitor import Janitor
from pushlane.dispatcher.tasks import Completion, KnownTasks
from pushlane.model import task_changes
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until_state,
    until_task,
)


class SlowCounts(Wrapped):
    """A registry whose first answer about progress is held back after it was read."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def progress(self, task_ids: Sequence[str]) -> Sequence[Progress]:
        result: Sequence[Progress] = await self._real.progress(task_ids)
        self.asked.set()
        await self.answer.wait()
        return result


async def test_a_task_sealed_while_counts_are_being_read_is_done_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        first, second = [await add_task(backend, pushes=0) for _ in range(2)]
        tasks = KnownTasks(backend)
        tasks.apply(first)
        tasks.apply(second)
        registry = SlowCounts(backend.registry)
        completion = Completion(registry, tasks)
        running = asyncio.create_task(completion.run())

        completion.on_task(first)
        await registry.asked.wait()
        completion.on_task(second)
        registry.answer.set()

        await until_state(backend, first, State.DONE)
        await until_state(backend, second, State.DONE)
        running.cancel()


@asynccontextmanager
async def tidying(backend: Backend, *tasks: Task) -> AsyncIterator[Janitor]:
    """A janitor at work that has heard of these tasks."""
    janitor = Janitor(backend, "one", Settings())
    for task in tasks:
        janitor.on_task(task)
    running = asyncio.create_task(janitor.run())
    yield janitor
    running.cancel()


class FailsOnce(Wrapped):
    """An adapter one of whose methods raises, the first time it is called."""

    def __init__(self, real: Any, method: str, error: Exception) -> None:
        super().__init__(real)
        self._method = method
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = ""
            return self._fail
        return super().__getattr__(name)

    async def _fail(self, *_: Any) -> None:
        raise self._error


async def ended_task(backend: Backend) -> Task:
    return await backend.registry.change((await add_task(backend)).id, task_changes.cancel)


async def test_a_take_over_that_failed_is_made_up_for(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        old = await ended_task(backend)
        flaky = FailsOnce(backend.registry, "list", Unreachable("away"))

        async with tidying(with_other(backend, registry=flaky)):
            await until_task(backend, old, lambda now: now.lane_dropped)


async def test_a_change_that_others_stand_in_the_way_of_is_tried_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended_task(backend)
        flaky = FailsOnce(backend.registry, "change", TaskConflict("busy"))

        async with tidying(with_other(backend, registry=flaky), task):
            await until_task(backend, task, lambda now: now.lane_dropped)


class StuckLane(Wrapped):
    """A broker that can never drop one of its lanes."""

    def __init__(self, real: Any, lane: str) -> None:
        super().__init__(real)
        self._lane = lane

    async def drop_lane(self, lane: str) -> bool:
        if lane == self._lane:
            raise Unreachable(f"lane {lane} is broken")
        dropped: bool = await self._real.drop_lane(lane)
        return dropped


async def test_a_lane_that_cannot_be_dropped_keeps_no_other(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        stuck, other = await ended_task(backend), await ended_task(backend)
        broker = StuckLane(backend.broker, stuck.lane)

        async with tidying(with_other(backend, broker=broker), stuck, other):
            await until_task(backend, other, lambda now: now.lane_dropped)


class Meanwhile(Wrapped):
    """A broker during whose first drop something happens."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.happens: list[Any] = []

    async def drop_lane(self, lane: str) -> bool:
        while self.happens:
            self.happens.pop()()
        dropped: bool = await self._real.drop_lane(lane)
        return dropped


async def test_a_lane_that_another_drops_meanwhile_is_left_alone(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        first, gone, last = [await ended_task(backend) for _ in range(3)]
        broker = Meanwhile(backend.broker)

        async with tidying(with_other(backend, broker=broker), first, gone, last) as janitor:
            broker.happens.append(lambda: janitor.on_task(replace(gone, lane_dropped=True)))
            await until_task(backend, last, lambda now: now.lane_dropped)


class GoneLane(Wrapped):
    """A broker that has dropped one of its lanes just before it was to be read."""

    def __init__(self, real: Any, lane: str) -> None:
        super().__init__(real)
        self._lane = lane
        self.asked = asyncio.Event()

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        if lane == self._lane:
            self.asked.set()
            raise UnknownLane(f"there is no lane {lane}")
        reader: LaneReader = await self._real.read(lane, on_ready, depth)
        return reader


async def test_a_lane_that_is_gone_before_it_is_read_disturbs_nobody(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        gone, other = await add_task(backend), await add_task(backend)
        broker = GoneLane(backend.broker, gone.lane)

        async with dispatching(with_other(backend, broker=broker), MemorySink(), settings):
            await broker.asked.wait()
            await until_state(backend, other, State.DONE)


async def test_a_pool_lane_that_is_gone_before_it_is_read_is_made_anew(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=2) as (backend, settings):
        broker = FailsOnce(backend.broker, "read", UnknownLane("there is no lane pool-0"))
        while (task := await add_task(backend, Level.LOW)).lane != "pool-0":
            pass

        async with dispatching(with_other(backend, broker=broker), MemorySink(), settings):
            await until_state(backend, task, State.DONE)


class SwallowsCancel(Wrapped):
    """A broker below which a library swallows a cancellation, as Pulsar's admin client may."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.opening = asyncio.Event()

    async def open_lane(self, lane: str) -> None:
        if lane.startswith("pool-") and not self.opening.is_set():
            self.opening.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await self._real.open_lane(lane)


async def test_it_stops_though_a_library_swallows_the_first_cancellation(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (backend, settings):
        broker = SwallowsCancel(backend.broker)

        async with dispatching(with_other(backend, broker=broker), MemorySink(), settings):
            await broker.opening.wait()


class DeafRegistry(Wrapped):
    """A registry that does not answer when it is asked for single tasks."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()

    async def some(self, _: Sequence[str]) -> FoundTasks:
        self.asked.set()
        raise Unreachable("the registry is away")


async def publish_to_pool(backend: Backend, *pushes: Push) -> None:
    await backend.broker.open_lane("pool-0")
    await backend.broker.publish("pool-0", [encode(push) for push in pushes])


async def test_it_stops_while_the_task_of_a_push_cannot_be_looked_up(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await publish_to_pool(backend, Push("nobodys", 1, "to-1"))
        registry = DeafRegistry(backend.registry)

        async with dispatching(with_other(backend, registry=registry), MemorySink(), settings):
            await registry.asked.wait()

        assert await backend.broker.backlog("pool-0") == 1


@pytest.mark.parametrize("name", ["", "nobodys"])
async def test_a_push_of_an_unknown_task_is_dropped_even_if_another_is_named_so(
    tmp_path: Path, name: str
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        other = await add_task(backend, name=name)
        await publish_to_pool(backend, Push("nobodys", 1, "to-1"))
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(backend, other, State.DONE)
            async with asyncio.timeout(DEADLINE_S):
                while await backend.broker.backlog("pool-0"):
                    await asyncio.sleep(0)

        assert not [push for push in sink.pushes() if push[0] == "nobodys"]


async def test_when_cancelled_it_gives_up_what_flies_and_lets_others_have_the_lanes(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=100)
        sink = MemorySink()
        sink.gate.clear()
        dispatcher = Dispatcher(backend, sink, settings)
        running = asyncio.create_task(dispatcher.run())
        await sink.until_received(settings.slots)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert not dispatcher.reads(task.lane)
        assert not {flight for flight in asyncio.all_tasks() if "deliver" in repr(flight)}
        await drain(backend, second := MemorySink(), settings)
        assert sorted(second.pushes()) == [(task.id, seq) for seq in range(1, 101)]


async def test_when_the_broker_is_away_at_the_start_it_says_so_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        before = asyncio.all_tasks()
        broker = FailsOnce(backend.broker, "ping", Unreachable("the broker is away"))

        with pytest.raises(Unreachable, match="the broker is away"):
            await Dispatcher(with_other(backend, broker=broker), MemorySink(), settings).run()

        assert asyncio.all_tasks() == before


async def test_stopped_before_it_runs_it_ends_at_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend)
        dispatcher = Dispatcher(backend, sink := MemorySink(), settings)
        dispatcher.stop()

        async with asyncio.timeout(DEADLINE_S):
            await dispatcher.run()

        assert not sink.received


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [None],
        ["delivered"],
        [Outcome("delivered")],
        [Outcome(Kind.DELIVERED, scope="sink")],
        [DELIVERED, DELIVERED],
    ],
)
async def test_a_sink_that_answers_nonsense_means_a_retry(tmp_path: Path, wrong: Any) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=1, max_attempts=1)
        sink = MemorySink()
        sink.deliver = answer_with(wrong)  # type: ignore[method-assign]

        await drain(backend, sink, settings)

        (progress,) = await backend.registry.progress([task.id])
        assert progress.dead == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
async def test_what_ends_only_the_sinks_own_work_means_a_retry(
    tmp_path: Path, error: type[BaseException]
) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):

        def answer(delivery: Delivery) -> Outcome:
            if delivery.push.attempt == 1:
                raise error
            return DELIVERED

        task = await add_task(backend, pushes=2)

        await drain(backend, MemorySink(answer), settings)

        (progress,) = await backend.registry.progress([task.id])
        assert progress.delivered == 2


def answer_with(wrong: Any) -> Any:
    async def deliver(_: Any) -> Any:
        return wrong

    return deliver


async def test_a_sink_that_asks_for_an_endless_wait_is_asked_again_within_a_day(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=1)
        broker = Watched(backend.broker)
        sink = MemorySink(lambda _: Outcome.retry("later", after_s=1e300))

        async with dispatching(with_other(backend, broker=broker), sink, settings):
            await broker.delayed.wait()

        assert broker.delay_s == 86_400


class Watched(Wrapped):
    """A broker that tells of what is published with a delay."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.delay_s = 0.0
        self.delayed = asyncio.Event()

    async def publish(
        self, lane: str, bodies: Sequence[bytes], *, delay_s: Sequence[float], source: None
    ) -> None:
        await self._real.publish(lane, bodies, delay_s=delay_s)
        [self.delay_s] = delay_s
        self.delayed.set()


@pytest.mark.parametrize("error", [Unreachable("away"), TaskConflict("busy")])
async def test_a_pause_that_does_not_get_through_is_tried_again(
    tmp_path: Path, error: PushlaneError
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=1)
        flaky = FailsOnce(backend.registry, "change", error)
        sink = MemorySink(lambda _: Outcome.pause("HTTP 401"))

        async with dispatching(with_other(backend, registry=flaky), sink, settings):
            paused = await until_state(backend, task, State.PAUSED)

        assert paused.reason == "HTTP 401"


@pytest.mark.parametrize("ended", [UnknownTask("gone"), None])
async def test_a_pause_of_a_task_that_has_ended_is_forgotten(
    tmp_path: Path, ended: PushlaneError | None
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task, other = await add_task(backend, pushes=1), await add_task(backend, pushes=1)
        sink = MemorySink(
            lambda d: Outcome.pause("HTTP 401") if d.push.task_id == task.id else DELIVERED
        )
        sink.gate.clear()
        registry = FailsOnce(backend.registry, "change", ended) if ended else backend.registry

        async with dispatching(with_other(backend, registry=registry), sink, settings):
            await sink.until_received(2)
            if ended is None:
                await backend.registry.change(task.id, task_changes.cancel)
            sink.gate.set()
            await until_state(backend, other, State.DONE)


async def test_a_lane_stays_for_its_retention_and_goes_after(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        kept = await add_task(backend, pushes=0, seal=False, retention_s=600.0)
        over = await add_task(backend, pushes=0, seal=False, retention_s=0.01)
        for task in (kept, over):
            await backend.registry.change(task.id, task_changes.seal(0))
            await backend.registry.change(task.id, task_changes.finish(State.DONE))

        async with tidying(backend):
            await until_task(backend, over, lambda now: now.lane_dropped)

        assert not (await backend.registry.get(kept.id)).lane_dropped
        assert kept.lane in await backend.broker.lanes()


async def test_a_lane_with_something_left_to_send_is_not_dropped(tmp_path: Path) -> None:
    """As when counts were lost: the task was ended, and yet a push turns up."""

    async with backend_in(tmp_path) as (backend, _):
        full = await add_task(backend, pushes=1)
        empty = await add_task(backend, pushes=0, seal=False)
        await backend.registry.change(empty.id, task_changes.seal(1))
        for task in (full, empty):
            await backend.registry.change(task.id, task_changes.finish(State.DONE))

        async with tidying(backend):
            await until_task(backend, empty, lambda now: now.lane_dropped)

        assert full.lane in await backend.broker.lanes()
