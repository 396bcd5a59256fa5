"""A replay or a clone is a new task, which the caller has to be allowed to make."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import pushlane.producers.replay
from pushlane import BadInput, InvalidChange, MemoryBackend, Settings, SubmitRequest
from pushlane.backends.backend import Backend
from pushlane.core.task import Level
from pushlane.model.access import Access, Role
from pushlane.model.audit import Entry
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.replays import CloneTask, ReplayTask
from pushlane.operations.session import Caller
from pushlane.operations.views import plain
from pushlane.producers.submit import submit
from pushlane.util.errors import NotAllowed

ADMIN = Caller("ada", "cli")
ROWS = [{"recipient": f"user-{number}"} for number in range(3)]


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@asynccontextmanager
async def filled(memory: MemoryBackend, settings: Settings) -> AsyncIterator[Backend]:
    """One with a task `sale` of three pushes, which it keeps."""
    async with memory.connect(settings) as opened:
        request = SubmitRequest(
            source=ROWS,
            level=Level.HIGH,
            name="sale",
            app="shop",
            quota=4,
            title="Hi",
            retention_s=3_600,
        )
        await submit(opened, settings, request)
        yield opened


async def audit(backend: Backend, settings: Settings) -> list[Entry]:
    return await do(backend, settings, ADMIN, ListAudit())


@pytest.mark.parametrize(
    "asked", [CloneTask(task="sale"), ReplayTask.made(task="sale", since_ms="1h")]
)
async def test_it_returns_the_new_task_and_the_audit_names_both(
    memory: MemoryBackend, settings: Settings, asked: Any
) -> None:
    async with filled(memory, settings) as backend:
        old = await backend.registry.get("sale")
        begun: list[str] = []

        made = await do(backend, settings, ADMIN, asked, begun.append)

        assert (made.published, made.empty, made.task.total) == (3, 0, 3)
        assert begun == [made.task_id] == [made.task.id]
        assert made.task_id != old.id
        assert not {"lane", "fingerprint"} & plain(made)["task"].keys()
        [entry] = await audit(backend, settings)
        assert (entry.subject, entry.before, entry.app) == (f"task/{made.task_id}", {}, "shop")
        assert entry.after == {"replay_of": old.id, "level": "high", "published": 3}


async def test_one_that_ends_half_way_is_in_the_audit_too(
    memory: MemoryBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(memory, settings) as backend:

        async def interrupted(backend: Backend, *given: Any, begun: Any) -> None:
            begun(await backend.registry.get("sale"))
            raise InvalidChange("no more of it")

        monkeypatch.setattr(pushlane.producers.replay, "clone", interrupted)

        with pytest.raises(InvalidChange):
            await do(backend, settings, ADMIN, CloneTask(task="sale"))

        [entry] = await audit(backend, settings)
        assert "published" not in entry.after


@pytest.mark.parametrize("since", ["yesterday", "2999-01-01", -1])
async def test_a_time_that_has_not_passed_is_refused(since: Any) -> None:
    with pytest.raises(BadInput, match="since"):
        ReplayTask.made(task="sale", since_ms=since)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (
            {"levels": frozenset({Level.LOW})},
            "may submit at low, not at high: the new",
        ),
        ({"sinks": frozenset({"sms"})}, "may submit only to sms: the new task"),
        ({"most_quota": 3}, "a quota up to 3, not 4: the new task"),
        ({"most_per_s": 10.0}, "would have no limit on its rate"),
    ],
)
async def test_a_submitter_makes_no_task_so_that_it_could_not_submit(
    memory: MemoryBackend, settings: Settings, bounds: Any, told: str
) -> None:
    async with filled(memory, settings) as backend:
        caller = Caller("bob", "http", Access(Role.SUBMITTER, frozenset({"shop"}), **bounds))

        with pytest.raises(NotAllowed, match=told):
            await do(backend, settings, caller, CloneTask(task="sale"))

        assert await audit(backend, settings) == []


async def test_a_submitter_within_its_bounds_clones_its_task(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        access = Access(Role.SUBMITTER, frozenset({"shop"}), frozenset({Level.HIGH}), most_quota=4)

        made = await do(backend, settings, Caller("bob", "http", access), CloneTask(task="sale"))

        assert made.published == 3
