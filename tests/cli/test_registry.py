"""`registry rebuild`, on a real Redis and a journal in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.ports import listed
from pushlane.backends.pulsar import backup as rebuild_module
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.core.task import State, Task
from pushlane.model.task_bytes import encode
from pushlane.settings import Settings
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import World, new_task
from tests.command import Command, Ran, run_here


class Scene:
    """A registry with tasks, whose journal is then lost."""

    def __init__(self, url: str) -> None:
        self.world = World(url)
        self.tasks: list[Task] = []

    def add(self, count: int, **fields: object) -> None:
        async def add() -> None:
            async with self.world.registry() as registry:
                self.tasks += [await registry.add(new_task(**fields)) for _ in range(count)]

        asyncio.run(add())

    def make_journal_anew(self, *tasks: Task) -> None:
        self.world.journal = MemoryJournal()
        for task in tasks:
            self.world.journal.records[task.id] = encode(task)

    def restart_redis(self) -> None:
        """As after a failover: the server is another one."""

        async def change() -> None:
            keys, client = Keys(self.world.prefix), RedisClient(self.world.url)
            for key in (keys.filled, keys.server):
                await client.call("SET", key, "another server")
            await client.close()

        asyncio.run(change())

    def ids(self) -> set[str]:
        async def ids() -> set[str]:
            async with self.world.registry() as registry:
                return {task.id for task in await listed(registry)}

        return asyncio.run(ids())

    def stored(self) -> int:
        async def stored() -> int:
            client = RedisClient(self.world.url)
            count = await client.call("HLEN", Keys(self.world.prefix).tasks)
            await client.close()
            return int(count)

        return asyncio.run(stored())

    def __call__(self, *arguments: str) -> Ran:
        where = ("--redis-url", self.world.url, "--namespace", self.world.prefix)
        return run_here(
            "registry", "rebuild", "--broker", "pulsar://nowhere:6650", *where, *arguments
        )


@pytest.fixture
def scene(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(redis_url)

    @asynccontextmanager
    async def open_journal(settings: Settings) -> AsyncIterator[MemoryJournal]:
        assert settings.namespace == made.world.prefix
        yield made.world.journal

    monkeypatch.setattr(rebuild_module, "open_journal", open_journal)
    yield made
    asyncio.run(made.world.lose_data())


def test_a_journal_that_was_made_anew_is_told_and_kept_again(scene: Scene) -> None:
    scene.add(12)
    scene.add(1, state=State.DONE, finished_at_ms=1)
    scene.make_journal_anew()
    scene.restart_redis()

    refused = scene()
    assert refused.exit_code == 1
    assert "has 12 unfinished tasks, and the task topic on Pulsar only 0 of them" in refused.stderr
    assert "--keep" in refused.stderr

    looked = scene("--dry-run", "--json").json
    assert looked["journal"] == {"tasks": 0, "unfinished": 0}
    assert looked["registry_alone"] == {"tasks": 13, "unfinished": 12}
    assert (looked["refused"], looked["rebuilt"]) == (True, False)
    assert set(looked["some"]) <= {task.id for task in scene.tasks}
    assert not scene.world.journal.records

    kept = scene("--keep", "--json")
    assert (kept.exit_code, kept.json) == (0, {**looked, "refused": False, "rebuilt": True})
    assert "written to the topic again: 13 tasks, 12 unfinished" in kept.stderr
    wanted = {task.id: encode(task) for task in scene.tasks}
    assert scene.world.journal.records == wanted
    assert scene.ids() == set(wanted)


def test_what_is_shown_first_changes_nothing(scene: Scene) -> None:
    scene.add(12)
    new = new_task()
    scene.make_journal_anew(new)
    scene.restart_redis()

    ran = scene("--dry-run")

    assert ran.exit_code == 0
    assert "only in Redis" in ran.stdout
    assert "12 tasks, 12 unfinished" in ran.stdout
    assert "1 task, 1 unfinished" in ran.stdout
    assert sorted(task.id for task in scene.tasks)[0] in ran.stdout
    assert "is refused" in ran.stdout
    assert scene.stored() == 12


def test_the_loss_is_accepted_with_a_word(scene: Scene) -> None:
    scene.add(12)
    new = new_task()
    scene.make_journal_anew(new)
    scene.restart_redis()

    unasked = scene("--accept-loss")
    assert unasked.exit_code == 1
    assert "12 tasks, 12 unfinished" in unasked.stderr
    assert "add --yes" in unasked.stderr
    assert scene.stored() == 12

    assert scene("--accept-loss", "--yes").exit_code == 0
    assert scene.ids() == {new.id}


def test_a_refusal_that_is_kept_does_not_hold_up_a_word(scene: Scene) -> None:
    scene.add(12)
    scene.make_journal_anew()
    scene.restart_redis()
    with pytest.raises(Exception, match="only 0 of them"):
        scene.ids()

    assert scene("--accept-loss", "--yes").exit_code == 0

    assert scene.ids() == set()


def test_a_registry_that_is_as_its_journal_is_filled_again(scene: Scene) -> None:
    scene.add(2)
    scene.restart_redis()

    looked = scene("--dry-run")
    ran = scene()

    assert "removes nothing" in looked.stdout
    assert ran.exit_code == 0
    assert scene.ids() == {task.id for task in scene.tasks}


def test_few_that_the_journal_lacks_go_as_it_said(scene: Scene) -> None:
    scene.add(2)
    scene.make_journal_anew(scene.tasks[0])

    looked = scene("--dry-run")
    ran = scene()

    assert "removes what is only in Redis" in looked.stdout
    assert "removed: 1 task, 1 unfinished" in ran.stderr
    assert scene.ids() == {scene.tasks[0].id}


def test_options_that_do_not_go_together(scene: Scene) -> None:
    ran = scene("--keep", "--accept-loss")

    assert ran.exit_code == 1
    assert "give" in ran.stderr


def test_the_embedded_store_has_nothing_to_rebuild(command: Command) -> None:
    for option in ("--dry-run", "--keep", "--yes"):
        ran = command("registry", "rebuild", option)

        assert ran.exit_code == 1
        assert "there is nothing to rebuild" in ran.stderr
        assert "pushlane doctor" in ran.stderr
