"""What comes off a lane is asked about before it goes: what is over is dropped, not sent again."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import Unreachable
from pushlane.core.intake import STALE_S, Intake
from pushlane.core.lane import Lane, LaneInput, Message
from pushlane.core.names import later_lane
from pushlane.core.ports import Taken
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, encode
from pushlane.core.task import DeliveryMode, Finished, Level, Moved, Span, State, Task
from pushlane.dispatcher.stats import Stats
from pushlane.model import task_changes
from pushlane.wire import MOST_PUSHES, packed
from tests.backends.test_contact import Clock
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
)

ONCE = DeliveryMode.ONCE  # it waits for an answer on the slowest machine too
LANE = Lane("task-t", Level.HIGH)
TASK = Task(id="t", level=Level.HIGH, lane="task-t", first_lane="task-t", state=State.RUNNING)


class Reader:
    """Gives out these seqs, one message each, or for several seqs a bundle."""

    def __init__(
        self, lane: str, seqs: Iterable[int | Sequence[int]], *, is_first: bool = False
    ) -> None:
        self.lane = lane
        self._left: list[Taken] = []
        self._is_first = is_first
        for some in seqs:
            self.add(some)

    def add(self, some: int | Sequence[int]) -> None:
        self._left.append(Taken(body_of(some), self.lane, some, self._is_first))

    def take(self) -> Taken | None:
        return self._left.pop(0) if self._left else None

    def refill_wait_s(self) -> float:
        return 0.0


def body_of(some: int | Sequence[int], task_id: str = "t") -> bytes:
    if isinstance(some, int):
        return encode(Push(task_id, some, "nobody"))
    [bundle] = packed([encode(Push(task_id, seq, "nobody")) for seq in some], MOST_PUSHES)
    return bundle.message


class Registry:
    """Knows some seqs as ended or moved; silent while `answers` is not set."""

    def __init__(self, ended: Sequence[int] = (), moved: Sequence[int] = ()) -> None:
        self.ended = set(ended)
        self.moved = set(moved)
        self.asked: list[Span] = []
        self.away = False
        self.refused = asyncio.Event()

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        if self.away:
            self.refused.set()
            raise Unreachable("away")
        self.asked += spans
        return [self._bits(span) for span in spans]

    def _bits(self, span: Span) -> int:
        known = self.ended | self.moved if span.moves else self.ended
        return sum(1 << seq - span.first for seq in known if span.first <= seq <= span.last)


class SlowRegistry(Registry):
    """It takes this long, by the clock, to answer."""

    def __init__(self, clock: Clock, takes_s: float = 0.0) -> None:
        super().__init__()
        self.clock = clock
        self.takes_s = takes_s

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        self.clock.now_s += self.takes_s
        return await super().gone(spans)


class Settler:
    def __init__(self) -> None:
        self.acked: list[int | Sequence[int]] = []

    def ack(self, message: Message) -> None:
        self.acked.append(message.taken.handle)


class Scene:
    """An intake with one lane; `given` are the seqs that its readers have."""

    def __init__(
        self,
        registry: Registry,
        main: Reader,
        later: Reader | None = None,
        task: Task | None = TASK,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settler = Settler()
        self.stats = Stats()
        self.ready = asyncio.Event()
        self.lane = Lane(main.lane, Level.HIGH, mark=lambda _: self.ready.set())
        self.in_doubt = False
        self.held_since_s = math.inf
        self.intake = Intake(
            registry,
            self.settler.ack,
            lambda _: task,
            self.stats,
            lambda: self.in_doubt,
            lambda: self.held_since_s,
            clock_s,
        )
        for lane_input, reader in ((self.lane.main, main), (self.lane.later, later)):
            lane_input.reader = reader
            if reader is not None:
                lane_input.ready()

    def at_hand(self) -> list[int]:
        return [
            seq
            for lane_input in self.lane.inputs
            for message in lane_input.at_hand()
            for seq in message.seqs()
        ]

    async def filled(self, times: int = 1) -> None:
        """Fill the lane, and wait for so many answers."""
        self.ready.clear()
        running = asyncio.create_task(self.intake.run(lambda: [self.lane]))
        self.intake.fill(self.lane)
        for _ in range(times):
            await self.ready.wait()
            self.ready.clear()
        running.cancel()


async def test_what_has_ended_is_acked_and_the_rest_is_at_hand_in_order() -> None:
    scene = Scene(Registry(ended=[2, 3]), Reader("task-t", [5, 2, 1, 3]))

    await scene.filled()

    assert scene.at_hand() == [5, 1]
    assert scene.settler.acked == [2, 3]
    assert scene.stats.repeats == 2
    assert scene.lane.in_hand == 0


async def test_of_a_bundle_what_has_ended_is_dropped_and_it_is_not_acked_before_the_rest() -> None:
    scene = Scene(Registry(ended=[1, 3, 5, 6]), Reader("task-t", [(1, 2, 3), (5, 6), 7]))

    await scene.filled()

    assert scene.at_hand() == [2, 7]
    assert scene.settler.acked == [(5, 6)]
    assert scene.stats.repeats == 4


async def test_a_lane_of_which_whole_batches_are_over_goes_on_to_what_is_left() -> None:
    scene = Scene(Registry(ended=range(1, 100)), Reader("task-t", range(1, 102)))

    await scene.filled(times=4)

    assert scene.at_hand() == [100, 101]
    assert scene.settler.acked == list(range(1, 100))


async def test_what_waits_elsewhere_is_dropped_from_the_first_lane_alone() -> None:
    registry = Registry(moved=[1, 2])
    first = Scene(registry, Reader("task-t", [1, 2, 3]))
    moved_on = Scene(registry, Reader("task-t", []), Reader(later_lane("task-t"), [1, 2, 3]))

    await first.filled()
    await moved_on.filled()

    assert first.at_hand() == [3]
    assert moved_on.at_hand() == [1, 2, 3]


@pytest.mark.parametrize(("lane", "left"), [("pool-0", [3]), (later_lane("pool-0"), [1, 2, 3])])
async def test_on_a_pools_main_lane_what_moved_is_dropped_before_its_task_is_known(
    lane: str, left: list[int]
) -> None:
    scene = Scene(Registry(moved=[1, 2]), Reader(lane, [1, 2, 3]), task=None)

    await scene.filled()

    assert scene.at_hand() == left


@pytest.mark.parametrize(("takes_s", "may_go"), [(0.5 * STALE_S, True), (60.0, False)])
async def test_an_answer_is_as_old_as_its_question(
    caplog: pytest.LogCaptureFixture, *, takes_s: float, may_go: bool
) -> None:
    """A process may be stopped between the two, while others get what it has at hand."""
    clock = Clock()
    scene = Scene(SlowRegistry(clock, takes_s), Reader("task-t", [1]), clock_s=clock)

    await scene.filled()

    assert (scene.lane.take(clock() - STALE_S) is not None) is may_go
    assert ("took 60.0 s to say which pushes are over" in caplog.text) is not may_go


async def test_what_was_forwarded_to_a_lane_of_the_tasks_own_stays_at_hand_there() -> None:
    pooled = Task(id="t", level=Level.LOW, lane="pool-0", state=State.RUNNING)
    registry = Registry(moved=[1, 2, 3])
    task = task_changes.isolate(pooled)
    there = Scene(registry, Reader("task-t", [1, 2, 3]), task=task)
    copies = Scene(registry, Reader("pool-0", [1, 2, 3, 4]), task=task)

    await there.filled()
    await copies.filled()

    assert there.at_hand() == [1, 2, 3]
    assert copies.at_hand() == [4]


async def test_what_nobody_can_have_had_is_not_asked_about() -> None:
    registry = Registry()
    scene = Scene(registry, Reader("task-t", range(1, 9), is_first=True))

    scene.intake.fill(scene.lane)

    assert scene.at_hand() == list(range(1, 9))
    assert registry.asked == []


async def test_seqs_far_apart_are_asked_about_in_small_spans() -> None:
    registry = Registry(ended=[900_000])
    scene = Scene(registry, Reader("task-t", [1, 900_000, 2, 900_001]))

    await scene.filled()

    assert [(span.first, span.last) for span in registry.asked] == [(1, 2), (900_000, 900_001)]
    assert scene.at_hand() == [1, 2, 900_001]


async def test_a_bundle_of_seqs_far_apart_is_asked_about_in_parts() -> None:
    registry = Registry(ended=[900_000])
    scene = Scene(registry, Reader("task-t", [(1, 900_000, 900_001), (2, 3)]))

    await scene.filled()

    assert [(span.first, span.last) for span in registry.asked] == [(1, 3), (900_000, 900_001)]
    assert scene.at_hand() == [1, 900_001, 2, 3]


async def test_bundles_that_follow_each_other_are_one_question() -> None:
    registry = Registry(ended=[32, 33])
    bundles = [range(first, first + 32) for first in (1, 33, 65)]
    scene = Scene(registry, Reader("task-t", bundles))

    await scene.filled()

    assert [(span.first, span.last) for span in registry.asked] == [(1, 96)]
    assert scene.at_hand() == [seq for seq in range(1, 97) if seq not in (32, 33)]


async def test_what_ends_while_it_is_at_hand_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane.core.intake._AGAIN_S", 0.0)
    registry = Registry()
    scene = Scene(registry, Reader("task-t", [(1, 2, 3), (4, 5)], is_first=True))
    scene.intake.fill(scene.lane)
    first = scene.lane.take()
    registry.ended |= {1, 2, 4, 5}

    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    await until(lambda: scene.at_hand() == [3])
    running.cancel()

    assert first is not None
    assert (first.seq, first.message.left) == (1, 2)  # it is settled by whoever took it
    assert scene.settler.acked == [(4, 5)]
    assert scene.stats.repeats == 3


async def test_nothing_goes_before_the_registry_has_answered() -> None:
    registry = Registry(ended=[1])
    registry.away = True
    scene = Scene(registry, Reader("task-t", [1, 2]))
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    scene.intake.fill(scene.lane)
    await registry.refused.wait()
    assert scene.at_hand() == []

    registry.away = False
    await until(scene.at_hand)

    running.cancel()
    assert scene.at_hand() == [2]


async def test_an_answer_about_what_a_closed_reader_gave_puts_nothing_at_hand() -> None:
    registry = Registry()
    registry.away = True
    scene = Scene(registry, Reader("task-t", [1, 2]))
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    scene.intake.fill(scene.lane)
    await registry.refused.wait()

    scene.lane.let_go()
    scene.lane.main.reader = Reader("task-t", [])  # it was opened again meanwhile
    registry.away = False
    await until(lambda: not scene.lane.main.asking)

    running.cancel()
    assert scene.at_hand() == []


async def test_a_level_is_waited_for_until_the_last_push_of_its_task_has_come() -> None:
    scene = Scene(Registry(), Reader("task-t", [1, (2, 3)]))
    scene.lane.set_task(Level.HIGH, 4, held=False)
    assert scene.lane.refill_wait_s() > 0
    await scene.filled()
    assert scene.lane.refill_wait_s() > 0

    scene.lane.set_task(Level.HIGH, 3, held=False)

    assert scene.lane.refill_wait_s() == 0


async def test_a_task_that_is_still_fed_is_not_waited_for() -> None:
    scene = Scene(Registry(), Reader("task-t", [1, 2]))
    await scene.filled()

    assert scene.lane.refill_wait_s() == 0


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_what_others_may_have_is_asked_about_more_often(
    monkeypatch: pytest.MonkeyPatch, *, in_doubt: bool
) -> None:
    monkeypatch.setattr("pushlane.core.intake._AGAIN_S", 3600.0)
    monkeypatch.setattr("pushlane.core.intake._AGAIN_IN_DOUBT_S", 0.0)
    registry = Registry()
    scene = Scene(registry, Reader("task-t", [1, 2]))
    scene.in_doubt = in_doubt
    await scene.filled()
    registry.ended = {1}
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))

    scene.ready.clear()
    if in_doubt:
        await scene.ready.wait()
    else:
        await turns()
    running.cancel()

    assert scene.at_hand() == ([2] if in_doubt else [1, 2])


async def test_quick_answers_about_new_messages_do_not_make_slow_looks_more_frequent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("pushlane.core.intake._AGAIN_IN_DOUBT_S", 0.0)
    monkeypatch.setattr("pushlane.core.intake._REST_S", 0.0)
    registry = SlowRegistry(clock)
    reader = Reader("task-t", [1, 2])
    scene = Scene(registry, reader, clock_s=clock)
    scene.in_doubt = True
    await scene.filled()
    registry.takes_s, clock.now_s = 0.1, clock.now_s + 1.0
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    await turns()
    seen = len(registry.asked)

    registry.takes_s = 0.01
    reader.add(3)
    scene.lane.main.ready()
    scene.intake.fill(scene.lane)
    await turns()
    clock.now_s += 0.3
    await turns()
    meanwhile = registry.asked[seen:]
    clock.now_s += 1.0
    await turns()
    running.cancel()

    assert [(span.first, span.last) for span in meanwhile] == [(3, 3)]
    assert len(registry.asked) > seen + 1


async def test_what_nobody_else_can_have_been_given_is_not_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pushlane.core.intake._AGAIN_S", 0.0)
    registry = Registry()
    scene = Scene(registry, Reader("task-t", [1, 2], is_first=True))
    scene.held_since_s = 0.0
    scene.intake.fill(scene.lane)
    pulled_s = scene.lane.main.at_hand()[0].asked_s

    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    await until(lambda: scene.lane.main.at_hand()[0].asked_s > pulled_s)
    while_held = list(registry.asked)
    scene.held_since_s = time.monotonic()  # it was stopped, and others may have it
    await until(lambda: registry.asked)
    running.cancel()

    assert while_held == []


@pytest.mark.parametrize(("is_first", "asked"), [(True, []), (False, [(1, 2)])])
async def test_only_what_nobody_had_before_goes_at_once_though_its_answer_is_old(
    *, is_first: bool, asked: list[tuple[int, int]]
) -> None:
    clock, registry = Clock(), Registry()
    scene = Scene(registry, Reader("task-t", [1, 2], is_first=is_first), clock_s=clock)
    scene.held_since_s = 0.0
    await scene.filled(0 if is_first else 1)
    registry.asked.clear()
    clock.now_s += 10.0

    job = scene.intake.retake(scene.lane, clock() - STALE_S)
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    await turns()
    running.cancel()

    assert (job is not None) is is_first
    assert [(span.first, span.last) for span in registry.asked] == asked


async def test_a_lane_whose_answer_is_old_at_its_turn_is_waited_for_and_then_goes_on() -> None:
    clock = Clock()
    scene = Scene(Registry(), Reader("task-t", [1, 2]), clock_s=clock)
    await scene.filled()
    clock.now_s += 10.0
    oldest_s = clock() - STALE_S

    assert scene.intake.retake(scene.lane, oldest_s) is None
    assert (scene.lane.fed, scene.lane.may_move, scene.lane.main.asking) == (False, False, 1)
    assert scene.lane.refill_wait_s() > 0

    await scene.filled()
    assert [scene.lane.take(oldest_s).seq for _ in range(2)] == [1, 2]


async def test_a_lane_whose_turn_is_not_near_is_not_asked_about_until_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pushlane.core.intake._AGAIN_IN_DOUBT_S", 0.0)
    monkeypatch.setattr("pushlane.core.intake._REST_S", 0.0)
    clock, registry = Clock(), Registry()
    scene = Scene(registry, Reader("task-t", range(1, 9)), clock_s=clock)
    await scene.filled()
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    asked_at: list[float] = []
    for second in range(30):
        if second in (0, 10):  # its turns: the next is at 20
            while scene.intake.retake(scene.lane, clock() - STALE_S) is None:
                await turns()
        registry.asked.clear()
        clock.now_s += 1.0
        await turns()
        if registry.asked:
            asked_at.append(second + 1)
    running.cancel()

    assert asked_at == [*range(1, 11), *range(18, 31)]


async def test_many_lanes_are_asked_about_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, registry = Clock(), PagedRegistry()
    monkeypatch.setattr("pushlane.core.intake._AGAIN_IN_DOUBT_S", 0.0)
    monkeypatch.setattr("pushlane.core.intake._REST_S", 0.0)
    scene = Scene(registry, Reader("task-t", []), clock_s=clock)
    lanes = []
    for number in range(1_000):
        lane = Lane(f"task-{number}", Level.HIGH)
        lane.add(lane.main, [message_of(str(number), 1)])
        lanes.append(lane)
    handled: list[int] = []
    for name in ("_ask_of", "_hand_on", "_questions"):
        count_a_step(monkeypatch, scene.intake, name, handled)

    clock.now_s += 10.0
    running = asyncio.create_task(scene.intake.run(lambda: lanes))
    await until(lambda: sum(handled) == 3 * 1_000)  # a step is counted once it is over
    running.cancel()

    assert max(handled) == 128
    assert not any(lane.main.asking for lane in lanes)
    assert registry.pages == [*[128] * 7, 104]


class PagedRegistry(Registry):
    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        self.pages.append(len(spans))
        await asyncio.sleep(0)  # as one that is asked over a network
        return await super().gone(spans)


def count_a_step(monkeypatch: pytest.MonkeyPatch, of: object, name: str, counts: list[int]) -> None:
    """Count the calls of a method, those of each step of the event loop together."""
    method = getattr(of, name)
    steps = Counter[int]()

    def counted(*args: Any, **kwargs: Any) -> Any:
        if not steps:
            asyncio.get_running_loop().call_soon(end_step)
        steps[0] += 1
        return method(*args, **kwargs)

    def end_step() -> None:
        counts.append(steps.pop(0))

    monkeypatch.setattr(of, name, counted)


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_an_old_answer_does_not_count() -> None:
    scene = Scene(Registry(), Reader("task-t", [1, 2]))
    await scene.filled()
    asked_s = scene.lane.main.at_hand()[0].asked_s

    assert scene.lane.take(oldest_s=asked_s + STALE_S) is None
    assert scene.lane.take(oldest_s=asked_s) is not None


async def test_a_push_that_was_counted_and_comes_again_is_not_sent_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False, delivery=ONCE)
        bodies = [encode(Push(task.id, seq, "nobody")) for seq in (1, 2, 3)]
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, [1])])
        await backend.registry.move([Moved(task.id, [3])])
        await backend.broker.publish(task.lane, bodies, delay_s=0.001)  # so that it may come again
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 2)
            await sink.until_received(1)

        assert sink.pushes() == [(task.id, 2)]
        assert await backend.broker.backlog(task.lane) == 0


class LostAck(Wrapped):
    """A broker whose first ack is lost, as with a process that is killed before it."""

    async def ack(self, taken: Sequence[Taken]) -> None:
        return None


async def test_a_push_that_waits_for_its_retry_does_not_go_again_from_where_it_was(
    tmp_path: Path,
) -> None:
    def busy(delivery: Any) -> Outcome:
        return Outcome.retry("busy", after_s=3_600.0)

    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=3, delivery=ONCE)
        killed = with_other(backend, broker=LostAck(backend.broker))
        first = MemorySink(busy)
        async with dispatching(killed, first, settings) as dispatcher:
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.RETRY] == 3)
        second = MemorySink(lambda _: DELIVERED)

        async with dispatching(backend, second, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 3)

        assert second.received == []


async def test_what_a_process_counted_and_did_not_ack_is_not_sent_by_the_next(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=20, seal=False, delivery=ONCE)
        killed = with_other(backend, broker=LostAck(backend.broker))
        async with dispatching(killed, MemorySink(), settings) as dispatcher:
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.DELIVERED] == 20)
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 20)

        assert sink.received == []
        assert await backend.broker.backlog(task.lane) == 0


class SlowAck(Wrapped):
    """A broker that acks once it is told to."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def ack(self, taken: Sequence[Taken]) -> None:
        self.asked.set()
        await self.goes_on.wait()
        await self._real.ack(taken)


