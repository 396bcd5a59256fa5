"""Counts against frequency caps in the embedded store: as a simple model says, and bounded."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.recipients import EmbeddedDayCounts
from pushlane.core.task import Level
from pushlane.model.recipients import NO_CAP, Cap, CapDay

A_DAY_MS = 86_400_000
TODAY = 20_600
CAPS = {level: Cap(of_level, 3) for level, of_level in zip(Level, (NO_CAP, 2, 1), strict=True)}

calls = st.lists(
    st.tuples(
        st.sampled_from(["count", "count", "count", "uncount"]),
        st.sampled_from(list(Level)),
        st.integers(TODAY, TODAY + 1),
        st.sets(st.integers(0, 11), min_size=1, max_size=6),
    ),
    max_size=12,
)


class Model:
    """What was counted, by day and key: the level of each token."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], dict[str, Level]] = defaultdict(dict)

    def counted(self, day: int, key: int) -> dict[str, Level]:
        return self._counted[day, key]

    def refuses(self, on: CapDay, token: str, key: int) -> bool:
        counted = self.counted(on.day, key)
        if token in counted:
            return False
        levels = list(counted.values())
        if len(levels) >= on.cap.in_all or levels.count(on.level) >= on.cap.of_level:
            return True
        counted[token] = on.level
        return False


@settings(deadline=None, max_examples=40)
@given(calls)
def test_answers_are_those_of_counting_one_by_one(given_calls: list) -> None:
    """Token n is of key n modulo 3, and always asked for at one level."""

    async def play(folder: Path) -> None:
        database = Database(folder)
        await database.open()
        counts, model = EmbeddedDayCounts(database, lambda: TODAY * A_DAY_MS), Model()
        for what, level, day, numbers in given_calls:
            on = CapDay(day, level, CAPS[level])
            keys = {f"{level}-{number}": number % 3 for number in sorted(numbers)}
            if what == "count":
                expected = [token for token, key in keys.items() if model.refuses(on, token, key)]
                assert sorted(await counts.count(on, keys)) == sorted(expected)
            else:
                await counts.uncount(on, keys)
                for token, key in keys.items():
                    model.counted(day, key).pop(token, None)
        await database.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


async def test_days_that_are_over_are_forgotten_little_by_little(tmp_path: Path) -> None:
    now_ms = [TODAY * A_DAY_MS]
    database = Database(tmp_path)
    await database.open()
    counts = EmbeddedDayCounts(database, lambda: now_ms[0])
    for day in (TODAY, TODAY + 1):
        on = CapDay(day, Level.LOW, Cap(in_all=1))
        await counts.count(on, {f"t-{n}": n for n in range(100)})

    now_ms[0] = (TODAY + 3) * A_DAY_MS
    for n in range(3):
        await counts.count(CapDay(TODAY + 3, Level.LOW, Cap(in_all=1)), {f"u-{n}": n})

    def days(connection: sqlite3.Connection) -> list[tuple[int, int]]:
        return connection.execute("SELECT day, count(*) FROM counted GROUP BY day").fetchall()

    assert await database.read(days) == [(TODAY + 1, 100), (TODAY + 3, 3)]
    await database.close()
