"""Pushes in bundles: each has its own fate, and a message is acked when all have theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import later_lane
from pushlane.core.ports import Delivery, LaneReader, OnReady, Taken
from pushlane.core.push import DELIVERED, DeadPush, Kind, Outcome, Push, decode, encode
from pushlane.core.task import DeliveryMode, Finished, Level, Span, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.producers.dead import DeadLetters, Selection
from pushlane.wire import BUNDLE, bodies_of, fields_of
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    bundle_of,
    dispatching,
    drain,
    until,
    until_state,
)
from tests.order.test_ordered_dispatch import bodies as ordered_bodies

ONCE = DeliveryMode.ONCE  # it waits for an answer on the slowest machine too
UNREADABLE = b"\x91\x07"  # an array, but its recipient is a number
LEVELS = pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])


def with_unreadable(task: Task, seqs: range, bad: int) -> bytes:
    """A bundle of these, of which one cannot be read."""
    fields = [
        UNREADABLE if seq == bad else fields_of(encode(Push(task.id, seq, f"to-{seq}")))
        for seq in seqs
    ]
    return msgspec.msgpack.encode([BUNDLE, task.id, seqs.start, len(seqs), fields])


def cut_short(task: Task, seqs: range) -> bytes:
    return bundle_of(task, seqs)[:-5]


async def empty_task(backend: Backend, level: Level, **fields: Any) -> Task:
    return await add_task(backend, level, 0, seal=False, bundle=32, **fields)


async def dead_by_seq(backend: Backend) -> dict[int, DeadPush]:
    found = await DeadLetters(backend).find(Selection())
    dead = {letter.dead.seq: letter.dead for letter in found.letters}
    assert len(dead) == len(found.letters)
    return dead


class HoldingBack(MemorySink):
    """Keeps the deliveries of some seqs until its gate opens; it is closed."""

    def __init__(self, *seqs: int) -> None:
        super().__init__()
        self.gate.clear()
        self._seqs = seqs

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if any(delivery.push.seq in self._seqs for delivery in batch):
            return await super().deliver(batch)
        self.received += batch
        return [DELIVERED] * len(batch)


async def until_delivered(backend: Backend, task: Task, count: int) -> None:
    while (await backend.registry.progress([task.id]))[0].delivered < count:
        await asyncio.sleep(0)


async def until_empty(backend: Backend, lane: str) -> None:
    while await backend.broker.backlog(lane):
        await asyncio.sleep(0)


async def test_every_push_is_delivered_once_and_the_task_is_done(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [await add_task(backend, level, 300, bundle=32) for level in Level]
        assert await backend.broker.backlog(tasks[0].lane) == 10
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert Counter(sink.pushes()) == Counter(
            (task.id, seq) for task in tasks for seq in range(1, 301)
        )
        for task in tasks:
            assert (await backend.registry.get(task.id)).state is State.DONE
            assert await backend.broker.backlog(task.lane) == 0


@LEVELS
async def test_of_a_bundle_with_an_unreadable_push_the_others_are_delivered(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, level)
        await backend.broker.publish(task.lane, [with_unreadable(task, range(1, 11), 4)])
        await backend.registry.change(task.id, task_changes.seal(10))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 11) if seq != 4]
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (9, 1)
        assert (await backend.registry.get(task.id)).state is State.DONE
        [dead] = (await dead_by_seq(backend)).values()
        assert (dead.task_id, dead.seq, dead.attempt, dead.body) == (task.id, 4, 0, UNREADABLE)
        assert dead.reason.startswith("malformed: ")


@LEVELS
async def test_all_of_a_bundle_cut_short_are_dead_and_the_task_ends(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, level)
        broken = cut_short(task, range(1, 21))
        await backend.broker.publish(task.lane, [broken, bundle_of(task, range(21, 31))])
        await backend.registry.change(task.id, task_changes.seal(30))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(21, 31)]
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (10, 20)
        assert (await backend.registry.get(task.id)).state is State.DONE
        dead = await dead_by_seq(backend)
        assert sorted(dead) == list(range(1, 21))
        assert {one.task_id for one in dead.values()} == {task.id}
        assert [one.body for seq, one in sorted(dead.items())] == [broken] + [b""] * 19


async def test_seqs_that_a_task_does_not_have_are_buried_and_not_counted(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH)
        await backend.broker.publish(task.lane, [cut_short(task, range(1, 6))])
        await backend.registry.change(task.id, task_changes.seal(3))

        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until_state(backend, task, State.DONE)
            await until(lambda: dispatcher.stats.malformed == 5)

        [progress] = await backend.registry.progress([task.id])
        assert progress.dead == 3


async def test_where_seqs_have_steps_one_behind_the_total_is_counted(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH)
        whole, broken = bundle_of(task, range(5, 9)), with_unreadable(task, range(45, 46), 45)
        await backend.broker.publish(task.lane, [whole, broken])
        await backend.registry.change(task.id, task_changes.seal(5, 45))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(5, 9)]
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (4, 1)
        assert (await backend.registry.get(task.id)).state is State.DONE


async def test_what_no_task_counts_is_not_noted_as_moved_either(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH)
        await backend.broker.publish(task.lane, [cut_short(task, range(1, 6)), b"no push"])
        await backend.registry.change(task.id, task_changes.seal(3))

        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: dispatcher.stats.malformed == 6)
            await until_empty(backend, task.lane)

        spans = [Span(task.id, 4, 5, moves=True), Span("", 0, 0, moves=True)]
        assert await backend.registry.gone(spans) == [0, 0]


async def test_a_bundle_cut_short_of_a_task_that_was_cancelled_is_dropped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.LOW)
        await backend.broker.publish(task.lane, [cut_short(task, range(1, 6))])
        await backend.registry.change(task.id, task_changes.cancel)

        async with dispatching(backend, MemorySink(), settings):
            await until_empty(backend, task.lane)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.dropped, progress.dead) == (5, 0)
        assert await dead_by_seq(backend) == {}


@pytest.mark.parametrize("spoil", [bundle_of, cut_short], ids=["whole", "cut short"])
async def test_a_bundle_of_an_unknown_task_is_dropped(
    tmp_path: Path, spoil: Callable[[Task, range], bytes]
) -> None:
    unknown = Task(id="nobodys", level=Level.LOW, lane="pool-0")
    async with backend_in(tmp_path) as (backend, settings):
        await backend.broker.open_lane("pool-0")
        await backend.broker.publish("pool-0", [spoil(unknown, range(1, 6))])
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_empty(backend, "pool-0")

        assert sink.received == []
        assert await dead_by_seq(backend) == {}


@LEVELS
async def test_a_message_is_not_acked_while_a_push_of_it_is_not_settled(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, level, 20, bundle=32)
        sink = HoldingBack(7)

        async with dispatching(backend, sink, settings) as dispatcher:
            await until_delivered(backend, task, 19)
            await until(lambda: dispatcher._lines[0].flusher.unsettled == 0)
            assert await backend.broker.backlog(task.lane) == 1
            sink.gate.set()
            await until_state(backend, task, State.DONE)
            await until_empty(backend, task.lane)


async def test_messages_are_acked_each_for_itself(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 96, bundle=32)
        sink = HoldingBack(40)

        async with dispatching(backend, sink, settings) as dispatcher:
            await until_delivered(backend, task, 95)
            await until(lambda: dispatcher._lines[0].flusher.unsettled == 0)
            assert await backend.broker.backlog(task.lane) == 1
            sink.gate.set()
            await until_state(backend, task, State.DONE)


@LEVELS
async def test_what_is_to_be_retried_later_is_settled_once_it_waits_elsewhere(
    tmp_path: Path, level: Level
) -> None:
    def busy(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 3_600) if delivery.push.seq == 7 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, level, 20, bundle=32)

        async with dispatching(backend, MemorySink(busy), settings):
            await until_delivered(backend, task, 19)
            await until_empty(backend, task.lane)
            assert await backend.broker.backlog(later_lane(task.lane)) == 1

        assert (await backend.registry.get(task.id)).state is State.RUNNING


class NoLaters(Wrapped):
    """A broker that takes nothing for a later lane until it is told to."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()
        self.takes = asyncio.Event()

    async def publish(self, lane: str, bodies: Sequence[bytes], **options: Any) -> None:
        if lane.endswith("-later"):
            self.asked.set()
            await self.takes.wait()
        await self._real.publish(lane, bodies, **options)


