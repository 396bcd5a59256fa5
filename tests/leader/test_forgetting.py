"""What the leader forgets, and when: with a clock of the test's own."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.leases import Leader, LeaseGuard
from pushlane.backends.ports import listed
from pushlane.core.names import DEAD_LANE, dead_lane, own_lane
from pushlane.core.publish import Publication
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher.leader.forgetting import Forgetting
from pushlane.dispatcher.leader.janitor import HalfMade, SharedLanes
from pushlane.model import audit, task_changes
from pushlane.model.names import DEAD_LEASE, submit_lease
from pushlane.model.recipients import AddressDeath, DeadAddressQuery, SuppressionScope
from pushlane.model.streams import producer_key, source_of
from tests.core.support import MemorySink, Wrapped, add_task, backend_in, drain
from tests.leader.recovering import (
    DEAD_RETENTION_S,
    GRACE_MS,
    MINUTE_MS,
    Clock,
    Recovering,
)

DAY_S = 86_400.0
DAY_MS = 86_400_000


class Leading:
    """A leader's forgetting by hand: `step` is what happens after so many milliseconds."""

    def __init__(self, backend: Backend, settings: Any) -> None:
        self.clock = Clock()
        leader = Leader(backend.lease, "janitor", "one")
        self._forgetting = Forgetting(backend, leader, settings, self.clock, self.clock.seconds)

    @property
    def has_more(self) -> bool:
        return self._forgetting.has_more

    async def step(self, later_ms: int = 0) -> None:
        self.clock.now_ms += later_ms
        await self._forgetting.step()


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[tuple[Backend, Leading]]:
    kept = {"task_retention_s": 7 * DAY_S, "dead_retention_s": DAY_S}
    async with backend_in(folder, **kept) as (backend, settings):
        yield backend, Leading(backend, settings)


async def ended(backend: Backend, *, tidy: bool = True, **fields: Any) -> Task:
    task = await add_task(backend, pushes=1, **fields)
    task = await backend.registry.change(task.id, task_changes.finish(State.DONE))
    if not tidy:
        return task
    await backend.broker.drop_lane(task.lane)
    return await backend.registry.change(task.id, task_changes.lane_dropped)


async def ids(backend: Backend) -> set[str]:
    return {task.id for task in await listed(backend.registry)}


async def test_a_task_is_forgotten_when_its_time_is_over(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend)
        running = await add_task(backend)

        await leader.step(7 * DAY_MS - MINUTE_MS)
        assert await ids(backend) == {task.id, running.id}
        await leader.step(2 * MINUTE_MS)

        assert await ids(backend) == {running.id}


async def test_dead_addresses_are_forgotten_some_at_a_time_and_stay_suppressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.dispatcher.leader.forgetting._ADDRESSES_A_STEP", 2)
    async with backend_in(tmp_path, dead_addresses_days=3) as (backend, settings):
        leader = Leading(backend, settings)
        now = leader.clock.now_ms
        deaths = [AddressDeath(number, now, "gone") for number in range(3)]
        await backend.dead_addresses.record("fcm", deaths, now)

        async def left() -> int:
            return len((await backend.dead_addresses.page(DeadAddressQuery())).addresses)

        await leader.step(3 * DAY_MS - MINUTE_MS)
        assert await left() == 3
        await leader.step(61 * MINUTE_MS)
        assert (await left(), leader.has_more) == (1, True)
        await leader.step()
        await leader.step()

        assert (await left(), leader.has_more) == (0, False)
        assert await backend.suppressions.counts() == {SuppressionScope("sink", "fcm"): 3}


