"""What keys of `top` do to a task, beside a store and through a server, for each role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane import Client, MemoryBackend, Settings
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.model.access import Access, Role
from pushlane.operations.doing import do
from pushlane.operations.now import GetNow
from pushlane.operations.session import Caller
from pushlane.top.app import Top
from pushlane.top.look import Look
from tests.served import served
from tests.top.test_app import Driven


def a_task() -> Task:
    return Task(
        id="sale", level=Level.HIGH, lane=own_lane("sale"), name="sale", total=3, app="shop"
    )


async def pressed(do_it: Any, *keys: str) -> str:
    """What the dialog says after these keys."""
    app = Top(do_it, Look(do_it, await do_it(GetNow())), "here", every_s=0)
    async with app.run_test(size=(80, 24)) as pilot:
        top = Driven(app, pilot)
        for key in keys:
            await top.press(key)
        return top.told()


def as_role(backend: Any, settings: Settings, role: Role) -> Any:
    caller = Caller("bob", "http", Access(role, None))
    return lambda operation: do(backend, settings, caller, operation)


async def test_a_quota_and_a_pause_are_set(settings: Settings) -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(a_task())
        operator = as_role(backend, settings, Role.OPERATOR)

        assert await pressed(operator, "2", "u", "5", "enter") == (
            "set-quota is done, as it was shown"
        )
        assert (await backend.registry.get("sale")).quota == 5
        await pressed(operator, "2", "p", "enter")
        assert (await backend.registry.get("sale")).state is State.PAUSED
        await pressed(operator, "2", "p", "enter")
        assert (await backend.registry.get("sale")).state is State.RUNNING


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER])
async def test_who_may_not_is_refused_and_nothing_changes(settings: Settings, role: Role) -> None:
    async with MemoryBackend().connect() as backend:
        await backend.registry.add(a_task())

        told = await pressed(as_role(backend, settings, role), "2", "u", "5", "enter")

        assert told.startswith(f"not done: bob has the role {role}, and ")
        assert (await backend.registry.get("sale")).quota == 1


async def test_through_a_server_it_is_the_same(settings: Settings, tmp_path: Path) -> None:
    async with Client(settings) as client:
        await client.backend.registry.add(a_task())
    token = tmp_path / "token"
    with served(settings, token) as url:
        async with Client(Settings(url=url, token_file=token)) as client:
            told = await pressed(client.do, "2", "u", "5", "enter")
            found = await client.task("sale")

    assert (told, found.quota) == ("set-quota is done, as it was shown", 5)