async def test_until_it_waits_elsewhere_its_message_is_not_acked(tmp_path: Path) -> None:
    def busy(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 3_600) if delivery.push.seq == 7 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 20, bundle=32)
        broker = NoLaters(backend.broker)

        async with dispatching(
            with_other(backend, broker=broker), MemorySink(busy), settings
        ) as dispatcher:
            await broker.asked.wait()
            await until_delivered(backend, task, 19)
            await until(lambda: dispatcher._lines[0].flusher.unsettled == 1)
            assert await backend.broker.backlog(task.lane) == 1
            broker.takes.set()
            await until_empty(backend, task.lane)


@LEVELS
async def test_what_was_settled_of_a_bundle_that_comes_again_is_not_sent_again(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, level, delivery=ONCE)
        settled = [1, 2, 3, 17, 32]
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, settled)])
        body = bundle_of(task, range(1, 33))
        await backend.broker.publish(task.lane, [body], delay_s=0.001)  # as if it came again
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until_delivered(backend, task, 32)
            await until_empty(backend, task.lane)
            assert dispatcher.stats.repeats == len(settled)

        left = [seq for seq in range(1, 33) if seq not in settled]
        assert sorted(sink.pushes()) == [(task.id, seq) for seq in left]


async def test_after_a_kill_only_what_was_not_settled_of_a_bundle_may_go(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=64, bundle=32, delivery=ONCE)
        lost = Dispatcher(backend, HoldingBack(5, 50), settings)
        running = asyncio.create_task(lost.run())
        await until_delivered(backend, task, 62)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await backend.broker.backlog(task.lane) == 2
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 62)

        assert set(sink.pushes()) <= {(task.id, 5), (task.id, 50)}


