"""The leader follows the journal: what was written past this Redis is in it within two looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from pushlane.backends.ports import listed
from pushlane.backends.redis import RedisPorts, connect_redis, journal_follower
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.journal_follower import LOOK_S, REMOVED, JournalFollower
from pushlane.backends.redis.keys import Keys
from pushlane.core.errors import Unreachable
from pushlane.core.task import State, Task, Weights
from pushlane.model import task_changes
from pushlane.model.task_bytes import encode
from pushlane.util.errors import UnknownTask
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.test_refill import Paged
from tests.backends.redis.world import WINDOW_S, World, new_task, world_on
from tests.unreadable import unchecked


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Side:
    """One server of Redis (a prefix) with a leader that follows the journal."""

    def __init__(self, ports: RedisPorts, client: RedisClient, keys: Keys, world: World) -> None:
        self.ports, self.registry, self.client, self.keys = ports, ports.registry, client, keys
        self.journal = world.journal
        self.clock = Clock()
        self.leader = self.another_leader()

    def another_leader(self) -> JournalFollower:
        return JournalFollower(self.client, self.keys, self.journal, self.clock)

    async def look(self, *leaders: JournalFollower) -> None:
        self.clock.now_s += LOOK_S
        await asyncio.gather(*(leader.look() for leader in leaders or [self.leader]))

    async def looks(self) -> None:
        """As many as it takes: two, and one that sees what they did."""
        for _ in range(3):
            await self.look()

    async def followed(self) -> bytes:
        found: bytes = await self.client.call("GET", self.keys.followed)
        return found

    async def end_fill(self) -> None:
        """Forget where it stands, as a Redis that an earlier version has filled."""
        await self.client.call("DEL", self.keys.followed)


@asynccontextmanager
async def side_of(world: World) -> AsyncIterator[Side]:
    client, keys = RedisClient(world.url), Keys(world.prefix)
    async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as ports:
        side = Side(ports, client, keys, world)
        try:
            yield side
        finally:
            await side.leader.close()
            await client.close()


@asynccontextmanager
async def two_sides(url: str) -> AsyncIterator[tuple[Side, Side]]:
    """Two servers with one journal, as a demoted master and the one that took over."""
    async with world_on(url) as old, world_on(url) as new:
        old.journal = new.journal = Paged()
        async with side_of(old) as a:
            common = [await a.registry.add(new_task()) for _ in range(2)]
            assert len(common) == 2
            async with side_of(new) as b:
                yield a, b


async def state(side: Side, task: Task) -> State:
    return (await side.registry.get(task.id)).state


async def rebuilt(side: Side) -> None:
    await side.client.call("DEL", side.keys.filled, side.keys.server)
    await side.client.call("DEL", side.keys.tasks)


async def test_a_task_that_was_registered_and_sealed_elsewhere_is_here_within_two_looks(
    redis_url: str,
) -> None:
    async with two_sides(redis_url) as (old, new):
        task = await old.registry.add(new_task(key="sale", name="Sale"))
        task = await old.registry.change(task.id, task_changes.start)
        task = await old.registry.change(task.id, task_changes.seal(5_000))
        before = await new.registry.changes(0, 0)
        with pytest.raises(UnknownTask):
            await new.registry.get(task.id)

        await new.look()
        await new.look()

        assert await new.registry.get(task.id) == task
        assert (await new.registry.get("sale")).id == task.id
        assert (await new.registry.changes(before.version, 0)).tasks == [task]
        await new.look()
        assert await new.followed() == b"%d" % len(new.journal.log)
        await rebuilt(new)
        assert await new.registry.get("Sale") == task


async def test_what_was_cancelled_elsewhere_stands_over_later_changes(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task = (await listed(new.registry))[0]
        await old.registry.change(task.id, task_changes.cancel)
        for quota in (2, 3, 4):
            known = await new.registry.change(task.id, task_changes.set_quota(quota))

        await new.looks()

        cancelled = await new.registry.get(task.id)
        assert (cancelled.state, cancelled.version) == (State.CANCELLED, known.version + 1)
        assert new.journal.records[task.id] == encode(cancelled)
        await rebuilt(new)
        assert await new.registry.get(task.id) == cancelled
        await old.looks()
        assert await state(old, task) is State.CANCELLED


async def test_a_rebuild_before_anybody_has_looked_goes_by_the_same_rule(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task, other = await listed(new.registry)
        await old.registry.change(task.id, task_changes.cancel)
        await new.registry.change(task.id, task_changes.set_quota(2))
        await new.registry.change(task.id, task_changes.set_quota(3))
        for quota in (4, 5):
            ahead = await new.registry.change(other.id, task_changes.set_quota(quota))
        await old.registry.change(other.id, task_changes.set_quota(6))

        await rebuilt(new)

        cancelled = await new.registry.get(task.id)
        assert (cancelled.state, cancelled.version) == (State.CANCELLED, 3)
        assert await new.registry.get(other.id) == ahead
        assert new.journal.records[task.id] == encode(cancelled)
        assert new.journal.records[other.id] == encode(ahead)


async def test_the_newer_version_stands_and_is_journalled_last(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task = (await listed(new.registry))[0]
        for quota in (2, 3):
            kept = await new.registry.change(task.id, task_changes.set_quota(quota))
        await old.registry.change(task.id, task_changes.set_quota(9))
        assert new.journal.records[task.id] != encode(kept)

        await new.looks()

        assert await new.registry.get(task.id) == kept
        assert new.journal.records[task.id] == encode(kept)
        await old.looks()
        assert await old.registry.get(task.id) == kept


async def test_a_change_whose_writer_died_is_made(redis_url: str) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        await side.looks()
        world.journal.after_append = die
        with pytest.raises(Died):
            await side.registry.change(task.id, task_changes.cancel)
        world.journal.after_append = lambda: None

        await side.look()
        assert await state(side, task) is State.SUBMITTED
        await side.look()

        assert await state(side, task) is State.CANCELLED


async def test_a_writer_between_journal_and_commit_is_not_disturbed(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        go_on, journalled = asyncio.Event(), asyncio.Event()

        async def stand_still() -> None:
            world.journal.on_append = None
            journalled.set()
            await go_on.wait()

        world.journal.on_append = stand_still
        change = asyncio.create_task(side.registry.change(task.id, task_changes.start))
        await journalled.wait()
        for _ in range(4):
            await side.look()
        assert await state(side, task) is State.SUBMITTED
        appended = len(world.journal.log)
        go_on.set()

        assert (await change).version == 1
        await side.looks()
        assert len(world.journal.log) == appended
        assert await side.followed() == b"%d" % appended


async def test_an_add_under_a_key_is_left_to_who_makes_it(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        go_on, journalled = asyncio.Event(), asyncio.Event()

        async def stand_still() -> None:
            world.journal.on_append = None
            journalled.set()
            await go_on.wait()

        world.journal.on_append = stand_still
        add = asyncio.create_task(side.registry.add(new_task(key="sale")))
        await journalled.wait()
        for _ in range(4):
            await side.look()
        assert await listed(side.registry) == []
        go_on.set()

        added = await add
        assert await side.registry.get("sale") == added


async def test_a_difference_that_changes_is_left_until_it_stands(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        for version in (1, 2, 3):
            later = replace(task, quota=1 + version, version=version)
            await world.journal.append(task.id, encode(later))
            await side.look()
            assert await side.registry.get(task.id) == task

        await side.look()

        assert await side.registry.get(task.id) == later


async def test_looks_that_come_sooner_do_nothing(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        await side.look()
        await world.journal.append(task.id, encode(replace(task, quota=9, version=1)))
        await side.look()

        for _ in range(5):
            await side.leader.look()
        assert await side.registry.get(task.id) == task


async def test_leaders_side_by_side_settle_it_once(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task = (await listed(new.registry))[0]
        await old.registry.change(task.id, task_changes.cancel)
        await new.registry.change(task.id, task_changes.set_quota(2))
        await new.registry.change(task.id, task_changes.set_quota(3))
        added = await old.registry.add(new_task())
        other = new.another_leader()

        for _ in range(6):
            await new.look(new.leader, other)
        await other.close()

        assert (await new.registry.get(task.id)).version == 3
        assert await new.registry.get(added.id) == added
        assert [key for key, _ in new.journal.log[-2:]] != [task.id, task.id]
        assert await new.followed() == b"%d" % len(new.journal.log)


async def test_two_sides_that_both_lead_come_to_the_same(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        one, other = await listed(new.registry)
        await old.registry.change(one.id, task_changes.cancel)
        await new.registry.change(one.id, task_changes.set_quota(4))
        await new.registry.change(other.id, task_changes.seal(7))
        await old.registry.change(other.id, task_changes.set_quota(5))
        await old.registry.add(new_task())
        await new.registry.add(new_task())

        for _ in range(5):
            await asyncio.gather(old.look(), new.look())

        assert await listed(old.registry) == await listed(new.registry)
        assert len(await listed(old.registry)) == 4
        records = len(old.journal.log)
        for _ in range(3):
            await asyncio.gather(old.look(), new.look())
        assert len(old.journal.log) == records


async def test_a_task_that_ended_and_was_forgotten_elsewhere_is_cancelled(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task, other = await listed(new.registry)
        for each in (task, other):
            await old.registry.change(each.id, task_changes.finish(State.DONE))
            await old.registry.forget(each.id)
        await new.registry.change(other.id, task_changes.finish(State.DONE))
        await new.journal.append(other.id, b"")

        await new.looks()

        cancelled = await new.registry.get(task.id)
        assert (cancelled.state, cancelled.reason) == (State.CANCELLED, REMOVED)
        assert await state(new, other) is State.DONE


async def test_what_was_forgotten_here_does_not_come_back(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        task = (await listed(new.registry))[0]
        await new.registry.change(task.id, task_changes.finish(State.DONE))
        await new.registry.forget(task.id)
        await old.registry.change(task.id, task_changes.set_quota(9))

        await new.looks()

        with pytest.raises(UnknownTask):
            await new.registry.get(task.id)
        assert new.journal.records[task.id] == b""


async def test_a_key_stays_with_the_task_that_has_it_here(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        there = await old.registry.add(new_task(key="sale"))
        here = await new.registry.add(new_task(key="sale"))

        await new.looks()

        assert (await new.registry.get("sale")).id == here.id
        assert await new.registry.get(there.id) == there
        await new.registry.change(there.id, task_changes.set_quota(3))
        assert (await new.registry.get("sale")).id == here.id


async def test_a_newer_versions_task_is_stored_as_it_is(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        with unchecked():
            task = new_task(format=99)
            body = encode(task)
        await world.journal.append(task.id, body)

        await side.looks()

        assert await side.client.call("HGET", side.keys.tasks, task.id) == body


async def test_what_only_a_newer_version_could_write_is_left_and_does_not_stop_the_rest(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_sides(redis_url) as (old, new):
        task = (await listed(new.registry))[0]
        await new.registry.change(task.id, task_changes.set_quota(5))
        with unchecked():
            body = encode(replace(task, format=99, state=State.CANCELLED, version=0))
        await new.journal.append(task.id, body)
        added = await old.registry.add(new_task())

        await new.looks()

        assert await new.registry.get(added.id) == added
        assert await new.followed() == b"%d" % len(new.journal.log)
        assert f"task {task.id} differs from the task topic" in caplog.text


async def test_documents_and_weights_are_those_of_the_journal(redis_url: str) -> None:
    async with two_sides(redis_url) as (old, new):
        for side in (old, new):
            await side.ports.documents.put("rule", "both", b"1", None)
            await side.ports.documents.put("rule", "gone", b"1", None)
        await old.registry.set_weights(Weights(3, 2, 1))
        await old.ports.documents.put("rule", "news", b"body", None)
        both = await old.ports.documents.get("rule", "both")
        assert both is not None
        await old.ports.documents.put("rule", "both", b"2", both.version)
        await old.ports.documents.remove("rule", "gone")

        await new.looks()

        found = {one.name: one.body for one in await new.ports.documents.list("rule")}
        assert found == {"news": b"body", "both": b"2"}
        assert await new.registry.weights() == Weights(3, 2, 1)
        await new.look()
        assert await new.followed() == b"%d" % len(new.journal.log)


async def test_a_redis_without_a_place_reads_it_from_the_start(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        await side.looks()
        await side.client.call("HDEL", side.keys.tasks, task.id)
        await side.looks()
        with pytest.raises(UnknownTask):
            await side.registry.get(task.id)  # it was there when the place passed it

        await side.end_fill()
        await side.looks()

        assert await side.registry.get(task.id) == task


async def test_a_journal_that_is_trimmed_goes_on_with_what_is_there(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        lost, task = new_task(), new_task()
        for each in (lost, task):
            await world.journal.append(each.id, encode(each))
        world.journal.trimmed = 1

        await side.looks()

        assert await listed(side.registry) == [task]


async def test_what_cannot_be_read_now_is_read_at_the_next_look(redis_url: str) -> None:
    class Failing(MemoryJournal):
        follow_fails = False

        async def follow(self, after: bytes):  # type: ignore[no-untyped-def]
            async for page in super().follow(after):
                if self.follow_fails:
                    raise Unreachable("the journal cannot be read")
                yield page

    async with world_on(redis_url) as world:
        journal = world.journal = Failing()
        async with side_of(world) as side:
            task = new_task()
            await journal.append(task.id, encode(task))
            await side.look()
            journal.follow_fails = True
            with pytest.raises(Unreachable):
                await side.look()
            journal.follow_fails = False

            await side.looks()

            assert await side.registry.get(task.id) == task


async def test_a_registry_that_is_not_ready_is_left_to_who_fills_it(redis_url: str) -> None:
    async with world_on(redis_url) as world, side_of(world) as side:
        task = await side.registry.add(new_task())
        await side.look()
        await side.client.call("SET", side.keys.filled, "another server")

        await side.look()
        assert await side.registry.get(task.id) == task
        added = new_task()
        await world.journal.append(added.id, encode(added))
        await side.looks()

        assert await side.registry.get(added.id) == added


@pytest.mark.parametrize("most", [1, 3])
async def test_more_differences_than_are_held_are_settled_in_parts(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(journal_follower, "MOST_OPEN", most)
    async with two_sides(redis_url) as (old, new):
        for _ in range(7):
            await old.registry.add(new_task())

        for _ in range(30):
            await new.look()

        assert await listed(new.registry) == await listed(old.registry)
        assert await new.followed() == b"%d" % len(new.journal.log)
