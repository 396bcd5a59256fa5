"""Limits that are set reach those who listen; what cannot be read leaves them as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import Unreachable
from pushlane.core.task import Level
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates.budget_gate import AppQuotas, LimitsFollower
from pushlane.model.documents import DocumentStore
from pushlane.model.limits import Limit, Limits, Subject, set_app_share
from tests.core.support import DEADLINE_S, Wrapped, backend_in

SHOP = Subject("app", "shop")


class Heard:
    """Remembers what it was told last."""

    def __init__(self) -> None:
        self.limits: Limits = {}
        self._told = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_limits(self, limits: Limits) -> None:
        self.limits = limits
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, limits: Limits) -> None:
        async with asyncio.timeout(DEADLINE_S), self._told:
            await self._told.wait_for(lambda: self.limits == limits)

    async def _tell(self) -> None:
        async with self._told:
            self._told.notify_all()


class Looked(Wrapped):
    """Documents that fail as often as they are told to, and say how often they were listed."""

    def __init__(self, real: DocumentStore) -> None:
        super().__init__(real)
        self.failures = 0
        self.looks = 0
        self._looked = asyncio.Condition()

    async def list(self, kind: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the store is away")
        found = await self._real.list(kind)
        async with self._looked:
            self.looks += 1
            self._looked.notify_all()
        return found

    async def until_looked(self, more: int) -> None:
        wanted = self.looks + more
        async with asyncio.timeout(DEADLINE_S), self._looked:
            await self._looked.wait_for(lambda: self.looks >= wanted)


@asynccontextmanager
async def following(documents: DocumentStore) -> AsyncIterator[Heard]:
    heard = Heard()
    follower = LimitsFollower(documents, every_s=0.001)
    follower.add_listener(heard)
    running = asyncio.create_task(follower.run())
    try:
        yield heard
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_change_is_told_whoever_made_it(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _), following(backend.documents) as heard:
        await set_app_share(backend.documents, "shop", quota=3)
        await heard.until({SHOP: Limit(quota=3)})

        await set_app_share(backend.documents, "shop", high_part=0.5)
        await heard.until({SHOP: Limit(quota=3, high_part=0.5)})


async def test_a_listener_that_comes_later_hears_what_is_known(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await set_app_share(backend.documents, "shop", quota=3)
        follower, first, later = LimitsFollower(backend.documents), Heard(), Heard()
        follower.add_listener(first)
        running = asyncio.create_task(follower.run())
        await first.until({SHOP: Limit(quota=3)})

        follower.add_listener(later)

        assert later.limits == {SHOP: Limit(quota=3)}
        running.cancel()


async def test_while_the_store_is_away_what_is_known_holds(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        documents = Looked(backend.documents)
        await set_app_share(backend.documents, "shop", quota=3)
        async with following(documents) as heard:  # type: ignore[arg-type]
            await heard.until({SHOP: Limit(quota=3)})
            documents.failures = 2
            await set_app_share(backend.documents, "shop", quota=4)
            await heard.until({SHOP: Limit(quota=4)})


@pytest.mark.parametrize(
    ("name", "body"), [("app/shop", b'{"quota": "many"}'), ("planet/earth", b"{}")]
)
async def test_what_only_a_newer_version_reads_is_said_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, body: bytes
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        documents = Looked(backend.documents)
        await set_app_share(backend.documents, "mail", quota=3)
        async with following(documents) as heard:  # type: ignore[arg-type]
            await heard.until({Subject("app", "mail"): Limit(quota=3)})
            await backend.documents.put("limit", name, body, None)
            await documents.until_looked(5)

            assert heard.limits == {Subject("app", "mail"): Limit(quota=3)}
            said = [one for one in caplog.records if one.name == "pushlane.limits"]
            assert [one.action for one in said] == ["format_unknown"]  # type: ignore[attr-defined]


def test_a_scheduler_has_what_is_set_and_forgets_what_is_not() -> None:
    scheduler: Scheduler[str] = Scheduler()
    listener = AppQuotas(scheduler)
    for lane in "ab":
        scheduler.add(lane, Level.HIGH, app=lane)
        scheduler.ready(lane)
    scheduler.add("low", Level.LOW)
    scheduler.ready("low")

    listener.on_limits({Subject("app", "a"): Limit(quota=3), Subject("task", "b"): Limit(quota=9)})
    assert (scheduler.app_quota("a"), scheduler.app_quota("b")) == (3, 1)

    listener.on_limits({Subject("app", "*"): Limit(quota=2, high_part=0.25)})
    assert (scheduler.app_quota("a"), scheduler.app_quota("b")) == (2, 2)
    picked = []
    for _ in range(140):
        picked.append(scheduler.pick())
        scheduler.charge()
    assert (picked.count("a"), picked.count("b"), picked.count("low")) == (30, 30, 80)
