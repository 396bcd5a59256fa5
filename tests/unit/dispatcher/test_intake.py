"""What comes off a lane is asked about before it goes: what is over is dropped, not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

from dispatcher.intake import STALE_S, Intake
from dispatcher.lane import Inlet, OpenLane
from dispatcher.stats import Stats
from lanes.errors import Unreachable
from lanes.naming import later_lane
from lanes.ports import Taken
from lanes.push import DELIVERED, Kind, Outcome, Push, encode
from lanes.task import DeliveryMode, Finished, Level, Moved, Span, State, Task
from tests.unit.dispatcher.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
)

ONCE = DeliveryMode.ONCE  # it waits for an answer on the slowest machine too
TASK = Task(id="t", level=Level.HIGH, lane="task-t", first_lane="task-t", state=State.RUNNING)


class Reader:
    """Gives out these seqs, one message each."""

    def __init__(self, lane: str, seqs: Sequence[int], *, is_first: bool = False) -> None:
        self.lane = lane
        self._left = [Taken(encode(Push("t", seq, "nobody")), lane, seq, is_first) for seq in seqs]

    def take(self) -> Taken | None:
        return self._left.pop(0) if self._left else None

    def refill_wait_s(self) -> float:
        return 0.0


class Registry:
    """Knows some seqs as ended or moved; silent while `answers` is not set."""

    def __init__(self, ended: Sequence[int] = (), moved: Sequence[int] = ()) -> None:
        self.ended = set(ended)
        self.moved = set(moved)
        self.asked: list[Span] = []
        self.away = False

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        if self.away:
            raise Unreachable("away")
        self.asked += spans
        return [self._bits(span) for span in spans]

    def _bits(self, span: Span) -> int:
        known = self.ended | self.moved if span.moves else self.ended
        return sum(1 << seq - span.first for seq in known if span.first <= seq <= span.last)


class Settler:
    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack(self, lane: OpenLane, taken: Taken, push: Push) -> None:
        self.acked.append(push.seq)


class Scene:
    """An intake with one lane; `given` are the seqs that its readers have."""

    def __init__(
        self, registry: Registry, main: Reader, later: Reader | None = None, task: Task = TASK
    ) -> None:
        self.settler = Settler()
        self.stats = Stats()
        self.lane = OpenLane(main.lane, Level.HIGH)
        self.ready = asyncio.Event()
        self.intake = Intake(
            registry, self.settler, lambda _: task, lambda _: self.ready.set(), self.stats
        )
        for inlet, reader in ((self.lane.main, main), (self.lane.later, later)):
            inlet.reader = reader
            inlet.has_more = reader is not None

    def at_hand(self) -> list[int]:
        return [
            taken.push.seq
            for inlet in self.lane.inlets
            for taken in inlet.at_hand
            if taken.push is not None
        ]

    async def filled(self, times: int = 1) -> None:
        """Fill the lane, and wait for so many answers."""
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
    assert scene.lane.in_hand == 2


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


async def test_at_least_once_goes_on_unasked_while_the_registry_is_silent_and_counts_it() -> None:
    registry = Registry()
    registry.away = True
    scene = Scene(registry, Reader("task-t", [1, 2]))

    await scene.filled()

    assert scene.at_hand() == [1, 2]
    assert scene.stats.unasked == 2


async def test_once_waits_for_the_registry() -> None:
    registry = Registry(ended=[1])
    registry.away = True
    once = Task(id="t", level=Level.HIGH, lane="task-t", delivery=ONCE)
    scene = Scene(registry, Reader("task-t", [1, 2]), task=once)
    running = asyncio.create_task(scene.intake.run(lambda: [scene.lane]))
    scene.intake.fill(scene.lane)
    await scene.ready.wait()
    assert scene.at_hand() == []

    registry.away = False
    await until(scene.at_hand)

    running.cancel()
    assert scene.at_hand() == [2]
    assert scene.stats.unasked == 0


async def test_an_old_answer_does_not_count() -> None:
    scene = Scene(Registry(), Reader("task-t", [1, 2]))
    await scene.filled()
    asked_s = scene.lane.main.at_hand[0].asked_s

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


def test_tasks_that_share_a_lane_take_turns_in_what_is_at_hand() -> None:
    inlet = Inlet("pool-0", most=32, wanted=True)
    inlet.add([taken("big", seq) for seq in (1, 2, 3, 4)])
    inlet.add([taken("small", 1), taken("big", 5), taken("small", 2)])

    order = [(one.push.task_id, one.push.seq) for one in inlet.at_hand if one.push]

    assert order == [
        ("big", 1),
        ("small", 1),
        ("big", 2),
        ("small", 2),
        ("big", 3),
        ("big", 4),
        ("big", 5),
    ]


def test_a_lane_of_one_task_keeps_the_order_of_its_messages() -> None:
    inlet = Inlet("task-t", most=32, wanted=True)
    inlet.add([taken("t", 2), taken("other", 1)])
    inlet.add([taken("t", 1)])

    assert [one.push.seq for one in inlet.at_hand if one.push] == [2, 1, 1]


def taken(task_id: str, seq: int) -> Taken:
    return Taken(b"", "pool-0", None, push=Push(task_id, seq, "somebody"))