async def test_a_gentle_stop_waits_for_the_acks_of_what_was_over(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False)
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, range(1, 21))])
        await backend.broker.publish(task.lane, [body_of(range(1, 21), task.id)], delay_s=0.001)
        broker = SlowAck(backend.broker)

        async with dispatching(
            with_other(backend, broker=broker), MemorySink(), settings
        ) as dispatcher:
            await broker.asked.wait()
            dispatcher.stop()
            for _ in range(5_000):  # it would be gone by then
                await asyncio.to_thread(int)
            broker.goes_on.set()

        assert await backend.broker.backlog(task.lane) == 0


def test_tasks_that_share_a_lane_take_turns_in_what_is_at_hand() -> None:
    lane_input = LaneInput("pool-0", 32, wanted=True)
    lane_input.add([message_of("big", seq) for seq in (1, 2, 3, 4)])
    lane_input.add([message_of("small", 1), message_of("big", 5), message_of("small", 2)])

    assert taken_all(lane_input) == [
        ("big", 1),
        ("small", 1),
        ("big", 2),
        ("small", 2),
        ("big", 3),
        ("big", 4),
        ("big", 5),
    ]


def test_tasks_take_turns_push_by_push_though_they_come_in_bundles() -> None:
    lane_input = LaneInput("pool-0", 32, wanted=True)
    lane_input.add([message_of("big", [1, 2, 3]), message_of("big", [4, 5])])
    lane_input.add([message_of("small", [1, 2]), message_of("single", 1)])
    assert lane_input.messages == 4

    assert taken_all(lane_input) == [
        ("big", 1),
        ("small", 1),
        ("single", 1),
        ("big", 2),
        ("small", 2),
        ("big", 3),
        ("big", 4),
        ("big", 5),
    ]
    assert (lane_input.messages, lane_input.at_hand()) == (0, [])


