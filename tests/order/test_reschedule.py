"""Tasks whose times are changed while dispatchers run: what goes, what waits, and how often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import gmtime, monotonic, strftime, time

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import later_lane, own_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.model import task_changes
from pushlane.model.due import PutOff, due_ms, wait_of
from pushlane.model.task_changes import NewTimes
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    until,
    until_state,
    until_task,
)

HOUR_MS = 3_600_000
NOW_MS = 2_000_000_000_000


def hours_around_now() -> str:
    """Hours that began an hour ago and end in more than twenty, so that nothing comes due."""
    begin, end = (strftime("%H:%M", gmtime(time() + hours * 3_600)) for hours in (-1, 21))
    return f"{begin}-{end}"


def fast_s() -> float:
    """A monotonic clock that runs so fast that the leader need not be waited for."""
    return 20 * monotonic()


async def wait_on_later_lane(backend: Backend, task: Task, count: int) -> None:
    """Wait until so many of the task's pushes are put off."""
    found = 0
    while found < count:
        if delayed := await backend.broker.delayed(later_lane(own_lane(task.id))):
            found = delayed.messages


def seqs_of(sink: MemorySink, task: Task) -> list[int]:
    return sorted(seq for _, seq in sink.pushes(task))


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_what_was_put_off_until_tomorrow_goes_once_when_there_are_no_quiet_hours(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, level, 40)
        await backend.reschedule(task.id, NewTimes(quiet=hours_around_now()))
        async with dispatching(backend, sink, settings, clock_s=fast_s):
            await wait_on_later_lane(backend, task, 40)
            assert sink.received == []

            await backend.reschedule(task.id, NewTimes(quiet=""))

            await until_state(backend, task, State.DONE)
        assert seqs_of(sink, task) == [*range(1, 41)]


async def test_what_is_rescheduled_while_nobody_dispatches_goes_when_somebody_does(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, pushes=10, quiet=hours_around_now())
        async with dispatching(backend, sink, settings, clock_s=fast_s):
            await wait_on_later_lane(backend, task, 10)
        await backend.reschedule(task.id, NewTimes(quiet=""))

        async with dispatching(backend, sink, settings, clock_s=fast_s):
            await until_state(backend, task, State.DONE)

        assert seqs_of(sink, task) == [*range(1, 11)]


async def test_what_still_has_to_wait_by_the_new_hours_is_put_off_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        async with dispatching(backend, sink, settings, clock_s=fast_s):
            task = await add_task(backend, pushes=10, quiet=hours_around_now())
            await wait_on_later_lane(backend, task, 10)
            zone = "Etc/GMT-1"

            await backend.reschedule(task.id, NewTimes(zone=zone))  # quiet for an hour less
            await until_task(backend, task, lambda now: not now.recall_ms)

            await wait_on_later_lane(backend, task, 10)
            notes: list[PutOff] = []
            while sum(note.pushes for note in notes) < 10:
                [found] = await backend.registry.put_offs([task.id])
                notes = list(found)
        assert sink.received == []
        assert {note.zone for note in notes} == {zone}
        assert sum(note.pushes for note in notes) == 10


async def test_a_running_task_that_starts_later_keeps_what_is_left_until_then(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path, slots=1) as (backend, settings):
        sink = MemorySink()
        sink.gate.clear()
        task = await add_task(backend, pushes=50)
        async with dispatching(backend, sink, settings):
            await sink.until_received(1)
            later = await backend.reschedule(task.id, NewTimes(not_before_ms=now_ms() + HOUR_MS))
            other = await add_task(backend, pushes=5)
            sink.gate.set()
            await until_state(backend, other, State.DONE)
            sent = len(sink.pushes(task))
            assert sent < 50
            assert later.state is State.RUNNING

            await backend.reschedule(task.id, NewTimes(not_before_ms=0))

            await until_state(backend, task, State.DONE)
        assert seqs_of(sink, task) == [*range(1, 51)]


async def test_a_start_that_is_moved_takes_effect_wherever_it_is_moved_to(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, pushes=5, not_before_ms=now_ms() + HOUR_MS)
        async with dispatching(backend, sink, settings):
            await backend.reschedule(task.id, NewTimes(not_before_ms=now_ms() + 2 * HOUR_MS))
            other = await add_task(backend, pushes=5)
            await until_state(backend, other, State.DONE)
            assert sink.pushes(task) == []

            await backend.reschedule(task.id, NewTimes(not_before_ms=now_ms() + 1))

            await until_state(backend, task, State.DONE)
        assert seqs_of(sink, task) == [*range(1, 6)]


async def test_a_task_of_the_pool_that_is_to_wait_leaves_the_pool_to_others(tmp_path: Path) -> None:
    async with backend_in(tmp_path, pool_lanes=1) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, Level.LOW, 20)
        changed = await backend.reschedule(task.id, NewTimes(not_before_ms=now_ms() + HOUR_MS))
        assert changed.lane == own_lane(task.id)
        async with dispatching(backend, sink, settings):
            other = await add_task(backend, Level.LOW, 20)
            await until_state(backend, other, State.DONE)
            assert sink.pushes(task) == []

            await backend.reschedule(task.id, NewTimes(not_before_ms=0))

            await until_state(backend, task, State.DONE)
        assert seqs_of(sink, task) == [*range(1, 21)]


