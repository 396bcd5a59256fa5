"""The rules of leases, documents and presence, on cells in memory whose clock is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.backends.cells import Cell, CellDocuments, CellLease, CellPresence
from pushlane.backends.memory.claims import MemoryCells
from pushlane.backends.memory.shared import LockAndClock
from pushlane.backends.ports import Grant
from pushlane.model.presence import Process

TTL_S = 10.0
TTL_MS = 10_000
HOLDERS = ("one", "two")


class Clock:
    now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Step:
    """Lets other callers go on until this one is resumed."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SlowCells(MemoryCells):
    """Lets other callers come in before each step, as a server does between two commands."""

    async def read(self, key: str) -> Cell | None:
        await Step()
        return await super().read(key)

    async def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        await Step()
        return await super().put_new(key, value, ttl_ms)

    async def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        await Step()
        return await super().renew(key, value, ttl_ms)

    async def drop(self, key: str, value: bytes) -> bool:
        await Step()
        return await super().drop(key, value)


class Held(NamedTuple):
    """What a holder was granted last, and until when it may think that it has it."""

    number: int
    until_ms: int


class Contest:
    """Holders that acquire and release one lease side by side, each one step at a time."""

    def __init__(self) -> None:
        self.clock = Clock()
        cells = SlowCells(LockAndClock(self.clock))
        self.lease = CellLease(cells, self._pause)
        self.held: dict[str, Held] = {}
        self.numbers: list[int] = []
        self._going: dict[str, Coroutine[Any, Any, None]] = {}

    def step(self, holder: str, *, releases: bool) -> None:
        """Take this holder one step on in what it does, or begin the next thing."""
        if (going := self._going.get(holder)) is None:
            work = self._release if releases else self._acquire
            going = self._going[holder] = work(holder)
        try:
            going.send(None)
        except StopIteration:
            del self._going[holder]

    def close(self) -> None:
        for going in self._going.values():
            going.close()

    def living(self) -> list[str]:
        """The holders that may think that they have it."""
        now = self.clock.now_ms
        return [holder for holder, held in self.held.items() if now < held.until_ms]

    async def _acquire(self, holder: str) -> None:
        asked_ms = self.clock.now_ms
        grant = await self.lease.acquire("janitor", holder, TTL_S)
        if grant is None:
            assert holder not in self.living()
            return
        assert asked_ms <= grant.at_ms <= self.clock.now_ms
        if grant.number != (self.held[holder].number if holder in self.held else None):
            self.numbers.append(grant.number)
        self.held[holder] = Held(grant.number, asked_ms + TTL_MS)

    async def _release(self, holder: str) -> None:
        self.held.pop(holder, None)  # who lets go does nothing more, whenever that gets through
        await self.lease.release("janitor", holder)

    async def _pause(self, seconds: float) -> None:
        await Step()


