"""What services answer wrongly, late or not at all: no dispatcher ends, no other lane waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.ports import FoundTasks
from pushlane.core import endings, lane
from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.core.names import later_lane, own_lane
from pushlane.core.ports import Delivery, LaneReader, OnReady
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.retrying import Backoff
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.lanes import OPENERS
from pushlane.dispatcher.leader.janitor import Janitor
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.settings import Settings
from pushlane.util.retrying import for_each
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
    until_task,
)

# The least likely to be forgiven: it stands for what the caller got wrong.
ERROR = BadInput("status 412, no leader yet")


class FailsFirst(Wrapped):
    """An adapter one of whose methods raises, the first few times it is called."""

    def __init__(self, real: Any, method: str, error: Exception, times: int = 2) -> None:
        super().__init__(real)
        self._method = method
        self._error = error
        self._left = times
        self.recovered = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        real = super().__getattr__(name)
        if name != self._method:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self._left:
                self._left -= 1
                raise self._error
            self.recovered.set()
            return await real(*args, **kwargs)

        return call


@pytest.mark.parametrize(
    ("port", "method"),
    [
        ("broker", "lanes"),
        ("broker", "read"),
        ("broker", "publish"),
        ("broker", "drop_lane"),
        ("broker", "ack"),
        ("registry", "changes"),
        ("registry", "page"),
        ("registry", "ended"),
        ("registry", "record"),
        ("registry", "progress"),
        ("registry", "change"),
        ("registry", "counted_since_ms"),
        ("lease", "acquire"),
        ("ledger", "claim"),
        ("ledger", "confirm"),
        ("receipts", "append"),
        ("receipts", "secret"),
    ],
)
async def test_a_service_that_fails_at_anything_is_asked_again(
    tmp_path: Path, port: str, method: str
) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        task = await add_task(backend, pushes=2, retention_s=0.0, delivery="once")
        flaky = FailsFirst(getattr(backend, port), method, ERROR)
        sink = MemorySink(lambda d: DELIVERED if d.push.attempt > 1 else Outcome.retry("again"))

        async with dispatching(with_other(backend, **{port: flaky}), sink, settings):
            await until_task(backend, task, lambda now: now.lane_dropped)
            await flaky.recovered.wait()

        [progress] = await backend.registry.progress([task.id])
        assert progress.delivered == 2


async def test_a_fault_of_ours_ends_the_process_and_the_last_line_says_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pushlane"):
        async with backend_in(tmp_path) as (backend, settings):
            await add_task(backend)
            broken = FailsFirst(backend.broker, "read", KeyError("secret"))

            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(PushlaneError, match="openers"):
                    await Dispatcher(
                        with_other(backend, broker=broken), MemorySink(), settings
                    ).run()

    last = caplog.records[-1].getMessage()
    assert "'openers'" in last
    assert "KeyError at test_service_faults.py" in last
    assert "secret" not in caplog.text


class SickLanes(Wrapped):
    """A broker that some lanes cannot be read of: each attempt fails at once, or never ends."""

    def __init__(self, real: Any, lanes: set[str], *, at_once: bool) -> None:
        super().__init__(real)
        self.sick = lanes
        self.attempts = 0
        self._at_once = at_once

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        if lane in self.sick:
            self.attempts += 1
            if not self._at_once:
                await asyncio.Event().wait()
            raise Unreachable(f"lane {lane} is not served")
        reader: LaneReader = await self._real.read(lane, on_ready, depth)
        return reader


@pytest.mark.parametrize("at_once", [True, False], ids=["failing at once", "never answering"])
async def test_lanes_that_cannot_be_opened_delay_no_other(tmp_path: Path, at_once: bool) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sick = [await add_task(backend, pushes=1) for _ in range(2 * OPENERS)]
        broker = SickLanes(backend.broker, {task.lane for task in sick}, at_once=at_once)

        async with dispatching(
            with_other(backend, broker=broker), MemorySink(), settings
        ) as dispatcher:
            await until(lambda: broker.attempts >= len(sick))
            for level in (Level.HIGH, Level.MEDIUM):
                new = await add_task(backend, level, pushes=1)
                await until_state(backend, new, State.DONE)

            assert not any(dispatcher.reads(task.lane) for task in sick)


async def test_a_lane_that_could_not_be_opened_is_opened_when_it_can_be(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend)
        broker = SickLanes(backend.broker, {task.lane}, at_once=True)

        async with dispatching(with_other(backend, broker=broker), MemorySink(), settings):
            await until(lambda: broker.attempts >= 3)
            broker.sick.clear()
            await until_state(backend, task, State.DONE)


class Unpublishable(Wrapped):
    """A broker on one of whose lanes nothing can be published, for some time."""

    def __init__(self, real: Any, lane: str, error: PushlaneError) -> None:
        super().__init__(real)
        self._lane = lane
        self._error = error
        self.is_sick = True
        self.attempts = 0

    async def publish(self, lane: str, bodies: Sequence[bytes], **options: Any) -> None:
        if lane == self._lane and self.is_sick:
            self.attempts += 1
            raise self._error
        await self._real.publish(lane, bodies, **options)


@pytest.mark.parametrize("outcome", [Outcome.retry("again"), Outcome.dead("refused")], ids=str)
async def test_a_lane_that_cannot_be_published_to_holds_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    monkeypatch.setattr(endings, "_MOST_UNSETTLED", 90)

    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        sick = await add_task(backend, pushes=200)
        target = later_lane(sick.lane) if outcome.reason == "again" else f"{sick.lane}-dead"
        broker = Unpublishable(backend.broker, target, Unreachable("no broker serves it"))

        def every_second(delivery: Delivery) -> Outcome:  # a sink that refuses all would be rested
            push = delivery.push
            is_refused = push.task_id == sick.id and push.attempt == 1 and push.seq % 2
            return outcome if is_refused else DELIVERED

        sink = MemorySink(every_second)

        async with dispatching(with_other(backend, broker=broker), sink, settings) as dispatcher:
            await until(lambda: broker.attempts >= 3)
            for _ in range(3):
                other = await add_task(backend, pushes=100)
                await until_state(backend, other, State.DONE)
            held = sum(seq % 2 for _, seq in sink.pushes(sick))
            assert held <= 32 + settings.slots
            broker.is_sick = False
            await until_state(backend, sick, State.DONE)
            assert not dispatcher.reads(sick.lane)


async def test_many_lanes_that_cannot_be_published_to_leave_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "_MOST_UNSETTLED", 60)

    class NoLaters(Wrapped):
        async def publish(self, lane: str, bodies: Sequence[bytes], **options: Any) -> None:
            if lane.endswith("-later"):
                raise Unreachable("no broker serves it")
            await self._real.publish(lane, bodies, **options)

    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        sick = {(await add_task(backend, pushes=100)).id for _ in range(12)}

        def every_second(delivery: Delivery) -> Outcome:  # a sink that refuses all would be rested
            is_refused = delivery.push.task_id in sick and delivery.push.seq % 2
            return Outcome.retry("again") if is_refused else DELIVERED

        sink = MemorySink(every_second)
        broker = NoLaters(backend.broker)
        dispatcher = Dispatcher(with_other(backend, broker=broker), sink, settings)
        running = asyncio.create_task(dispatcher.run())

        await until(lambda: {name for name, _ in sink.pushes()} >= sick)
        other = await add_task(backend, pushes=300)
        await until_state(backend, other, State.DONE)
        running.cancel()
        await asyncio.wait([running])


async def test_a_push_is_not_dropped_for_a_lane_that_the_broker_has_only_not_heard_of(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        task = await add_task(backend, pushes=3)
        target = later_lane(task.lane)
        broker = Unpublishable(backend.broker, target, UnknownLane("status 404"))
        sink = MemorySink(lambda d: DELIVERED if d.push.attempt > 1 else Outcome.retry("again"))

        async with dispatching(with_other(backend, broker=broker), sink, settings):
            await until(lambda: broker.attempts >= 3)
            broker.is_sick = False
            await until_state(backend, task, State.DONE)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dropped) == (3, 0)


async def test_a_push_whose_lane_went_with_its_task_is_dropped(tmp_path: Path) -> None:
    """The registry says so, whatever this process has heard of it."""

    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        task = await add_task(backend, pushes=1)
        target = later_lane(task.lane)
        broker = Unpublishable(backend.broker, target, UnknownLane("status 404"))
        sink = MemorySink(lambda _: Outcome.retry("again"))

        async with dispatching(with_other(backend, broker=broker), sink, settings) as dispatcher:
            await until(lambda: broker.attempts >= 1)
            await backend.registry.change(task.id, task_changes.cancel)
            await until(lambda: not dispatcher._lines[0].flusher.unsettled)

        [progress] = await backend.registry.progress([task.id])
        assert progress.dropped == 1


class NotHeardOf(Wrapped):
    """A broker that at first does not know one of the lanes that are to be read."""

    def __init__(self, real: Any, lane: Callable[[str], bool]) -> None:
        super().__init__(real)
        self._lane = lane
        self.denied = 0

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        if self._lane(lane) and self.denied < 3:
            self.denied += 1
            raise UnknownLane(f"there is no lane {lane}")
        reader: LaneReader = await self._real.read(lane, on_ready, depth)
        return reader


@pytest.mark.parametrize("is_later", [True, False])
async def test_a_lane_is_not_given_up_for_what_the_broker_has_not_heard_of(
    tmp_path: Path, is_later: bool
) -> None:
    async with backend_in(tmp_path, retry_first_s=0.01) as (backend, settings):
        task = await add_task(backend, pushes=20)
        broker = NotHeardOf(backend.broker, lambda lane: lane.endswith("-later") is is_later)
        sink = MemorySink(lambda d: DELIVERED if d.push.attempt > 1 else Outcome.retry("again"))

        async with dispatching(with_other(backend, broker=broker), sink, settings):
            await until_state(backend, task, State.DONE)

        assert broker.denied == 3


async def test_pushes_of_tasks_not_heard_of_are_held_up_to_a_bound_while_the_registry_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "ROOM", 10)

    class Away(Wrapped):
        is_away = True
        asked = 0

        async def some(self, task_ids: Sequence[str]) -> FoundTasks:
            self.asked += 1
            if self.is_away:
                raise Unreachable("the registry is away")
            found: FoundTasks = await self._real.some(task_ids)
            return found

    async with backend_in(tmp_path, pool_lanes=1) as (backend, settings):
        task = Task(id=new_task_id(), level=Level.LOW, lane="pool-0")
        await backend.broker.open_lane("pool-0")
        bodies = [encode(Push(task.id, seq, f"to-{seq}")) for seq in range(1, 101)]
        await backend.broker.publish("pool-0", bodies)
        registry = Away(backend.registry)
        sink = MemorySink()

        async with dispatching(with_other(backend, registry=registry), sink, settings) as running:
            await until(lambda: registry.asked >= 3)
            held = sum(one.in_hand for one in running._lines[0].lanes.by_name.values())
            await backend.registry.add(task)
            await backend.registry.change(task.id, task_changes.start)
            await backend.registry.change(task.id, task_changes.seal(100))
            registry.is_away = False
            await until_state(backend, task, State.DONE)

        assert 0 < held <= 10
        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 101)]


class SickLane(Wrapped):
    """A broker that cannot say anything of some lanes."""

    def __init__(self, real: Any, lane: str) -> None:
        super().__init__(real)
        self._lane = lane

    async def drop_lane(self, lane: str) -> bool:
        if lane == self._lane:
            raise Unreachable(f"lane {lane} is not served")
        dropped: bool = await self._real.drop_lane(lane)
        return dropped


async def test_a_lane_that_cannot_be_dropped_keeps_the_leader_from_nothing_else(
    tmp_path: Path,
) -> None:
    """A running task whose lane is lost gets it anew all the same."""

    async with backend_in(tmp_path) as (backend, _):
        stuck = await backend.registry.change((await add_task(backend)).id, task_changes.cancel)
        lost = await add_task(backend)
        await backend.broker.drop_lane(lost.lane)
        broker = SickLane(backend.broker, stuck.lane)
        janitor = Janitor(with_other(backend, broker=broker), "one", Settings())
        janitor.on_task(stuck)
        janitor.on_task(lost)
        running = asyncio.create_task(janitor.run())

        await until_task(backend, lost, lambda now: now.version > lost.version)
        running.cancel()

        assert own_lane(lost.id) in await backend.broker.lanes()


@pytest.mark.parametrize(
    "error", [Unreachable("x"), BadInput("x"), UnknownLane("x"), TaskConflict("x")], ids=repr
)
def test_whatever_a_service_answers_work_is_tried_until_it_is_done(error: PushlaneError) -> None:
    answers = [error, error, None]

    async def work() -> str:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return "done"

    backoff = Backoff(logging.getLogger("pushlane.test"), "a service")

    assert asyncio.run(backoff.until_done(work)) == "done"


def test_of_many_works_one_that_fails_keeps_none_from_being_done() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        if number in (2, 3):
            raise Unreachable(f"{number} is away")
        done.append(number)

    with pytest.raises(Unreachable, match="2 is away"):
        asyncio.run(for_each(range(1, 6), work))

    assert done == [1, 4, 5]


async def test_works_go_on_side_by_side_no_more_than_so_many_at_once() -> None:
    under_way = most = 0
    done: list[int] = []

    async def work(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        if number == 2:
            raise Unreachable("2 is away")
        done.append(number)

    with pytest.raises(Unreachable, match="2 is away"):
        await for_each(range(10), work, at_once=4)

    assert (most, sorted(done)) == (4, [0, 1, 3, 4, 5, 6, 7, 8, 9])


def test_when_a_service_is_away_it_is_not_asked_for_everything() -> None:
    asked: list[int] = []

    async def work(number: int) -> None:
        asked.append(number)
        raise Unreachable("away")

    with pytest.raises(Unreachable, match="away"):
        asyncio.run(for_each(range(1000), work))

    assert len(asked) == 16
