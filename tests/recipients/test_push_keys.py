"""Keys of pushes in a dispatcher: of an app's pushes with one key, one is sent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pushlane.backends.backend import Backend
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.producers.dead import DeadLetters, DeadRetry, Selection
from tests.core.support import MemorySink, add_task, backend_in, drain


async def add(backend: Backend, *keys: str, **fields: object) -> Task:
    """A task with a push for each key, to a recipient of its own."""
    task = await add_task(backend, pushes=0, seal=False, **fields)
    pushes = [
        Push(task.id, seq, f"to-{seq}", title="Paid", key=key)
        for seq, key in enumerate(keys, start=1)
    ]
    await backend.broker.publish(task.lane, [encode(push) for push in pushes])
    return await backend.registry.change(task.id, task_changes.seal(len(pushes)))


async def counts(backend: Backend, task: Task) -> tuple[int, int, int]:
    [progress] = await backend.registry.progress([task.id])
    return progress.delivered, progress.dead, progress.dropped


async def test_of_two_pushes_with_a_key_one_is_sent_and_the_other_dropped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, "order-7", "order-8", "order-7", "", "")
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert await counts(backend, task) == (4, 0, 1)
        assert sorted(seq for _, seq in sink.pushes(task)) in ([1, 2, 4, 5], [2, 3, 4, 5])
        [reasons] = await backend.registry.reasons([task.id])
        assert reasons.dropped == {"duplicate key": 1}


async def test_it_holds_over_tasks_and_restarts_and_for_its_app_alone(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        first = await add(backend, "order-7")
        await drain(backend, MemorySink(), settings)
    async with backend_in(tmp_path) as (backend, settings):
        again = await add(backend, "order-7", level=Level.LOW)
        other = await add(backend, "order-7", app="other")

        await drain(backend, MemorySink(), settings)

        found = [await counts(backend, task) for task in (first, again, other)]
        assert found == [(1, 0, 0), (0, 0, 1), (1, 0, 0)]


async def test_a_retry_is_no_duplicate_of_itself(tmp_path: Path) -> None:
    def once_more(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 0.01) if delivery.push.attempt == 1 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, "order-7")
        sink = MemorySink(once_more)

        await drain(backend, sink, settings)

        assert [seq for _, seq in sink.pushes(task)] == [1, 1]
        assert await counts(backend, task) == (1, 0, 0)


async def test_the_second_is_dropped_also_when_the_first_has_died(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        first = await add(backend, "order-7")
        await drain(backend, MemorySink(lambda _: Outcome.dead("no such device")), settings)
        second = await add(backend, "order-7")

        await drain(backend, MemorySink(), settings)

        assert await counts(backend, first) == (0, 1, 0)
        assert await counts(backend, second) == (0, 0, 1)


async def test_a_dead_one_that_is_retried_by_hand_is_sent(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add(backend, "order-7")
        await drain(backend, MemorySink(lambda _: Outcome.dead("no such device")), settings)

        letters = DeadLetters(backend, 1_000)
        [retried] = await DeadRetry(backend, settings, letters).run(Selection())
        sink = MemorySink()
        await drain(backend, sink, settings)

        assert retried.count == 1
        assert [delivery.push.key for delivery in sink.received] == [""]


@pytest.mark.parametrize("length", [1, 200])
def test_a_push_without_a_key_has_the_bytes_that_it_always_had(length: int) -> None:
    plain, keyed = Push("t", 1, "to-1"), Push("t", 1, "to-1", key="k" * length)
    fields = msgspec.msgpack.decode(encode(plain))

    assert len(fields) == 17
    assert msgspec.msgpack.decode(encode(keyed)) == [*fields, None, None, "k" * length]