class LostAck(Wrapped):
    """A broker whose acks are lost, as with a process that is killed before each."""

    async def ack(self, taken: Sequence[Taken]) -> None:
        return None


async def test_a_bundle_that_was_settled_and_not_acked_is_acked_by_the_next(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=96, seal=False, bundle=32, delivery=ONCE)
        killed = with_other(backend, broker=LostAck(backend.broker))
        async with dispatching(killed, MemorySink(), settings):
            await until_delivered(backend, task, 96)
        assert await backend.broker.backlog(task.lane) == 3
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 96)

        assert sink.received == []
        assert await backend.broker.backlog(task.lane) == 0


async def test_what_waits_for_its_retry_does_not_go_again_from_its_bundle(tmp_path: Path) -> None:
    def busy(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 3_600) if delivery.push.seq % 2 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=20, bundle=32, delivery=ONCE)
        killed = with_other(backend, broker=LostAck(backend.broker))
        async with dispatching(killed, MemorySink(busy), settings) as dispatcher:
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.RETRY] == 10)
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.stats.repeats == 20)

        assert sink.received == []


async def two_on_a_lane(backend: Backend, pushes: int, *, seal: bool = True) -> list[Task]:
    """Two tasks on pool-0, and whatever the search for them has put on others."""
    found: list[Task] = []
    while len(found) < 2:
        task = await add_task(backend, Level.LOW, pushes, seal=seal, bundle=32)
        found += [task] if task.lane == "pool-0" else []
    return found


