"""What is published again after an answer that did not come is on its lane once, whatever fails."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.backends.ports import of_each
from pushlane.core import republish as republisher
from pushlane.core.endings import Ending
from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.core.lane import Job, Lane
from pushlane.core.names import DEAD_LANE, later_lane, own_lane, pool_lane
from pushlane.core.ports import Source
from pushlane.core.push import Push
from pushlane.core.republish import Republisher
from pushlane.core.retrying import Backoffs
from pushlane.core.task import Level

LANES = [later_lane(pool_lane("t", 1)), DEAD_LANE, later_lane(own_lane("a")), own_lane("b")]
LATE = Unreachable("no answer")


class NumberingBroker:
    """A broker that keeps of each source only numbers above all that it has from it, as Pulsar.

    `faults` say of each publish how many of its bodies are stored before it fails; None of one that
    gets through. Every publish takes some turns of the loop.
    """

    def __init__(self, faults: Sequence[int | None] = ()) -> None:
        self._faults = iter(faults)
        self._highest: dict[tuple[str, str], int] = {}
        self.stored: dict[str, list[tuple[bytes, float]]] = defaultdict(list)
        self.sources: list[tuple[str, str]] = []
        self.closed: list[tuple[str, str]] = []
        self.under_way: Counter[str] = Counter()
        self.held: dict[str, asyncio.Event] = {}
        self.closing = asyncio.Event()
        self.closing.set()

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        assert source is not None
        self.under_way[lane] += 1
        assert self.under_way[lane] == 1  # one after another
        self.sources.append((lane, source.name))
        try:
            await self.held[lane].wait() if lane in self.held else await asyncio.sleep(0)
            fault = next(self._faults, None)
            rows = zip(bodies, source.numbers, of_each(delay_s, len(bodies)), strict=True)
            for place, (body, number, one_s) in enumerate(rows):
                if fault is not None and place >= fault:
                    break
                if number > self._highest.get((lane, source.name), 0):
                    self._highest[lane, source.name] = number
                    self.stored[lane].append((body, one_s))
            await asyncio.sleep(0)
            if fault is not None:
                raise LATE if fault % 2 else TaskConflict("the name is taken still")
        finally:
            self.under_way[lane] -= 1

    async def close_source(self, lane: str, name: str) -> None:
        await self.closing.wait()
        self.closed.append((lane, name))

    async def open_lane(self, lane: str) -> None:
        """All lanes are there."""


class Listener:
    def __init__(self) -> None:
        self.ended: list[int] = []
        self.done = asyncio.Event()
        self.wanted = 0

    def add(self, endings: Sequence[Ending]) -> None:
        self.ended += [ending.job.seq for ending in endings]
        if len(self.ended) >= self.wanted:
            self.done.set()

    def release(self, endings: Sequence[Ending]) -> None:
        raise AssertionError("nothing is given up here")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Scene:
    def __init__(self, broker: NumberingBroker, clock: Clock | None = None) -> None:
        self.broker = broker
        self.listener = Listener()
        unused = cast(Any, None)
        self.republisher = Republisher(
            cast(Any, broker),
            unused,
            cast(Any, self.listener),
            numbered=True,
            clock_s=clock or Clock(),
        )
        self._lane = Lane("any", Level.HIGH)
        self._seq = 0

    def add(self, target: str, delay_s: float = 0.0) -> bytes:
        self._seq += 1
        self.listener.wanted = self._seq
        self.listener.done.clear()
        job = Job(self._lane, cast(Any, None), 0, Push("t", self._seq, ""))
        body = b"%d" % self._seq
        self.republisher.add(Ending(job, target=target, body=body, delay_s=delay_s))
        return body

    async def until_all_ended(self) -> None:
        async with asyncio.timeout(30):
            await self.listener.done.wait()


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.republisher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Backoffs, lane: str, error: Exception) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Backoffs, "wait", at_once)
    monkeypatch.setattr(republisher, "FLUSH_EVERY_S", 0)


move = st.tuples(st.sampled_from(LANES), st.sampled_from([0.0, 0.1, 0.2, 30.0]))


@given(
    st.lists(st.lists(move, max_size=6), min_size=1, max_size=8),
    st.lists(st.none() | st.integers(0, 4), max_size=12),
)
@settings(deadline=None)
def test_each_is_on_its_lane_once_whatever_fails(
    rounds: list[list[tuple[str, float]]], faults: list[int | None]
) -> None:
    async def play() -> None:
        scene = Scene(NumberingBroker(faults))
        wanted: dict[str, list[tuple[bytes, float]]] = defaultdict(list)
        async with running(scene):
            for some in rounds:
                for lane, delay_s in some:
                    wanted[lane].append((scene.add(lane, delay_s), delay_s))
                for _ in range(3):
                    await asyncio.sleep(0)
            if any(rounds):
                await scene.until_all_ended()
        assert scene.broker.stored == wanted
        assert sorted(scene.listener.ended) == list(range(1, scene.listener.wanted + 1))

    asyncio.run(play())


async def test_a_lane_that_is_stuck_holds_up_no_other() -> None:
    scene = Scene(NumberingBroker())
    stuck, free = LANES[0], LANES[1]
    scene.broker.held[stuck] = asyncio.Event()
    async with running(scene):
        scene.add(stuck)
        body = scene.add(free)
        while not scene.listener.ended:
            await asyncio.sleep(0)
        assert scene.broker.stored == {free: [(body, 0.0)]}
        scene.broker.held[stuck].set()
        await scene.until_all_ended()


async def test_sources_are_bounded_and_no_name_is_used_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(republisher, "MOST_SOURCES", 4)
    scene = Scene(NumberingBroker())
    async with running(scene):
        for _ in range(3):
            for number in range(10):
                scene.add(own_lane(f"{number}"))
                await scene.until_all_ended()
        assert len(scene.republisher._queues) <= 5
    names = [name for _, name in scene.broker.sources]
    assert len(set(names)) == len(names) == 30
    assert set(scene.broker.closed) <= set(scene.broker.sources)
    assert len(scene.broker.closed) >= 25


async def test_idle_ones_are_closed_and_those_in_use_are_not() -> None:
    clock = Clock()
    scene = Scene(NumberingBroker(), clock)
    stuck, idle, fresh = LANES[0], LANES[1], LANES[3]
    scene.broker.held[stuck] = asyncio.Event()
    async with running(scene):
        scene.add(idle)
        await scene.until_all_ended()
        scene.add(stuck)
        clock.now_s += republisher.IDLE_S
        scene.add(fresh)
        while len(scene.listener.ended) < 2:
            await asyncio.sleep(0)

        await scene.republisher.close_old(clock.now_s)

        assert [lane for lane, _ in scene.broker.closed] == [idle]
        scene.broker.held[stuck].set()
        await scene.until_all_ended()


async def test_a_close_that_hangs_holds_up_no_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(republisher, "MOST_SOURCES", 2)
    scene = Scene(NumberingBroker())
    scene.broker.closing.clear()
    async with running(scene):
        for number in range(5):
            scene.add(own_lane(f"{number}"))
            await scene.until_all_ended()

    assert scene.broker.closed == []


async def test_a_source_used_again_while_others_are_closed_gets_a_new_name() -> None:
    clock = Clock()
    scene = Scene(NumberingBroker(), clock)
    first, again = LANES[0], LANES[1]
    async with running(scene):
        for lane in (first, again):
            scene.add(lane)
            await scene.until_all_ended()
        old = list(scene.broker.sources)
        clock.now_s += republisher.IDLE_S
        scene.broker.closing.clear()
        closing = asyncio.create_task(scene.republisher.close_old(clock.now_s))
        await asyncio.sleep(0)
        scene.add(again)
        await scene.until_all_ended()
        scene.broker.closing.set()
        await closing
        scene.add(again)
        await scene.until_all_ended()

    assert scene.broker.closed == old
    third, fourth = scene.broker.sources[2:]
    assert third == fourth
    assert third not in old


async def test_two_calls_at_once_close_each_source_once() -> None:
    clock = Clock()
    scene = Scene(NumberingBroker(), clock)
    async with running(scene):
        for lane in LANES:
            scene.add(lane)
            await scene.until_all_ended()
        clock.now_s += republisher.IDLE_S
        scene.broker.closing.clear()
        both = [asyncio.create_task(scene.republisher.close_old(clock.now_s)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.broker.closing.set()
        await asyncio.gather(*both)

    assert scene.broker.closed == scene.broker.sources


async def test_two_processes_never_have_one_name() -> None:
    scenes = [Scene(NumberingBroker()) for _ in range(20)]
    for scene in scenes:
        async with running(scene):
            scene.add(DEAD_LANE)
            await scene.until_all_ended()

    assert len({name for scene in scenes for _, name in scene.broker.sources}) == 20