async def test_one_whose_lane_is_still_there_stays_and_holds_up_no_other(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        stuck = await ended(backend, tidy=False)
        others = [await ended(backend) for _ in range(3)]

        await leader.step(8 * DAY_MS)

        assert await ids(backend) == {stuck.id}
        assert others


async def test_more_than_a_page_of_stuck_ones_holds_up_no_other(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        for n in range(300):
            task = Task(id=f"stuck{n}", level=Level.HIGH, lane=f"task-stuck{n}")
            await backend.registry.add(replace(task, state=State.DONE, finished_at_ms=1))
        last = await ended(backend)

        await leader.step(8 * DAY_MS)
        await leader.step()

        assert last.id not in await ids(backend)


async def test_a_retention_of_its_own_that_is_longer_is_kept_to(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend, retention_s=30 * DAY_S)

        await leader.step(29 * DAY_MS)
        assert await ids(backend) == {task.id}
        await leader.step(2 * DAY_MS)

        assert await ids(backend) == set()


async def test_who_does_not_lead_forgets_nothing(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        task = await ended(backend)
        await backend.lease.acquire("janitor", "another", 600)

        await leader.step(8 * DAY_MS)

        assert await ids(backend) == {task.id}


def dead(task_id: str, seq: int, died_at_ms: int) -> bytes:
    return encode_dead(
        DeadPush(task_id, seq, 5, "HTTP 410", died_at_ms, encode(Push(task_id, seq, "somebody")))
    )


async def test_old_dead_pushes_of_a_shared_lane_are_purged(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        now = leader.clock.now_ms
        await backend.broker.open_lane(DEAD_LANE)
        ages = [3 * DAY_MS, 2 * DAY_MS, 0]
        await backend.broker.publish(
            DEAD_LANE, [dead("t", n, now - age) for n, age in enumerate(ages, start=1)]
        )

        await leader.step()
        await leader.step()

        assert await backend.broker.backlog(DEAD_LANE) == 1


async def test_a_step_forgets_no_more_than_a_page(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        for n in range(300):
            task = Task(id=f"old{n}", level=Level.LOW, lane="pool-0", lane_dropped=True)
            await backend.registry.add(replace(task, state=State.DONE, finished_at_ms=1))

        await leader.step()
        assert len(await ids(backend)) == 300 - 256
        assert leader.has_more
        await leader.step()

        assert await ids(backend) == set()
        assert not leader.has_more


async def test_who_looks_through_the_dead_is_not_disturbed(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        await backend.broker.open_lane(DEAD_LANE)
        await backend.broker.publish(DEAD_LANE, [dead("t", 1, 1)])
        await backend.lease.acquire(DEAD_LEASE, "a command", 600)

        await leader.step()
        assert await backend.broker.backlog(DEAD_LANE) == 1
        await backend.lease.release(DEAD_LEASE, "a command")
        await leader.step(60 * MINUTE_MS)

        assert await backend.broker.backlog(DEAD_LANE) == 0


async def test_the_audit_keeps_its_newest_entries(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        for at_ms in range(1, 8):
            entry = audit.Entry(at_ms, "ada", "cli", "set-levels", "levels", {}, {})
            await audit.write(backend.documents, entry)

        with mock.patch.object(audit, "MOST_KEPT", 3):
            await leader.step(60 * MINUTE_MS)

        assert [one.at_ms for _, one in await audit.entries(backend.documents)] == [7, 6, 5]


async def test_a_leader_killed_at_a_purge_is_waited_for_by_a_command(tmp_path: Path) -> None:
    async with leading(tmp_path) as (backend, leader):
        await backend.broker.open_lane(DEAD_LANE)
        with mock.patch.object(backend.lease, "acquire", wraps=backend.lease.acquire) as acquire:
            await leader.step()

        held_s = [call.args[2] for call in acquire.call_args_list if call.args[0] == DEAD_LEASE]
        await backend.lease.acquire(DEAD_LEASE, "killed", *held_s)
        waited: list[float] = []

        async def sleep(duration_s: float) -> None:
            waited.append(duration_s)
            if sum(waited) >= held_s[0]:
                await backend.lease.release(DEAD_LEASE, "killed")  # it runs out

        async def look() -> str:
            return "looked"

        guard = LeaseGuard(backend.lease, DEAD_LEASE, "busy", sleep)
        assert await guard.run(look, lambda: None) == "looked"


async def test_dead_pushes_of_a_lane_of_their_own_go_after_their_time(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await ended(backend)
        await backend.broker.open_lane(dead_lane(task.id))
        recovering = Recovering(backend)

        await recovering.step(round(DEAD_RETENTION_S * 1000) - MINUTE_MS)
        await recovering.step(2 * MINUTE_MS)
        assert dead_lane(task.id) in await backend.broker.lanes()
        await recovering.step(GRACE_MS)

        assert dead_lane(task.id) not in await backend.broker.lanes()


class Watching:
    """A look at half-made tasks by hand."""

    def __init__(self, backend: Backend, forgets_after_s: float = math.inf) -> None:
        self.clock = clock = Clock()
        self._backend = backend
        self._half_made = HalfMade(
            backend, self._change, DAY_S, clock, clock.seconds, forgets_after_s
        )

    async def _change(self, task: Task, edit: task_changes.Edit) -> None:
        self._half_made.on_task(await self._backend.registry.change(task.id, edit))

    async def step(self, task: Task, later_ms: int) -> Task:
        self.clock.now_ms += later_ms
        self._half_made.on_task(await self._backend.registry.get(task.id))
        await self._half_made.step()
        return await self._backend.registry.get(task.id)


async def half_made(backend: Backend) -> Task:
    return await add_task(backend, pushes=1, seal=False, created_at_ms=task_changes.now_ms())


async def test_a_half_made_task_is_marked_and_ends_when_nobody_comes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend)

        assert (await watching.step(task, 1_000)).stalled_at_ms == 0
        marked = await watching.step(task, MINUTE_MS)
        assert marked.stalled_at_ms == watching.clock.now_ms
        assert (await watching.step(task, DAY_MS - MINUTE_MS)).state is State.RUNNING

        gone = await watching.step(task, MINUTE_MS)
        assert (gone.state, "did not come back" in gone.reason) == (State.EXPIRED, True)


async def test_one_whose_submit_runs_again_is_not_counted_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend)
        await watching.step(task, MINUTE_MS)
        await backend.lease.acquire(submit_lease(task.id), "a submit", 600)

        assert (await watching.step(task, DAY_MS)).stalled_at_ms == 0
        await backend.lease.release(submit_lease(task.id), "a submit")
        await watching.step(task, MINUTE_MS)

        assert (await watching.step(task, DAY_MS - MINUTE_MS)).state is State.RUNNING


async def test_a_task_that_its_producer_left_open_never_ends_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend)
        await backend.registry.change(task.id, task_changes.left_open(0))

        for _ in range(2):
            seen = await watching.step(task, 8 * DAY_MS)
            assert (seen.stalled_at_ms, seen.state.is_terminal) == (0, False)
    assert caplog.records == []


async def of_stream(backend: Backend, key: str = "stream/shop/orders/{}", fed: bool = True) -> Task:
    """A task that a process fed for a stream, with one push on its lane, until it was killed."""
    task = await half_made(backend)

    def edit(made: Task) -> Task:
        return replace(made, is_fed=fed, key=key.format(task.id), bundle=1)

    task = await backend.registry.change(task.id, edit)
    body = encode(Push(task.id, 1, "user-1"))
    await Publication(backend, task).publish([body], source_of(task))
    return task


async def test_the_task_of_a_stream_is_sealed_with_what_is_on_its_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await of_stream(backend), Watching(backend)
        await backend.lease.acquire(submit_lease(task.id), "a process", 600)
        held = await watching.step(task, MINUTE_MS)
        await backend.lease.release(submit_lease(task.id), "a process")

        sealed = await watching.step(task, MINUTE_MS)

        assert (held.total, held.stalled_at_ms) == (None, 0)
        assert (sealed.total, sealed.state, sealed.stalled_at_ms) == (1, State.RUNNING, 0)
        assert not await backend.lease.is_held(submit_lease(task.id))


@pytest.mark.parametrize(
    ("key", "fed"),
    [("producer:{}", True), ("shop/producer:{}", False)],
    ids=["beside the backend", "through a server"],
)
async def test_the_task_of_a_producer_without_a_spool_is_sealed_ten_minutes_later(
    tmp_path: Path, key: str, fed: bool
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await of_stream(backend, key, fed), Watching(backend)

        gone = await watching.step(task, MINUTE_MS)
        before = await watching.step(task, 9 * MINUTE_MS)
        sealed = await watching.step(task, MINUTE_MS)

        assert (gone.total, gone.stalled_at_ms) == (None, watching.clock.now_ms - 10 * MINUTE_MS)
        assert before.total is None
        assert (sealed.total, sealed.state) == (1, State.RUNNING)


async def test_a_drain_does_not_wait_until_it_is_sealed(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await of_stream(backend)
        gone = replace(task, key=producer_key(task.id), stalled_at_ms=1)
        await backend.registry.change(task.id, lambda _: gone)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert set(sink.pushes()) == {(task.id, 1)}
        assert (await backend.registry.get(task.id)).total is None


async def test_a_producer_that_only_stood_still_is_not_sealed(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await of_stream(backend), Watching(backend)
        await backend.registry.change(task.id, lambda it: replace(it, key=producer_key(it.id)))
        await watching.step(task, MINUTE_MS)
        await backend.lease.acquire(submit_lease(task.id), "the producer", 600)

        back = await watching.step(task, 20 * MINUTE_MS)

        assert (back.total, back.stalled_at_ms) == (None, 0)


async def test_one_of_which_the_broker_has_forgotten_who_published_is_not_sealed(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await half_made(backend), Watching(backend, forgets_after_s=30)

        def edit(made: Task) -> Task:
            return replace(made, is_fed=True, key=f"stream/shop/orders/{task.id}")

        await backend.registry.change(task.id, edit)
        seen = await watching.step(task, MINUTE_MS)

        assert (seen.total, seen.stalled_at_ms) == (None, watching.clock.now_ms)


async def test_a_task_that_is_complete_is_never_half_made(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task, watching = await add_task(backend), Watching(backend)

        assert (await watching.step(task, DAY_MS)).stalled_at_ms == 0


async def test_one_that_is_sealed_at_that_moment_is_not_ended(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await half_made(backend)
        task = await backend.registry.change(task.id, task_changes.stalled(1))
        await backend.registry.change(task.id, task_changes.seal(1))

        after = await backend.registry.change(
            task.id, task_changes.abandon(task.stalled_at_ms, "late")
        )

        assert after.state is State.RUNNING


async def test_who_goes_on_with_one_makes_it_whole_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await half_made(backend)
        await backend.registry.change(task.id, task_changes.stalled(1))

        assert (await backend.registry.change(task.id, task_changes.start)).stalled_at_ms == 0


class Passing:
    """A look at shared lanes by hand."""

    def __init__(self, backend: Backend) -> None:
        self.clock = Clock()
        self.passed = SharedLanes(backend, self.clock, self.clock.seconds)

    async def look(self, later_ms: int = 6_000) -> list[str]:
        self.clock.now_ms += later_ms
        return await self.passed.look()


def low(task_id: str) -> Task:
    return Task(id=task_id, level=Level.LOW, lane="pool-0", first_lane="pool-0")


async def publish(backend: Backend, *lanes: str) -> None:
    for lane in lanes:
        await backend.broker.open_lane(lane)
        await backend.broker.publish(lane, [b"a push"])


async def empty(backend: Backend, *lanes: str) -> None:
    """Take the lane away with all on it, and make it anew."""
    for lane in lanes:
        await backend.broker.drop_lane(lane, force=True)
        await backend.broker.open_lane(lane)


async def test_a_task_waits_for_each_lane_that_it_shares(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await publish(backend, "pool-0", "pool-0-later")
        passing = Passing(backend)
        ended_ms = passing.clock.now_ms

        assert passing.passed.holds_up(low("a"), ended_ms)
        assert await passing.look() == []
        await empty(backend, "pool-0")
        await publish(backend, "pool-0")
        assert await passing.look() == ["a"]
        assert passing.passed.holds_up(low("a"), ended_ms)
        assert await passing.look() == []
        await empty(backend, "pool-0-later")
        assert await passing.look() == ["a"]

        assert not passing.passed.holds_up(low("a"), ended_ms)


async def test_an_empty_lane_holds_up_nobody_for_long(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        passing = Passing(backend)
        for task in ("a", "b"):
            assert passing.passed.holds_up(low(task), passing.clock.now_ms)

        assert await passing.look(0) == ["a", "b"]


async def test_one_that_ended_later_waits_for_a_later_end(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await publish(backend, "pool-0")
        passing = Passing(backend)
        assert passing.passed.holds_up(low("first"), passing.clock.now_ms)
        assert await passing.look() == []
        await publish(backend, "pool-0")
        assert passing.passed.holds_up(low("second"), passing.clock.now_ms)

        assert await passing.look() == []
        await empty(backend, "pool-0")

        assert await passing.look() == ["first", "second"]


async def test_an_end_that_is_waited_for_long_is_known_to_the_next_leader(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await publish(backend, "pool-0")
        first = Passing(backend)
        ended_ms = first.clock.now_ms
        assert first.passed.holds_up(low("a"), ended_ms)
        assert await first.look() == []
        assert await first.look(2 * 3_600_000) == []
        end = await backend.broker.end_of("pool-0")
        asked: list[tuple[int, int]] = []

        class Asked(Wrapped):
            async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
                asked.append(end)
                return bool(await self._real.is_past(lane, end))

        await publish(backend, "pool-0")
        second = Passing(with_other(backend, broker=Asked(backend.broker)))
        assert second.passed.holds_up(low("a"), ended_ms - 3_600_000)
        assert await second.look() == []

        assert asked == [end]


async def test_a_task_with_a_lane_of_its_own_waits_for_none(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = Task(id="a", level=Level.HIGH, lane=own_lane("a"), first_lane=own_lane("a"))

        assert not Passing(backend).passed.holds_up(task, 1)