async def test_tasks_on_a_pool_lane_take_turns_push_by_push(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=1) as (backend, settings):
        first, second = await two_on_a_lane(backend, 96)
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(1)
            await until(lambda: dispatcher.is_fed("pool-0"))
            sink.gate.set()
            await until_state(backend, first, State.DONE)
            await until_state(backend, second, State.DONE)

        ours = [push for push in sink.pushes() if push[0] in (first.id, second.id)]
        for seq, pair in enumerate(zip(ours[::2], ours[1::2], strict=True), start=1):
            assert set(pair) == {(first.id, seq), (second.id, seq)}


async def test_a_small_task_does_not_wait_for_the_bundle_of_a_large_one(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=1, pool_lanes=1) as (backend, settings):
        large, small = await two_on_a_lane(backend, 0, seal=False)
        await backend.broker.publish("pool-0", [bundle_of(large, range(1, 33))])
        await backend.broker.publish("pool-0", [bundle_of(small, [1])])
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings):
            await sink.until_received(1)
            sink.gate.set()
            await sink.until(lambda: bool(sink.pushes(small)))

        assert len(sink.pushes(large)) <= 2


async def test_what_leaves_the_lane_of_its_bundle_travels_alone(tmp_path: Path) -> None:
    def busy(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 3_600) if delivery.push.seq % 2 else DELIVERED

    async with backend_in(tmp_path, slots=100) as (backend, settings):
        task = await add_task(backend, pushes=100, bundle=100)
        sink = MemorySink(busy)
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(100)
            sink.gate.set()
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.RETRY] == 50)

        later = later_lane(task.lane)
        messages = [body async for page in backend.broker.replay(later) for body in page]
        assert sorted(decode(body).seq for body in messages) == list(range(1, 101, 2))


async def test_a_retry_out_of_a_bundle_comes_again_with_its_attempt_counted(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 50, bundle=32)
        sink = MemorySink(
            lambda d: (
                Outcome.retry("busy", 0) if d.push.attempt == 1 and d.push.seq % 2 else DELIVERED
            )
        )

        await drain(backend, sink, settings)

        attempts = Counter(delivery.push.attempt for delivery in sink.received)
        [progress] = await backend.registry.progress([task.id])
        assert (attempts, progress.delivered) == ({1: 50, 2: 25}, 50)


async def test_what_a_newer_version_added_to_a_push_survives_a_retry(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH)
        fields = [
            [
                f"to-{seq}",
                *[""] * 2,
                None,
                0,
                0,
                1,
                0,
                "",
                0,
                "",
                0,
                None,
                "",
                0,
                None,
                None,
                "",
                None,
            ]
            for seq in (1, 2)
        ]
        pushes = [msgspec.msgpack.encode([*some, "added later"]) for some in fields]
        body = msgspec.msgpack.encode([BUNDLE, task.id, 1, 2, pushes])
        await backend.broker.publish(task.lane, [body])
        busy = MemorySink(lambda _: Outcome.retry("busy", after_s=3_600))

        async with dispatching(backend, busy, settings) as dispatcher:
            await until(lambda: dispatcher.stats.outcomes[Level.HIGH, Kind.RETRY] == 2)

        later = later_lane(task.lane)
        found = [
            msgspec.msgpack.decode(one)
            async for page in backend.broker.replay(later)
            for message in page
            for one in bodies_of(message)
        ]
        assert sorted((one[1], one[-1]) for one in found) == [
            (1, "added later"),
            (2, "added later"),
        ]


@pytest.mark.parametrize("change", ["pause", "promote", "quota"])
async def test_a_pooled_task_moves_to_a_lane_of_its_own(tmp_path: Path, change: str) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        moved, other = [await add_task(backend, Level.LOW, 300, bundle=32) for _ in range(2)]
        if change == "pause":
            await backend.pause(moved.id)
        elif change == "promote":
            await backend.promote(moved.id, Level.HIGH)
        else:
            await backend.set_quota(moved.id, 3)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_state(backend, other, State.DONE)
            if change == "pause":
                assert not sink.pushes(moved)
                await backend.registry.change(moved.id, task_changes.resume)
            await until_state(backend, moved, State.DONE)
            await until_empty(backend, moved.first_lane or moved.lane)

        assert sorted(sink.pushes(moved)) == [(moved.id, seq) for seq in range(1, 301)]


