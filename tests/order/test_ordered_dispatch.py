"""An ordered task in a dispatcher: what goes, what waits, and what never goes again."""

from __future__ import annotations

from pathlib import Path

from pushlane.backends.backend import Backend
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, encode
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model import task_changes
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    drain,
    until_state,
)


async def add_ordered(
    backend: Backend, keys: str, level: Level = Level.HIGH, **push_fields: int
) -> Task:
    """A task with a push for each letter, which is its key."""
    task = await add_task(backend, level, pushes=0, seal=False, ordered=True)
    await backend.broker.publish(task.lane, bodies(task, keys, **push_fields))
    return await backend.registry.change(task.id, task_changes.seal(len(keys)))


def bodies(task: Task, keys: str, **push_fields: int) -> list[bytes]:
    return [
        encode(Push(task.id, seq, key, after_seq=keys.rfind(key, 0, seq - 1) + 1, **push_fields))
        for seq, key in enumerate(keys, start=1)
    ]


def seqs(sink: MemorySink) -> list[int]:
    return [delivery.push.seq for delivery in sink.received]


async def test_pushes_of_one_key_go_one_at_a_time_and_those_of_others_beside_them(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_ordered(backend, "aabbcc")
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings, drain=True):
            await sink.until_received(3)
            assert sorted(seqs(sink)) == [1, 3, 5]
            sink.gate.set()
            await sink.until_received(6)

        assert sorted(seqs(sink)[3:]) == [2, 4, 6]


async def test_a_retry_holds_only_its_key(tmp_path: Path) -> None:
    def once_more(delivery: Delivery) -> Outcome:
        push = delivery.push
        return Outcome.retry("busy", 0.2) if (push.seq, push.attempt) == (1, 1) else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        await add_ordered(backend, "aabbaa")
        sink = MemorySink(once_more)

        await drain(backend, sink, settings)

        assert [seq for seq in seqs(sink) if seq in (1, 2, 5, 6)] == [1, 1, 2, 5, 6]
        assert seqs(sink).index(4) < seqs(sink).index(2)


async def test_a_dead_push_frees_its_key(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, "aaa")
        sink = MemorySink(lambda one: Outcome.dead("gone") if one.push.seq == 1 else DELIVERED)

        await drain(backend, sink, settings)

        assert seqs(sink) == [1, 2, 3]
        [progress] = await backend.registry.progress([task.id])
        assert (progress.dead, progress.delivered) == (1, 2)


async def test_what_is_finished_is_not_sent_again_when_it_comes_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, "aaa")
        await backend.registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert seqs(sink) == [3]
        assert await backend.broker.backlog(task.lane) == 0


async def test_two_copies_of_a_push_go_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, "aba")
        await backend.broker.publish(task.lane, bodies(task, "aba"))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert sorted(seqs(sink)) == [1, 2, 3]


async def test_a_push_that_expired_waits_for_its_predecessor_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False, ordered=True)
        first, second, third = (
            Push(task.id, 1, "a"),
            Push(task.id, 2, "a", after_seq=1, expires_at_ms=now_ms() - 1),
            Push(task.id, 3, "a", after_seq=2),
        )
        await backend.broker.publish(task.lane, [encode(push) for push in (second, third, first)])
        await backend.registry.change(task.id, task_changes.seal(3))
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert seqs(sink) == [1, 3]


async def batches_of(keys: str, batch_size: int, folder: Path) -> list[list[int]]:
    sink = MemorySink(batch_size=batch_size)
    async with backend_in(folder) as (backend, settings):
        await add_ordered(backend, keys)
        await drain(backend, sink, settings)

    return [[delivery.push.seq for delivery in batch] for batch in sink.batches]


async def test_a_batch_never_holds_two_pushes_of_a_key(tmp_path: Path) -> None:
    keys = "abc" * 20

    batches = await batches_of(keys, 8, tmp_path)

    assert max(map(len, batches)) > 1
    for batch in batches:
        assert len({keys[seq - 1] for seq in batch}) == len(batch)


async def test_a_push_whose_predecessor_never_ends_goes_after_the_time_out(tmp_path: Path) -> None:
    async with backend_in(tmp_path, order_timeout_s=0.1) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False, ordered=True)
        await backend.broker.publish(task.lane, [encode(Push(task.id, 2, "a", after_seq=1))])
        sink = MemorySink()

        async with dispatching(backend, sink, settings) as dispatcher:
            await sink.until_received(1)

        assert dispatcher.stats.out_of_order == 1


async def test_a_task_cancelled_while_its_pushes_wait_ends(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, "a" * 50, Level.LOW)
        other = await add_task(backend, Level.LOW, pushes=5)
        sink = MemorySink(lambda one: held(one.push))

        def held(push: Push) -> Outcome:
            return Outcome.retry("busy", 60) if push.task_id == task.id else DELIVERED

        async with dispatching(backend, sink, settings):
            await sink.until(lambda: bool(sink.pushes(task)))
            await backend.registry.change(task.id, task_changes.cancel)
            await until_state(backend, other, State.DONE)

        assert sink.pushes(task) == [(task.id, 1)]


async def test_a_paused_task_goes_on_where_it_was(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_ordered(backend, "ab" * 40)
        sink = MemorySink()
        sink.gate.clear()

        async with dispatching(backend, sink, settings, drain=True):
            await sink.until_received(2)
            await backend.pause(task.id)
            await backend.registry.change(task.id, task_changes.resume)
            sink.gate.set()
            await sink.until_received(80)

        for parity in (0, 1):
            of_key = [seq for seq in seqs(sink) if seq % 2 == parity]
            assert of_key == sorted(set(of_key))


async def test_two_dispatchers_keep_the_order_between_them(tmp_path: Path) -> None:
    order: list[int] = []

    def note(delivery: Delivery) -> Outcome:
        order.append(delivery.push.seq)
        return DELIVERED

    async with backend_in(tmp_path, prefetch=8) as (backend, settings):
        task = await add_ordered(backend, "abcdef" * 30)
        sinks = MemorySink(note), MemorySink(note)
        async with (
            dispatching(backend, sinks[0], settings),
            dispatching(backend, sinks[1], settings),
        ):
            await until_state(backend, task, State.DONE)

    assert sorted(order) == list(range(1, 181))
    for key in range(6):
        of_key = [seq for seq in order if seq % 6 == key]
        assert of_key == sorted(of_key)


async def test_a_lane_full_of_what_waits_makes_room_for_what_it_waits_for(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=0, seal=False, ordered=True)
        waiting = bodies(task, "a" * 1_600)
        await backend.broker.publish(task.lane, [*waiting[1_580:], *waiting[1:1_580], waiting[0]])
        await backend.registry.change(task.id, task_changes.seal(1_600))
        sink = MemorySink()

        async with dispatching(backend, sink, settings):
            await sink.until_received(1)

        assert seqs(sink)[0] == 1
