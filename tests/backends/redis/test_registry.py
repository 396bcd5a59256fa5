"""What the Redis registry promises beyond the contract: its journal, its rebuild, its bounds."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from pushlane.backends.guard_ports import ClaimResult
from pushlane.backends.ports import (
    Fence,
    listed,
)
from pushlane.backends.redis import connect_redis, writes
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.progress import SEQS_A_CALL
from pushlane.core.errors import BadInput, InvalidChange, UnknownFormat, Unreachable
from pushlane.core.push import Kind, Push
from pushlane.core.task import Finished, State, Task, Weights
from pushlane.model import task_changes
from pushlane.model.presence import Process
from pushlane.model.task_bytes import encode
from pushlane.util.errors import Superseded, UnknownTask
from tests.backends.redis.world import WINDOW_S, new_task, world_on
from tests.unreadable import store_unreadable, unchecked

DEADLINE_S = 60.0


async def test_a_change_is_in_the_journal_before_anybody_sees_it(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await registry.add(new_task())
        world.journal.let_append.clear()
        world.journal.appending.clear()
        change = asyncio.create_task(registry.change(task.id, task_changes.start))
        await world.journal.appending.wait()
        assert (await registry.get(task.id)).state is State.SUBMITTED
        world.journal.let_append.set()
        await change
        assert (await registry.get(task.id)).state is State.RUNNING


async def test_of_two_adds_of_one_key_the_loser_journals_nothing(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as one, world.registry() as other:
            tasks = await asyncio.gather(
                *(registry.add(new_task(key="daily")) for registry in (one, other) * 5)
            )
        assert len({task.id for task in tasks}) == 1
        assert world.journal.appended == [tasks[0].id]


async def test_an_add_that_died_after_its_journal_write_goes_on_with_the_same_task(
    redis_url: str,
) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    async with world_on(redis_url) as world, world.registry() as registry:
        begun = new_task(key="daily")
        world.journal.after_append = die
        with pytest.raises(Died):
            await registry.add(begun)
        world.journal.after_append = lambda: None
        await world.lose_locks()

        again = await registry.add(new_task(key="daily"))

        assert again.id == begun.id
        assert [*world.journal.records] == [begun.id]


async def test_a_writer_whose_lock_ended_starts_over_from_the_newer_value(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as slow, world.registry() as quick:
        task = await slow.add(new_task())
        world.journal.let_append.clear()
        world.journal.appending.clear()
        change = asyncio.create_task(slow.change(task.id, task_changes.set_quota(7)))
        await world.journal.appending.wait()
        await world.lose_locks()
        world.journal.let_append.set()
        await asyncio.gather(quick.change(task.id, task_changes.start), change)

        kept = await quick.get(task.id)
        assert (kept.quota, kept.state, kept.version) == (7, State.RUNNING, 2)


async def test_a_leader_who_is_superseded_while_it_journals_changes_nothing(redis_url: str) -> None:
    """Neither in Redis nor, once it has been told so, in the journal that would rebuild it."""

    async with (
        world_on(redis_url) as world,
        connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis,
    ):
        task = await redis.registry.add(new_task())
        old = (await redis.lease.acquire("janitor", "old", 600)).number
        world.journal.let_append.clear()
        world.journal.appending.clear()
        change = redis.registry.change(task.id, task_changes.cancel, Fence("janitor", old))
        late = asyncio.create_task(change)
        await world.journal.appending.wait()
        await redis.lease.release("janitor", "old")
        await redis.lease.acquire("janitor", "new", 600)
        world.journal.let_append.set()

        with pytest.raises(Superseded):
            await late

        kept = replace(task, version=1)  # stands over what was journalled in vain
        assert await redis.registry.get(task.id) == kept
        await world.lose_data()
        assert await redis.registry.get(task.id) == kept


async def test_a_fence_grows_although_redis_was_set_back(redis_url: str) -> None:
    async with (
        world_on(redis_url) as world,
        connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis,
    ):
        first = await redis.lease.acquire("janitor", "a", 600)
        await world.delete("lease:*")
        client = RedisClient(world.url)
        await client.call("SET", Keys(world.prefix).fence("janitor"), 5)
        await client.close()

        assert await redis.lease.acquire("janitor", "b", 600) > first


async def test_a_refused_edit_lets_the_next_one_in_at_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "LOCK_MS", 3_600_000)  # would outlive the patience of the next

    async with world_on(redis_url) as world, world.registry() as registry:
        task = await registry.add(new_task())
        with pytest.raises(InvalidChange):
            await registry.change(task.id, task_changes.resume)
        assert (await registry.change(task.id, task_changes.set_quota(2))).quota == 2


async def test_a_lost_redis_is_filled_from_the_journal_at_connect(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            task = await registry.add(new_task(key="daily", name="Daily news"))
            changed = await registry.change(task.id, task_changes.set_quota(5))
            await registry.set_weights(Weights(1, 2, 3))
        await world.lose_data()

        async with world.registry() as registry:
            assert await registry.get(task.id) == changed
            assert await registry.get("daily") == changed
            assert await registry.get("Daily news") == changed
            assert await registry.weights() == Weights(1, 2, 3)


async def test_who_follows_a_registry_that_loses_its_data_sees_its_tasks_again(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await registry.add(new_task())
        before = await registry.changes(0, 0)
        await world.lose_data()

        after = await registry.changes(before.version, DEADLINE_S)

        assert after.version > before.version
        assert after.tasks == [task]


async def test_of_processes_that_find_redis_empty_one_fills_it(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            tasks = [await registry.add(new_task()) for _ in range(3)]
        await world.lose_data()

        async def seen() -> tuple[int, list[Task]]:
            async with world.registry() as registry:
                return (await registry.changes(0, 0)).version, await listed(registry)

        looks = await asyncio.gather(*(seen() for _ in range(4)))

        assert all(look == looks[0] for look in looks)
        assert {task.id for task in looks[0][1]} == {task.id for task in tasks}


async def test_a_change_is_seen_although_its_notice_was_lost(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as deaf:
        deaf._change_signal._channel = world.prefix + "-silent"
        task = await deaf.add(new_task())
        before = await deaf.changes(0, 0)
        follow = asyncio.create_task(deaf.changes(before.version, 2 * DEADLINE_S))
        await deaf.change(task.id, task_changes.start)
        assert [task.state for task in (await follow).tasks] == [State.RUNNING]


async def test_finished_tasks_are_not_read_at_a_first_look(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        active, ended = await registry.add(new_task()), await registry.add(new_task())
        await registry.change(ended.id, task_changes.cancel)
        assert (await registry.changes(0, 0)).tasks == [active]


async def test_a_call_larger_than_one_script_may_take_counts_every_seq_once(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        seqs = [*range(1, 2 * SEQS_A_CALL + 2)]
        async with world.registry() as registry:
            for _ in range(2):
                (progress,) = await registry.record([Finished("t", Kind.DELIVERED, seqs)])
            assert progress.delivered == len(seqs)


async def test_progress_is_in_the_order_of_first_mention(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        finished = [
            Finished("b", Kind.DELIVERED, [1, 2]),
            Finished("a", Kind.DEAD, [1]),
            Finished("b", Kind.EXPIRED, [2, 3]),
        ]
        async with world.registry() as registry:
            b, a = await registry.record(finished)
        assert (b.task_id, b.delivered, b.expired) == ("b", 2, 1)
        assert (a.task_id, a.dead) == ("a", 1)


@pytest.mark.parametrize("seq", [-1, 2**32])
async def test_a_seq_that_cannot_be_counted_is_refused(redis_url: str, seq: int) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        with pytest.raises(BadInput, match="task t"):
            await registry.record([Finished("t", Kind.DELIVERED, [seq])])


async def test_an_ambiguous_name_asks_for_an_id(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        tasks = [await registry.add(new_task(name="news")) for _ in range(2)]
        with pytest.raises(UnknownTask, match=tasks[0].id):
            await registry.get("news")


async def test_a_redis_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(Unreachable, match=r"redis://user:\*\*\*@127\.0\.0\.1:1/0") as caught:
        async with connect_redis("redis://user:hidden@127.0.0.1:1/0", "p", None, WINDOW_S):
            pytest.fail("nothing listens on port 1")
    assert "hidden" not in str(caught.value)


async def test_a_url_of_something_else_is_refused() -> None:
    with pytest.raises(BadInput, match="redis://127"):
        async with connect_redis("http://127.0.0.1", "p", None, WINDOW_S):
            pytest.fail("this is no Redis")


NEWER = {"format": 3, "state": "resting", "later": [1, 2], "key": "a-key", "name": "a name"}


async def test_what_only_a_newer_version_understands_is_filled_in_again_untouched(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        known = await registry.add(new_task())
        newer = msgspec.msgpack.encode({"id": "newer", **NEWER})
        garbage = b"\xc1no map at all"
        await world.journal.append("newer", newer)
        await world.journal.append("garbage", garbage)
        await world.lose_data()

        assert [task.id for task in await listed(registry)] == [known.id]
        assert sorted((await registry.changes(0, 1.0)).unread) == ["garbage", "newer"]
        with pytest.raises(UnknownFormat, match="task newer has format 3"):
            await registry.get("a-key")
        with pytest.raises(UnknownFormat, match="task garbage"):
            await registry.get("garbage")

        client = RedisClient(world.url)
        kept = await client.call("HMGET", Keys(world.prefix).tasks, "newer", "garbage")
        await client.close()
        assert kept == [newer, garbage]
        assert world.journal.records["newer"] == newer


async def test_a_task_that_is_not_understood_is_not_left_locked(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await registry.add(new_task())
        await store_unreadable(registry, task.id, format=3)
        for _ in range(2):
            with pytest.raises(UnknownFormat):
                await registry.change(task.id, task_changes.start)

        client = RedisClient(world.url)
        lock = await client.call("EXISTS", Keys(world.prefix).lock(f"task:{task.id}"))
        await client.close()
        assert lock == 0


@pytest.mark.parametrize("value", [b"v2 something else", b"\x00\x01", b"12 won"])
async def test_a_claim_of_a_newer_version_is_held_and_never_written_over(
    redis_url: str, value: bytes
) -> None:
    async with world_on(redis_url) as world:
        push = Push("t", 1, "to-1")
        client = RedisClient(world.url)
        async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis:
            await client.call("SET", Keys(world.prefix).claim(push.push_id), value)

            assert await redis.ledger.claim([push], "one", 60.0) == [ClaimResult.HELD]
            await redis.ledger.release([push], "one")

            assert await client.call("GET", Keys(world.prefix).claim(push.push_id)) == value
        await client.close()


async def test_the_index_of_processes_loses_those_whose_time_is_over(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        client = RedisClient(world.url)
        async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis:
            for number in range(3):
                process = Process(id=str(number), kind="dispatcher", pid=1, version="1")
                await redis.presence.announce(process, 0.02)

            while await client.call("KEYS", f"{{{world.prefix}}}:process*"):  # ends when it holds
                await redis.presence.list()
        await client.close()


async def test_a_task_that_was_removed_unread_does_not_come_back_with_a_refill(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            kept, task = await registry.add(new_task()), await registry.add(new_task(key="sale"))
            await store_unreadable(registry, task.id, quota=2.5)
            assert await registry.discard(task.id)
            assert not world.journal.records.get(task.id)
        await world.lose_data()

        async with world.registry() as registry:
            assert [one.id for one in await listed(registry)] == [kept.id]


async def test_a_key_whose_add_began_with_a_damaged_task_is_free_again(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        client, keys = RedisClient(world.url), Keys(world.prefix)
        with unchecked():
            begun = encode(replace(new_task(key="sale"), quota=2.5))
        await client.call("HSET", keys.adding, "sale", begun)

        task = await registry.add(new_task(key="sale"))

        assert await registry.get("sale") == task
        assert not await client.call("HEXISTS", keys.adding, "sale")
        await client.call("HSET", keys.adding, "other", begun)
        await registry.tidy()
        assert not await client.call("HEXISTS", keys.adding, "other")
        await client.close()