async def test_expired_pushes_of_a_bundle_are_counted_and_not_sent(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 20, push_expires_at_ms=1, bundle=32)
        sink = MemorySink()

        await drain(backend, sink, settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.expired, progress.delivered, sink.received) == (20, 0, [])


async def test_a_gentle_stop_in_the_middle_of_bundles_repeats_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 1_000, bundle=32)
        first = MemorySink()
        async with dispatching(backend, first, settings):
            await first.until_received(150)

        second = MemorySink()
        await drain(backend, second, settings)

        assert Counter(first.pushes() + second.pushes()) == Counter(
            (task.id, seq) for seq in range(1, 1_001)
        )


async def test_two_dispatchers_share_a_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path, prefetch=128) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 2_000, bundle=32)
        one, two = MemorySink(), MemorySink()

        async with dispatching(backend, one, settings), dispatching(backend, two, settings):
            await until_state(backend, task, State.DONE)

        assert Counter(one.pushes() + two.pushes()) == Counter(
            (task.id, seq) for seq in range(1, 2_001)
        )


async def test_an_ordered_task_keeps_the_order_of_each_key(tmp_path: Path) -> None:
    keys = "abcde" * 20
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH, ordered=True)
        bodies = ordered_bodies(task, keys)
        fields = [fields_of(body) for body in bodies]
        bundles = [
            msgspec.msgpack.encode([BUNDLE, task.id, at + 1, 25, fields[at : at + 25]])
            for at in range(0, 100, 25)
        ]
        await backend.broker.publish(task.lane, list(reversed(bundles)))
        await backend.registry.change(task.id, task_changes.seal(100))
        sink = MemorySink()

        await drain(backend, sink, settings)

        seqs = [delivery.push.seq for delivery in sink.received]
        assert sorted(seqs) == list(range(1, 101))
        for key in range(5):
            of_key = [seq for seq in seqs if seq % 5 == key]
            assert of_key == sorted(of_key)


async def test_in_an_ordered_task_an_unreadable_push_frees_its_key(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await empty_task(backend, Level.HIGH, ordered=True)
        fields = [fields_of(body) for body in ordered_bodies(task, "aaa")]
        body = msgspec.msgpack.encode([BUNDLE, task.id, 1, 3, [UNREADABLE, *fields[1:]]])
        await backend.broker.publish(task.lane, [body])
        await backend.registry.change(task.id, task_changes.seal(3))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sink.pushes() == [(task.id, 2), (task.id, 3)]
        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (2, 1)


async def test_a_cancelled_task_of_bundles_is_counted_as_dropped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.LOW, 50, bundle=32)
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        await backend.registry.change(task.id, task_changes.cancel)
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await until_empty(backend, task.lane)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dropped, sink.received) == (2, 48, [])


class Depths(Wrapped):
    """A broker that remembers how much of each lane may be at hand."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.depths: dict[str, int] = {}

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        self.depths[lane] = depth
        reader: LaneReader = await self._real.read(lane, on_ready, depth)
        return reader


async def test_of_a_lane_of_large_bundles_few_are_at_hand(tmp_path: Path) -> None:
    async with backend_in(tmp_path, prefetch=128, pool_lanes=1) as (backend, settings):
        old, single, bundled, huge = [
            await add_task(backend, pushes=1, seal=False, bundle=bundle)
            for bundle in (0, 1, 32, 512)
        ]
        broker = Depths(backend.broker)

        async with dispatching(
            with_other(backend, broker=broker), MemorySink(), settings
        ) as dispatcher:
            lanes = [task.lane for task in (old, single, bundled, huge)]
            await until(lambda: all(map(dispatcher.reads, [*lanes, "pool-0"])))

        assert [broker.depths[lane] for lane in lanes] == [128, 128, 4, 2]
        assert broker.depths["pool-0"] == 64
