"""One process fills a registry, however long that takes; the others see how far it is."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from pushlane.backends.ports import Fence, JournalPage, listed
from pushlane.backends.redis import connect_redis
from pushlane.backends.redis import rebuild as turn_module
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.rebuild import PATIENCE_S, TELL_S, Patience, Turn
from pushlane.core.errors import Unreachable
from pushlane.core.push import Kind
from pushlane.core.task import ACTIVE_STATES, Finished, State, Task, Weights
from pushlane.model import task_changes
from pushlane.model.task_bytes import encode
from pushlane.util.errors import Superseded
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import WINDOW_S, World, new_task, world_on
from tests.processes import ROOT

TAKEN_OVER_S = 30.0
GUARD_MS = 200
EARLIER = "0123456789abcdef"


class Paged(MemoryJournal):
    """Gives every append as a page of its own; `before` is what happens before a page.

    It is by the numbers of the reading and of the page.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[tuple[int, int], Callable[[], Awaitable[object]]] = {}

    async def pages(self) -> AsyncGenerator[JournalPage, None]:
        self.readings += 1
        for number in range(max(len(self.log), 1)):
            if happens := self.before.get((self.readings, number)):
                await happens()
            page = self.log[number : number + 1]
            yield JournalPage(page, is_first=number == 0, position=b"%d" % (number + len(page)))


class Scene:
    """A registry whose journal is in pages, and a client of its Redis."""

    def __init__(self, world: World, journal: Paged, client: RedisClient) -> None:
        self.world, self.journal, self.client = world, journal, client
        self.keys = Keys(world.prefix)
        self.held, self.go_on = asyncio.Event(), asyncio.Event()

    def hold(self, reading: int, page: int) -> None:
        self.journal.before[reading, page] = self._wait

    async def _wait(self) -> None:
        self.held.set()
        await self.go_on.wait()

    async def journalled(self, *tasks: Task) -> list[str]:
        for task in tasks:
            await self.journal.append(task.id, encode(task))
        return sorted(task.id for task in tasks)

    async def filled(self) -> list[str]:
        async with self.world.registry() as registry:
            return sorted(task.id for task in await listed(registry))

    async def stored(self) -> int:
        return int(await self.client.call("HLEN", self.keys.tasks))

    async def now_ms(self) -> int:
        seconds, micros = await self.client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


@asynccontextmanager
async def scene_on(url: str) -> AsyncIterator[Scene]:
    async with world_on(url) as world:
        journal = world.journal = Paged()
        client = RedisClient(url)
        try:
            yield Scene(world, journal, client)
        finally:
            await client.close()


async def test_a_journal_that_is_slower_than_the_guard_is_read_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_module, "GUARD_MS", GUARD_MS)
    monkeypatch.setattr(turn_module, "KEEP_S", GUARD_MS / 10_000)
    async with scene_on(redis_url) as scene:
        wanted = await scene.journalled(*(new_task() for _ in range(3)))
        scene.hold(1, 1)
        all_of_them = [asyncio.create_task(scene.filled()) for _ in range(3)]
        await scene.held.wait()
        until_ms = await scene.now_ms() + 3 * GUARD_MS
        while await scene.now_ms() < until_ms:
            assert not any(each.done() for each in all_of_them)
        scene.go_on.set()

        assert await asyncio.gather(*all_of_them) == [wanted] * 3
        assert scene.journal.readings == 1


