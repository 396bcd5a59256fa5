"""A wall clock that is set back keeps nothing held for longer than it can last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.cells import CellLease, CellPresence
from pushlane.backends.embedded.cells import EmbeddedLeaseCells, EmbeddedPresenceCells
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.ledger import EmbeddedLedger
from pushlane.backends.embedded.limiter import EmbeddedLimiter
from pushlane.backends.embedded.recipients import EmbeddedRecipientWindows
from pushlane.backends.guard_ports import (
    ClaimResult,
    PlaceAsk,
    RecipientTurn,
)
from pushlane.core.push import Push
from pushlane.model.presence import Process
from pushlane.model.recipients import Mark

HOUR_MS = 3_600_000
WINDOW_S = 600.0
TTL_S = 60.0
PUSH = Push("t", 1, "nobody")
MARK = Mark("k", "1")
ASK = PlaceAsk("app/shop", 1, 1, 1)


class Clock:
    now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now_ms


Taking = Callable[[Any, str], Awaitable[bool]]
"""Tells whether this holder gets it."""


async def leads(lease: CellLease, holder: str) -> bool:
    return await lease.acquire("janitor", holder, TTL_S) is not None


async def claims(ledger: EmbeddedLedger, holder: str) -> bool:
    return await ledger.claim([PUSH], holder, TTL_S) != [ClaimResult.HELD]


async def enters(windows: EmbeddedRecipientWindows, holder: str) -> bool:
    await windows.announce([MARK])
    return await windows.enter([MARK], holder, TTL_S) == [RecipientTurn.GO]


async def has_a_place(limiter: EmbeddedLimiter, holder: str) -> bool:
    return await limiter.hold_places([ASK], holder, TTL_S) == [1]


HELD = {
    "lease": (lambda database, clock: CellLease(EmbeddedLeaseCells(database, clock)), leads),
    "claim": (lambda database, clock: EmbeddedLedger(database, WINDOW_S, clock), claims),
    "turn": (lambda database, clock: EmbeddedRecipientWindows(database, WINDOW_S, clock), enters),
    "place": (lambda database, clock: EmbeddedLimiter(database, clock), has_a_place),
}


@asynccontextmanager
async def store(folder: Path) -> AsyncIterator[Database]:
    database = Database(folder)
    await database.open()
    yield database
    await database.close()


@pytest.mark.parametrize("kind", HELD)
async def test_what_a_dead_process_held_is_free_when_the_clock_is_set_back(
    tmp_path: Path, kind: str
) -> None:
    make, takes = HELD[kind]
    clock = Clock()
    async with store(tmp_path) as database:
        port = make(database, clock)
        assert await takes(port, "dead")
        assert not await takes(port, "next")

        clock.now_ms -= HOUR_MS

        assert await takes(port, "next")
        assert not await takes(port, "third")


@pytest.mark.parametrize("kind", HELD)
async def test_a_small_step_back_takes_nothing_from_who_holds_it(tmp_path: Path, kind: str) -> None:
    make, takes = HELD[kind]
    clock = Clock()
    async with store(tmp_path) as database:
        port = make(database, clock)
        assert await takes(port, "first")

        clock.now_ms -= 60_000

        assert not await takes(port, "next")


async def test_the_number_of_a_lease_grows_over_a_step_back(tmp_path: Path) -> None:
    clock = Clock()
    async with store(tmp_path) as database:
        lease = CellLease(EmbeddedLeaseCells(database, clock))
        first = await lease.acquire("janitor", "dead", TTL_S)
        clock.now_ms -= HOUR_MS
        assert not await lease.is_held("janitor")

        second = await lease.acquire("janitor", "next", TTL_S)

        assert first is not None
        assert second is not None
        assert second.number > first.number


async def test_a_dead_process_is_not_listed_for_an_hour_after_a_step_back(tmp_path: Path) -> None:
    clock = Clock()
    async with store(tmp_path) as database:
        presence = CellPresence(EmbeddedPresenceCells(database, clock))
        await presence.announce(Process(id="dead", kind="dispatcher", pid=7, version=""), TTL_S)
        assert len(await presence.list()) == 1

        clock.now_ms -= HOUR_MS

        assert await presence.list() == []