def test_a_task_that_comes_while_others_are_at_hand_has_the_next_turn_but_theirs() -> None:
    lane_input = LaneInput("pool-0", 32, wanted=True)
    lane_input.add([message_of("a", [1, 2, 3]), message_of("b", [1, 2, 3])])
    first = lane_input.take(LANE, 0.0)

    lane_input.add([message_of("c", [1, 2])])

    assert first is not None
    assert [task_id for task_id, _ in taken_all(lane_input)] == ["b", "a", "c", "b", "a", "c", "b"]


def test_messages_nobody_knows_the_task_of_have_their_turn_too() -> None:
    lane_input = LaneInput("pool-0", 32, wanted=True)
    unread = [Message(Taken(b"?", "pool-0", None)) for _ in range(2)]
    lane_input.add([message_of("t", [1, 2, 3]), *unread])

    assert [task_id for task_id, _ in taken_all(lane_input)] == ["t", "", "t", "", "t"]


def test_a_lane_of_one_task_keeps_the_order_of_its_messages() -> None:
    lane_input = LaneInput("task-t", 32, wanted=True)
    unread = Message(Taken(b"?", "task-t", None))
    lane_input.add([message_of("t", 2), message_of("t", [5, 6]), unread, message_of("other", 1)])
    lane_input.add([message_of("t", 1)])

    assert taken_all(lane_input) == [("t", 2), ("t", 5), ("t", 6), ("", 0), ("other", 1), ("t", 1)]