RARELY = (False, False, False, True)
PASSED_MS = (0, 0, 0, 1, TTL_MS // 2, TTL_MS)
steps = st.lists(
    st.tuples(st.sampled_from(HOLDERS), st.sampled_from(RARELY), st.sampled_from(PASSED_MS)),
    min_size=20,
    max_size=80,
)


@settings(max_examples=400)
@given(steps)
def test_whatever_the_order_of_steps_one_holds_it_and_its_numbers_rise(
    steps: list[tuple[str, bool, int]],
) -> None:
    contest = Contest()
    for holder, releases, passed_ms in steps:
        contest.clock.now_ms += passed_ms
        contest.step(holder, releases=releases)
        assert len(contest.living()) <= 1
    contest.close()

    assert contest.numbers == sorted(set(contest.numbers))


async def test_a_lease_ends_at_the_end_of_its_time_and_not_before() -> None:
    clock = Clock()
    lease = CellLease(MemoryCells(LockAndClock(clock)))
    await lease.acquire("janitor", "one", TTL_S)

    clock.now_ms += TTL_MS - 1
    assert await lease.acquire("janitor", "two", TTL_S) is None
    assert await lease.is_held("janitor")
    clock.now_ms += 1

    assert not await lease.is_held("janitor")
    assert await lease.acquire("janitor", "two", TTL_S) is not None


class Counted(MemoryCells):
    """Counts the steps on the store, and lets something happen once behind a look."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(LockAndClock(clock))
        self.steps = 0
        self.then: Callable[[], Awaitable[None]] | None = None

    async def read(self, key: str) -> Cell | None:
        self.steps += 1
        found = await super().read(key)
        if self.then is not None:
            then, self.then = self.then, None
            await then()
        return found

    async def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        self.steps += 1
        return await super().put_new(key, value, ttl_ms)

    async def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        self.steps += 1
        return await super().renew(key, value, ttl_ms)


async def test_taking_and_keeping_a_lease_is_two_steps_and_a_refusal_one() -> None:
    cells = Counted(Clock())
    lease = CellLease(cells)
    steps = []
    for holder in ("one", "one", "two"):
        cells.steps = 0
        await lease.acquire("janitor", holder, TTL_S)
        steps.append(cells.steps)

    assert steps == [2, 2, 1]


async def test_a_renewal_that_comes_too_late_takes_nothing_away() -> None:
    clock = Clock()
    cells = Counted(clock)
    lease = CellLease(cells)
    await lease.acquire("janitor", "one", TTL_S)

    async def passed_on() -> None:
        clock.now_ms += TTL_MS
        assert await lease.acquire("janitor", "two", TTL_S) is not None

    cells.then = passed_on

    assert await lease.acquire("janitor", "one", TTL_S) is None
    assert await lease.acquire("janitor", "two", TTL_S) is not None


async def test_a_number_is_no_lower_than_the_time_though_the_last_one_is_lost() -> None:
    clock = Clock()
    first = await CellLease(MemoryCells(LockAndClock(clock))).acquire("janitor", "one", TTL_S)
    clock.now_ms += 1

    second = await CellLease(MemoryCells(LockAndClock(clock))).acquire("janitor", "two", TTL_S)

    assert first is not None
    assert second is not None
    assert second.number > first.number


class Taken(MemoryCells):
    """Another comes in behind each look, holds the lease and lets go of it again."""

    looks = 0

    async def read(self, key: str) -> Cell | None:
        found = await super().read(key)
        self.looks += 1
        other = b"other-%d" % self.looks
        if found is not None:
            await self.drop(key, found.value)
        await self.put_new(key, other, TTL_MS)
        return None


async def test_who_always_comes_too_late_gives_up_after_some_tries() -> None:
    cells, pauses = Taken(LockAndClock()), []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    assert await CellLease(cells, pause).acquire("janitor", "one", TTL_S) is None

    assert cells.looks == 6
    assert len(pauses) == 4
    assert sum(pauses) < 0.2


@given(st.lists(st.tuples(st.sampled_from(HOLDERS), st.booleans()), max_size=60))
def test_no_version_of_a_document_is_given_twice(changes: list[tuple[str, bool]]) -> None:
    versions = asyncio.run(_versions(changes))

    assert len(versions) == len(set(versions))


async def _versions(changes: list[tuple[str, bool]]) -> list[tuple[str, int | None]]:
    """Put or remove documents at one moment of the clock; the versions that each name got."""
    documents = CellDocuments(MemoryCells(LockAndClock(lambda: 7)))
    versions: list[tuple[str, int | None]] = []
    for name, removes in changes:
        found = await documents.get("rule", name)
        if removes:
            assert await documents.remove("rule", name) == (found is not None)
        else:
            expected = found.version if found else None
            versions.append((name, await documents.put("rule", name, b"x", expected)))
    assert all(version for _, version in versions)
    return versions


async def test_a_process_is_listed_until_its_time_is_over() -> None:
    clock = Clock()
    presence = CellPresence(MemoryCells(LockAndClock(clock)))
    one = Process(id="one", kind="dispatcher", pid=1, version="1")
    await presence.announce(one, TTL_S)

    clock.now_ms += TTL_MS - 1
    assert await presence.list() == [one]
    clock.now_ms += 1

    assert await presence.list() == []
