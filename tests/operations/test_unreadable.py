"""A task that cannot be read: what is said of it, and that its removal is refused or audited."""

from __future__ import annotations

import pytest

from pushlane import Client, MemoryBackend, Settings
from pushlane.core.errors import InvalidChange, TaskConflict
from pushlane.model.access import Access, Role
from pushlane.model.presence import Process
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.tasks import GetTask, ListTasks
from pushlane.operations.unreadable import GetUnreadable, ListUnreadable, RemoveUnreadable
from pushlane.util.errors import NotAllowed, UnknownTask
from tests.door.asking import asking
from tests.operations.test_looks import ADMIN, filled
from tests.unreadable import store_unreadable


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


async def test_it_is_removed_and_the_audit_says_what_was_wrong(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        await store_unreadable(backend.registry, bad.id, quota=2.5)

        found = await do(backend, settings, ADMIN, GetUnreadable(task="of-shop"))
        removed = await do(backend, settings, ADMIN, RemoveUnreadable(task="of-shop"))
        [entry, *_] = await do(backend, settings, ADMIN, ListAudit())
        left = await do(backend, settings, ADMIN, ListTasks())

    assert (found.task_id, found.kept_for) == (bad.id, None)
    assert "damaged in its field quota" in found.fault
    assert (removed.task_id, removed.is_lane_gone) == (bad.id, True)
    assert (entry.operation, entry.subject) == ("remove-unreadable", f"task/{bad.id}")
    assert entry.before == {"unreadable": found.fault}
    assert [one.name for one in left] == ["of-bank"]


async def test_one_that_can_be_read_is_left(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings) as backend:
        for asked in (GetUnreadable(task="of-shop"), RemoveUnreadable(task="of-shop")):
            with pytest.raises(InvalidChange, match="can be read"):
                await do(backend, settings, ADMIN, asked)
        assert (await do(backend, settings, ADMIN, GetTask(task="of-shop"))).name == "of-shop"


async def test_it_is_kept_while_a_newer_process_lives(
    memory: MemoryBackend, settings: Settings
) -> None:
    newer = Process(id="p9", kind="dispatcher", pid=77, version="99.0.0", format=9)
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        await store_unreadable(backend.registry, bad.id, quota=2.5)
        await backend.presence.announce(newer, 600)

        found = await do(backend, settings, ADMIN, GetUnreadable(task="of-shop"))
        with pytest.raises(TaskConflict, match="version 99"):
            await do(backend, settings, ADMIN, RemoveUnreadable(task="of-shop"))
        audit = await do(backend, settings, ADMIN, ListAudit())

    assert "version 99.0.0" in (found.kept_for or "")
    assert not any(one.operation == "remove-unreadable" for one in audit)


async def test_whose_it_is_nobody_knows_so_it_is_for_who_sees_all_apps(
    memory: MemoryBackend, settings: Settings
) -> None:
    of_shop = Caller("bob", "http", Access(Role.ADMIN, frozenset({"shop"})))
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        await store_unreadable(backend.registry, bad.id, quota=2.5)
        with pytest.raises(NotAllowed, match="is about all apps"):
            await do(backend, settings, of_shop, RemoveUnreadable(task="of-shop"))
        with pytest.raises(UnknownTask):
            await do(backend, settings, of_shop, GetTask(task="of-shop"))


async def test_over_http_it_is_no_defect_and_has_its_id(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        await store_unreadable(backend.registry, bad.id, quota=2.5)
        async with asking(settings, connect=memory.connect) as http:
            told = await http("GET", "/v1/tasks/of-shop")
            gone = await http("DELETE", f"/v1/unreadable/{bad.id}")
            after = await http("GET", f"/v1/unreadable/{bad.id}")

    assert (told.status, told.json["task"]) == (409, bad.id)
    assert told.json["type"] == "urn:pushlane:damaged-record"
    assert (gone.status, gone.json) == (200, {"task_id": bad.id, "is_lane_gone": True})
    assert after.status == 404


async def test_the_client_removes_it(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        await store_unreadable(backend.registry, bad.id, quota=2.5)
        async with Client(settings, connect=memory.connect) as client:
            assert (await client.unreadable(bad.id)).task_id == bad.id
            assert (await client.remove_unreadable(bad.id)).task_id == bad.id


async def test_they_are_listed_for_who_sees_all_apps_alone(
    memory: MemoryBackend, settings: Settings
) -> None:
    of_shop = Caller("bob", "http", Access(Role.ADMIN, frozenset({"shop"})))
    async with filled(memory, settings) as backend:
        bad = await backend.registry.get("of-shop")
        newer = await backend.registry.get("of-bank")
        assert await do(backend, settings, ADMIN, ListUnreadable()) == []
        await store_unreadable(backend.registry, bad.id, quota=2.5)
        await store_unreadable(backend.registry, newer.id, format=99)
        async with asking(settings, connect=memory.connect) as http:
            tasks = await http("GET", "/v1/tasks")
            listed = await http("GET", "/v1/unreadable")
            http.token = await http.made("admin", "shop")
            of_one_app = await http("GET", "/v1/tasks")
        with pytest.raises(NotAllowed, match="is about all apps"):
            await do(backend, settings, of_shop, ListUnreadable())

    assert (tasks.json, tasks.headers["pushlane-unreadable"]) == ([], "2")
    assert {one["task_id"]: one["damaged"] for one in listed.json} == {
        bad.id: True,
        newer.id: False,
    }
    assert (of_one_app.json, "pushlane-unreadable" in of_one_app.headers) == ([], False)