def test_what_has_ended_leaves_the_turns_of_the_others_as_they_were() -> None:
    lane_input = LaneInput("pool-0", 32, wanted=True)
    over, part = message_of("a", [1, 2]), message_of("b", [1, 2])
    lane_input.add([over, message_of("a", 3), part, message_of("c", [1, 2])])
    over.drop(0b11, 1)
    part.drop(0b01, 1)

    lane_input.remove_spent()

    assert lane_input.messages == 3
    assert taken_all(lane_input) == [("a", 3), ("b", 2), ("c", 1), ("c", 2)]


@pytest.mark.parametrize(("depth", "pulled", "left"), [(2, 1, 1), (16, 4, 2), (4_000, 1_000, 500)])
def test_a_quarter_of_what_may_be_at_hand_is_pulled_when_half_of_that_is_left(
    depth: int, pulled: int, left: int
) -> None:
    lane_input = LaneInput("task-t", depth, wanted=True)
    lane_input.reader, lane_input.has_more = Reader("task-t", range(1, 5_000)), True
    assert lane_input.is_low

    lane_input.add(map(Message, lane_input.pull()))
    assert lane_input.messages == pulled

    while lane_input.messages > left:
        assert not lane_input.is_low
        lane_input.take(LANE, 0.0)
    assert lane_input.is_low


def message_of(task_id: str, some: int | Sequence[int]) -> Message:
    return Message(Taken(body_of(some, task_id), "pool-0", None))


def taken_all(lane_input: LaneInput) -> list[tuple[str, int]]:
    """Task and seq of all that is at hand, as it is taken."""
    taken = []
    while (held := lane_input.take(LANE, 0.0)) is not None:
        taken.append((held.message.task_id, held.seq))
    return taken


def test_pushes_at_hand_are_counted_and_the_oldest_is_known() -> None:
    lane = Lane("pool-0", Level.LOW)
    bundle = Message(Taken(body_of([4, 6, 8]), "pool-0", None), asked_s=7.0)
    single = Message(Taken(body_of(5, "u"), "pool-0", None), asked_s=9.0)
    assert lane.main.at_hand() == []

    lane.add(lane.main, [bundle, single])
    bundle.asked_s = 30.0
    assert [(one.untaken, one.pulled_s) for one in lane.main.at_hand()] == [(3, 7.0), (1, 9.0)]

    bundle.drop(0b100, 4)
    assert [one.untaken for one in lane.main.at_hand()] == [2, 1]
    assert lane.take().push.seq == 4
    assert [one.untaken for one in lane.main.at_hand()] == [1, 1]
