"""What a dispatcher says is missing to it, from its start to its stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pushlane.core.errors import Unreachable
from pushlane.dispatcher import Dispatcher
from tests.backends.test_contact import Clock
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    until,
)
from tests.outage.outages import BUSY


class Away(Wrapped):
    """A real adapter that says nothing while `is_away`."""

    is_away = False

    async def ping(self) -> None:
        await self._real.ping()
        self._check()

    async def changes(self, *given: Any, **named: Any) -> Any:
        found = await self._real.changes(*given, **named)
        self._check()
        return found

    def _check(self) -> None:
        if self.is_away:
            raise Unreachable("nobody answers")


@pytest.mark.parametrize("service", ["broker", "registry"])
async def test_a_service_that_is_away_is_missing_until_it_is_back(
    tmp_path: Path, service: str
) -> None:
    clock = Clock()
    async with backend_in(tmp_path) as (real, settings):
        away = Away(getattr(real, service))
        backend = replace(real, **{service: away})
        async with dispatching(backend, MemorySink(), settings, clock_s=clock) as dispatcher:
            await until(lambda: not dispatcher.missing())

            away.is_away = True
            clock.now_s += 60
            await until(lambda: dispatcher.missing() == [f"{service}: not reached since 60 s"])
            assert not dispatcher.contact[service].is_up

            away.is_away = False
            await until(lambda: not dispatcher.missing())
            assert dispatcher.contact[service].is_up


class FullLog(Wrapped):
    """A real log of receipts that takes nothing while `is_full`."""

    is_full = True

    async def append(self, bodies: Sequence[bytes]) -> None:
        if self.is_full:
            raise Unreachable("the disk is full")
        await self._real.append(bodies)


async def test_outcomes_that_cannot_be_kept_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.dispatcher.service.SILENT_S", 0.0)
    clock = Clock()
    async with backend_in(tmp_path) as (real, settings):
        receipts = FullLog(real.receipts)
        backend = replace(real, receipts=receipts)
        await add_task(backend, pushes=1)
        async with dispatching(backend, MemorySink(), settings, clock_s=clock) as dispatcher:
            told = "outcomes: none was made durable since 0 s"
            await until(lambda: told in dispatcher.missing())

            receipts.is_full = False
            await until(lambda: not dispatcher.missing())


async def test_it_starts_and_stops(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        before = Dispatcher(backend, MemorySink(), settings)
        assert before.missing() == ["starting"]

        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: not dispatcher.missing())
            dispatcher.stop()
            assert dispatcher.missing() == ["stopping"]


async def test_a_sink_that_rests_is_not_missing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=200)
        sink = MemorySink(lambda _: BUSY)
        async with dispatching(backend, sink, settings, clock_s=Clock()) as dispatcher:
            await until(dispatcher.resting)
            await until(lambda: not dispatcher.missing())

            assert dispatcher.resting()