async def test_a_filler_that_lost_its_turn_writes_nothing_more(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        wanted = await scene.journalled(*(new_task() for _ in range(3)))
        stored: list[int] = []

        async def lose_turn() -> None:
            await scene.client.call("DEL", scene.keys.rebuilding)

        async def look() -> None:
            stored.append(await scene.stored())

        scene.journal.before = {(1, 1): lose_turn, (2, 0): look}

        assert await scene.filled() == wanted
        assert stored == [1]


async def test_a_filler_that_fails_lets_the_next_one_in_at_once(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        wanted = await scene.journalled(new_task(), new_task())

        async def fail() -> None:
            raise Unreachable("the journal cannot be read")

        scene.journal.before[1, 1] = fail
        with pytest.raises(Unreachable, match="the journal"):
            await scene.filled()

        assert not await scene.client.call("EXISTS", scene.keys.rebuilding)
        assert await scene.filled() == wanted


async def test_a_filler_that_is_killed_half_way_is_replaced_within_30_s(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        wanted = await scene.journalled(*(new_task() for _ in range(3)))
        filler = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.backends.redis.filler"),
            *(scene.world.url, scene.world.prefix),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert filler.stdout is not None
        assert await filler.stdout.readline() == b"half\n"
        assert await scene.stored() == 1
        filler.kill()
        await filler.wait()
        killed_s = time.monotonic()

        assert await scene.filled() == wanted

        assert time.monotonic() - killed_s < TAKEN_OVER_S


async def test_the_last_record_of_a_task_is_what_is_filled_in(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        task, ended, gone, heir = (new_task() for _ in range(4))
        gone, heir = replace(gone, key="daily"), replace(heir, key="daily")
        over = replace(ended, state=State.DONE, finished_at_ms=1, lane_dropped=True)
        await scene.journalled(task, ended, gone, over, replace(task, quota=5))
        await scene.journal.append(gone.id, b"")
        await scene.journalled(
            heir, over, ended
        )  # one that was refused is followed by the kept one

        async with scene.world.registry() as registry:
            assert (await registry.get(task.id)).quota == 5
            assert (await registry.get("daily")).id == heir.id
            assert {each.id for each in await listed(registry)} == {task.id, ended.id, heir.id}
            active = await listed(registry, ACTIVE_STATES)
            assert {each.id for each in active} == {task.id, ended.id, heir.id}
            assert (await registry.ended(task_changes.now_ms(), 9)).tasks == []


async def test_a_change_that_was_refused_is_not_made_by_a_fill(redis_url: str) -> None:
    """Though all records of it are there still, and its version was the higher one."""
    async with (
        scene_on(redis_url) as scene,
        connect_redis(scene.world.url, scene.world.prefix, scene.journal, WINDOW_S) as redis,
    ):
        task = await redis.registry.add(new_task())
        old = (await redis.lease.acquire("janitor", "old", 600)).number

        async def supersede() -> None:
            scene.journal.on_append = None
            await redis.lease.release("janitor", "old")
            await redis.lease.acquire("janitor", "new", 600)

        scene.journal.on_append = supersede
        expire = task_changes.finish(State.EXPIRED)
        with pytest.raises(Superseded):
            await redis.registry.change(task.id, expire, Fence("janitor", old))
        kept = await redis.registry.get(task.id)
        await scene.world.lose_data()

        assert await redis.registry.get(task.id) == kept
        assert kept.state is State.SUBMITTED


async def test_a_cancelled_value_stands_in_pages_apart(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        task = new_task()
        cancelled = replace(task, state=State.CANCELLED, finished_at_ms=1, version=1)
        await scene.journalled(task, cancelled, replace(task, quota=7, version=6))
        await scene.world.lose_data()

        found = await registry.get(task.id)

        assert (found.state, found.quota, found.version) == (State.CANCELLED, 1, 7)
        assert scene.journal.records[task.id] == encode(found)
        await scene.world.lose_data()
        assert await registry.get(task.id) == found


async def test_a_redis_that_is_ahead_of_its_journal_stays_so(redis_url: str) -> None:
    """As when an older copy of the journal was put in place."""
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        task = await registry.add(new_task())
        newer = await registry.change(task.id, task_changes.set_quota(5))
        del scene.journal.log[1:]
        await scene.client.call("SET", scene.keys.filled, "another server")
        await scene.client.call("SET", scene.keys.server, "another server")

        assert await registry.get(task.id) == newer
        assert scene.journal.log[-1] == (task.id, encode(newer))


async def test_what_was_removed_in_between_does_not_count(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        task = new_task()
        await scene.journalled(replace(task, state=State.CANCELLED, version=9))
        await scene.journal.append(task.id, b"")
        await scene.journalled(task)

        async with scene.world.registry() as registry:
            assert await registry.get(task.id) == task


async def test_a_journal_that_begins_again_brings_nothing_of_its_first_reading(
    redis_url: str,
) -> None:
    """Between the two, a compaction has dropped a task together with its removal."""

    class Compacted(MemoryJournal):
        async def pages(self) -> AsyncGenerator[JournalPage, None]:
            for task in (gone, kept):
                yield JournalPage([(task.id, encode(task))], is_first=True)

    gone, kept = new_task(), new_task()
    async with scene_on(redis_url) as scene:
        scene.world.journal = Compacted()
        assert await scene.filled() == [kept.id]


async def test_an_older_copy_keeps_its_counts_and_loses_what_was_forgotten(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        kept, forgotten = await registry.add(new_task()), await registry.add(new_task())
        await registry.record([Finished(kept.id, Kind.DELIVERED, [1, 2])])
        await scene.client.call("SET", scene.keys.filled, "another server")
        await scene.client.call("SET", scene.keys.server, "another server")
        await scene.journal.append(forgotten.id, b"")

        assert [task.id for task in await listed(registry)] == [kept.id]
        [progress] = await registry.progress([kept.id])
        assert progress.delivered == 2


async def test_a_change_that_comes_during_the_fill_is_made_after_it(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        task = await registry.add(new_task())
        await registry.add(new_task())
        await scene.world.lose_data()
        scene.hold(2, 1)
        filling = asyncio.create_task(scene.filled())
        await scene.held.wait()
        records = len(scene.journal.log)
        change = asyncio.create_task(registry.change(task.id, task_changes.start))
        while not await scene.client.call("EXISTS", scene.keys.rebuilding):
            await asyncio.sleep(0)
        assert len(scene.journal.log) == records
        scene.go_on.set()
        await asyncio.gather(filling, change)

        assert (await registry.get(task.id)).state is State.RUNNING
        await scene.world.lose_data()
        assert (await registry.get(task.id)).state is State.RUNNING


async def test_weights_that_are_journalled_behind_what_was_read_are_kept(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        await registry.set_weights(Weights(1, 1, 1))
        scene.journal.let_append.clear()
        scene.journal.appending.clear()
        setting = asyncio.create_task(registry.set_weights(Weights(1, 2, 3)))
        await scene.journal.appending.wait()
        await scene.client.call("DEL", scene.keys.filled, scene.keys.server)
        scene.hold(2, 0)
        filling = asyncio.create_task(scene.filled())
        await scene.held.wait()
        scene.journal.let_append.set()
        while await scene.client.call("EXISTS", scene.keys.lock("weights")):
            await asyncio.sleep(0)
        scene.go_on.set()
        await asyncio.gather(filling, setting)

        assert await registry.weights() == Weights(1, 2, 3)


async def test_weights_that_were_journalled_in_vain_do_not_come_back(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        scene.journal.let_append.clear()
        scene.journal.appending.clear()
        setting = asyncio.create_task(registry.set_weights(Weights(1, 1, 1), over=Weights()))
        await scene.journal.appending.wait()
        await scene.client.call("DEL", scene.keys.lock("weights"))  # its time is over
        await scene.client.call("SET", scene.keys.weights, "5:4:1")  # by the next that had it
        scene.journal.let_append.set()

        assert not await setting
        await scene.world.lose_data()
        assert await registry.weights() == Weights(5, 4, 1)


async def test_who_asks_in_vain_does_not_end_the_fill(redis_url: str) -> None:
    async with scene_on(redis_url) as scene, scene.world.registry() as registry:
        await registry.add(new_task())
        await scene.world.lose_data()
        scene.hold(2, 0)
        asking = asyncio.create_task(registry.weights())
        await scene.held.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        scene.go_on.set()

        await registry.weights()

        assert scene.journal.readings == 2


async def test_a_process_of_an_earlier_version_that_fills_is_waited_for(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        turn = Turn(scene.client, scene.keys)
        await scene.client.call("SET", scene.keys.rebuilding, EARLIER)

        assert await turn.take() == (b"busy", EARLIER.encode())

        await scene.client.call("DEL", scene.keys.rebuilding)
        assert await turn.take() == (b"fill", b"")
        assert await scene.client.call("GET", scene.keys.rebuilding) != EARLIER.encode()


async def test_whoever_waits_sees_how_many_tasks_are_filled_in(redis_url: str) -> None:
    async with scene_on(redis_url) as scene:
        await scene.journalled(new_task(), new_task())
        scene.hold(1, 1)
        filling = asyncio.create_task(scene.filled())
        await scene.held.wait()

        how, value = await Turn(scene.client, scene.keys).take()

        assert (how, value.partition(b" ")[2]) == (b"busy", b"1")
        scene.go_on.set()
        await filling


def test_waiting_goes_on_while_there_is_progress(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    patience = Patience("redis://here", lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for tasks in range(0, 400_001, 100_000):
            patience.look(b"token %d" % tasks)
            now_s += PATIENCE_S - 1
        assert "is being refilled: 300,000 tasks so far" in caplog.text
        now_s += 1

        with pytest.raises(Unreachable, match="400,000 tasks so far, and none more for 120 s"):
            patience.look(b"token 400000")


def test_waiting_is_told_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    patience = Patience("redis://here", lambda: now_s)
    with caplog.at_level(logging.WARNING):
        patience.look(b"token 1")
        assert not caplog.records
        now_s += TELL_S
        for _ in range(3):
            patience.look(b"token 2")
    assert len(caplog.records) == 1