async def test_an_ordered_task_keeps_its_order_when_what_waits_goes_earlier(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, pushes=0, seal=False, ordered=True, quiet=hours_around_now())
        chain = [encode(Push(task.id, seq, "anna", after_seq=seq - 1)) for seq in range(1, 9)]
        await backend.broker.publish(task.lane, chain)
        await backend.registry.change(task.id, task_changes.seal(8))
        async with dispatching(backend, sink, settings, clock_s=fast_s):
            await wait_on_later_lane(backend, task, 1)
            await backend.reschedule(task.id, NewTimes(quiet=""))
            await until_state(backend, task, State.DONE)

        assert [seq for _, seq in sink.pushes(task)] == [*range(1, 9)]


async def test_a_paused_task_is_asked_anew_and_sends_when_it_is_resumed(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        async with dispatching(backend, sink, settings, clock_s=fast_s):
            task = await add_task(backend, pushes=10, quiet=hours_around_now())
            await wait_on_later_lane(backend, task, 10)
            await backend.pause(task.id)

            await backend.reschedule(task.id, NewTimes(quiet=""))
            await until_task(backend, task, lambda now: not now.recall_ms)
            assert sink.received == []
            await backend.registry.change(task.id, task_changes.resume)

            await until_state(backend, task, State.DONE)
        assert seqs_of(sink, task) == [*range(1, 11)]


async def test_pushes_with_a_start_of_their_own_wait_for_it_still(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        task = await add_task(backend, pushes=0, seal=False, quiet=hours_around_now())
        own_ms = now_ms() + HOUR_MS
        bodies = [
            encode(Push(task.id, seq, "anna", not_before_ms=own_ms if seq % 2 else 0))
            for seq in range(1, 11)
        ]
        await backend.broker.publish(task.lane, bodies)
        await backend.registry.change(task.id, task_changes.seal(10))
        async with dispatching(backend, sink, settings, clock_s=fast_s) as dispatcher:
            await wait_on_later_lane(backend, task, 10)
            await backend.reschedule(task.id, NewTimes(quiet=""))
            await sink.until_received(5)
            await until(lambda: dispatcher.stats.deferred >= 15)
            await wait_on_later_lane(backend, task, 5)

        assert seqs_of(sink, task) == [2, 4, 6, 8, 10]


def busy_for(seconds: float) -> Callable[[Delivery], Outcome]:
    return lambda delivery: (
        Outcome.retry("busy", after_s=seconds) if delivery.push.attempt == 1 else DELIVERED
    )


async def test_a_retry_on_the_later_lane_waits_for_its_own_time(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink(busy_for(3_600))
        start_ms = now_ms() - HOUR_MS
        async with dispatching(backend, sink, settings, clock_s=fast_s) as dispatcher:
            task = await add_task(backend, pushes=4, not_before_ms=start_ms)
            await wait_on_later_lane(backend, task, 4)
            await backend.reschedule(task.id, NewTimes(not_before_ms=now_ms() + HOUR_MS))
            await backend.reschedule(task.id, NewTimes(not_before_ms=0))
            await until_task(backend, task, lambda now: not now.recall_ms)
            await until(lambda: dispatcher.stats.deferred >= 4)
            await wait_on_later_lane(backend, task, 4)

        assert len(sink.received) == 4


def test_a_retry_is_due_at_its_time_and_not_in_quiet_hours() -> None:
    task = Task(id="t", level=Level.HIGH, lane="task-t")
    retried = Push("t", 1, "anna", attempt=2, due_at_ms=NOW_MS + 5_000)

    assert due_ms(task, retried, NOW_MS) == NOW_MS + 5_000
    assert due_ms(task, retried, NOW_MS + 6_000) == NOW_MS + 6_000
    assert wait_of(task, retried, NOW_MS + 5_000, NOW_MS).reason == "retry"


async def test_pushes_that_carry_the_expiry_of_their_task_go_when_that_is_later(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        first_ms, second_ms = now_ms() + HOUR_MS, now_ms() + 3 * HOUR_MS
        task = await add_task(
            backend, pushes=5, expires_at_ms=first_ms, push_expires_at_ms=first_ms
        )
        await backend.reschedule(task.id, NewTimes(expires_at_ms=second_ms))
        later_ms = first_ms + HOUR_MS

        async with dispatching(backend, sink, settings, clock_ms=lambda: later_ms):
            await until_state(backend, task, State.DONE)

        assert seqs_of(sink, task) == [*range(1, 6)]
        assert {delivery.push.expires_at_ms for delivery in sink.received} == {second_ms}


async def test_pushes_expire_by_the_earlier_expiry_or_one_of_their_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        at_ms = now_ms() + 2 * HOUR_MS
        shortened = await add_task(backend, pushes=5, expires_at_ms=at_ms + HOUR_MS)
        own = await add_task(
            backend, pushes=5, expires_at_ms=at_ms + HOUR_MS, push_expires_at_ms=at_ms - 1
        )
        await backend.reschedule(shortened.id, NewTimes(expires_at_ms=at_ms - 1))
        await backend.reschedule(own.id, NewTimes(expires_at_ms=0))

        async with dispatching(backend, sink, settings, clock_ms=lambda: at_ms):
            await until_state(backend, shortened, State.DONE)
            await until_state(backend, own, State.DONE)

        progress = await backend.registry.progress([shortened.id, own.id])
        assert [one.expired for one in progress] == [5, 5]
        assert sink.received == []
