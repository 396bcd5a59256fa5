"""What the embedded limiter does in the course of days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.limiter import EmbeddedLimiter
from pushlane.backends.guard_ports import (
    PlaceAsk,
    Tally,
    TokenAsk,
    TotalAsk,
)

DAY_MS = 24 * 3600 * 1000
SHOP = "app/shop"
TOTAL = Tally(SHOP, "total")
TODAY = Tally(SHOP, "a_day", "2026-11-23")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000 * DAY_MS

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def limiter_in(folder: Path, clock: Clock) -> AsyncIterator[EmbeddedLimiter]:
    database = Database(folder)
    await database.open()
    yield EmbeddedLimiter(database, clock)
    await database.close()


async def test_what_a_holder_spent_that_is_gone_stays_spent(tmp_path: Path) -> None:
    clock = Clock()
    async with limiter_in(tmp_path, clock) as limiter:
        for day in range(6):
            await limiter.lease_totals([TotalAsk(TOTAL, 10, f"process-{day}", 0, 1)])
            clock.now_ms += DAY_MS

        [left] = await limiter.lease_totals([TotalAsk(TOTAL, 10, "last", 0, 10)])

        assert left == 4
        [usage] = await limiter.usage([SHOP], "")
        assert usage.spent == {"total": 10}


async def test_days_that_are_over_leave(tmp_path: Path) -> None:
    clock = Clock()
    async with limiter_in(tmp_path, clock) as limiter:
        await limiter.lease_totals([TotalAsk(TODAY, 10, "a", 0, 10)])
        clock.now_ms += 3 * DAY_MS

        await limiter.lease_totals([TotalAsk(TOTAL, 10, "a", 0, 1)])

        [usage] = await limiter.usage([SHOP], TODAY.day)
        assert usage.spent == {"total": 1}


async def test_a_clock_that_is_set_back_neither_gives_tokens_nor_keeps_them_for_long(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with limiter_in(tmp_path, clock) as limiter:
        ask = TokenAsk(SHOP, 1.0, 10, 10, 1)
        await limiter.lease_tokens([ask])
        clock.now_ms -= DAY_MS

        [at_once] = await limiter.lease_tokens([ask])
        clock.now_ms += 2_000
        [later] = await limiter.lease_tokens([ask])

        assert (at_once.tokens, later.tokens) == (0, 2)


async def test_a_killed_process_gives_its_places_back_after_their_time(tmp_path: Path) -> None:
    clock = Clock()
    async with limiter_in(tmp_path, clock) as limiter:
        await limiter.hold_places([PlaceAsk(SHOP, 5, 5, 5)], "killed", ttl_s=10)

        clock.now_ms += 9_999
        assert await limiter.hold_places([PlaceAsk(SHOP, 5, 5, 0)], "b", ttl_s=10) == [0]
        clock.now_ms += 1
        assert await limiter.hold_places([PlaceAsk(SHOP, 5, 5, 0)], "b", ttl_s=10) == [5]
