"""One process of several shows the figures of all: whoever leads, and nobody who leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pushlane.backends.backend import Backend, connect
from pushlane.backends.guard_ports import (
    Tally,
    TotalAsk,
)
from pushlane.backends.ports import Lease
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import Level, Task, Weights, now_ms
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.gates.budgets import utc_day
from pushlane.dispatcher.leader.backlogs import Backlogs
from pushlane.dispatcher.leader.survey import EVERY_S, STALE_S, DrainReader, Survey
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.model.limits import Limit, Limits, Subject
from pushlane.model.presence import DrainFigures, Process, SinkDrain
from pushlane.settings import Settings
from pushlane.util.errors import NoLeader
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    settings_in,
    until,
)

BACKLOG = ("pushlane_backlog", {"level": "high", "sink": "default"})


class KeptLease(Wrapped):
    """A lease that its holder never gives back, as if it was killed."""

    async def release(self, name: str, holder: str) -> None:
        return None


class Running:
    """A dispatcher that holds on to what it has taken, and its metrics."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.sink = MemorySink()
        self.sink.gate.clear()
        self.registry = CollectorRegistry()
        self.dispatcher = Dispatcher(backend, self.sink, settings, registry=self.registry)
        self._run = asyncio.create_task(self.dispatcher.run())

    def shown(self, name: str, labels: dict[str, str] | None = None) -> float | None:
        return self.registry.get_sample_value(name, labels or {})

    async def stop(self) -> None:
        self.sink.gate.set()
        self.dispatcher.stop()
        async with asyncio.timeout(DEADLINE_S):
            await self._run


@asynccontextmanager
async def two_running(folder: Path) -> AsyncIterator[tuple[Running, Running, Lease]]:
    """Two processes of which the first leads, and the second's way to the lease."""
    settings = settings_in(folder)
    async with connect(settings) as one, connect(settings) as two:
        await add_task(one, Level.HIGH, 100)
        kept: Any = KeptLease(one.lease)
        first = Running(replace(one, lease=kept), settings)
        await until(lambda: first.shown(*BACKLOG) is not None)
        second = Running(two, settings)
        await until(lambda: second.shown("pushlane_registry_up") == 1)
        try:
            yield first, second, two.lease
        finally:
            await first.stop()
            await second.stop()


async def test_only_the_one_that_leads_shows_them_and_each_tells_them(tmp_path: Path) -> None:
    async with two_running(tmp_path) as (first, second, _):
        assert [one.shown("pushlane_leader") for one in (first, second)] == [1, 0]
        assert first.shown(*BACKLOG) == 100
        assert first.shown("pushlane_drain_target_seconds") == 300
        names = {metric.name for metric in second.registry.collect()}
        assert not names & {"pushlane_backlog", "pushlane_drain_seconds", "pushlane_drain_target"}
        told = [await drain_of(one.dispatcher) for one in (first, second)]
        assert [(one.backlog, list(one.by_sink)) for one in told] == [(100, ["default"])] * 2


async def test_when_the_leader_is_killed_another_shows_them_once_its_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_running(tmp_path) as (first, second, lease):
        await first.stop()
        assert second.shown("pushlane_leader") == 0

        cells: Any = lease
        monkeypatch.setattr(cells._cells, "_clock_ms", lambda: now_ms() + 10_000)
        await until(lambda: second.shown(*BACKLOG) is not None)
        assert second.shown("pushlane_leader") == 1


async def drain_of(dispatcher: Dispatcher) -> DrainFigures:
    """What it tells, once the one that leads has said it."""
    while True:
        with suppress(NoLeader):
            return await dispatcher.drain()


class Standing:
    """A survey that leads or does not, at a time that a test sets."""

    def __init__(self, backend: Backend) -> None:
        self.limits: Limits = {}
        self.tasks = KnownTasks(backend)
        self.leads = True
        self.now_s = 0.0
        self.told = 0
        self.survey = Survey(
            backend,
            Backlogs(backend, self.tasks.active, now_ms),
            lambda: self.leads,
            Weights,
            lambda: self.limits,
            60.0,
            lambda: self.now_s,
        )

    def tell(self) -> None:
        self.told += 1

    def shows(self) -> bool:
        return self.survey.figures() is not None and self.survey.drain() is not None


async def test_whoever_leads_no_more_shows_none_at_once(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        standing = Standing(backend)
        assert not standing.shows()

        await standing.survey.look()
        assert standing.shows()
        standing.leads = False
        assert not standing.shows()


async def test_a_leader_that_has_not_looked_for_long_shows_none(tmp_path: Path) -> None:
    """It was frozen, or the registry does not answer."""
    async with backend_in(tmp_path) as (backend, _):
        standing = Standing(backend)
        await standing.survey.look()
        standing.now_s = STALE_S

        assert not standing.shows()


class SlowPresence(Wrapped):
    """Processes that are listed after seconds of a test's clock; only the last time is not in vain.

    `standing` is the survey whose clock that is.
    """

    standing: Standing

    def __init__(self, real: object, *took_s: float) -> None:
        super().__init__(real)
        self._took_s = list(took_s)

    async def list(self) -> list[Process]:
        self.standing.now_s += self._took_s.pop(0)
        if self._took_s:
            raise Unreachable("no answer")
        return []


@asynccontextmanager
async def slow_in(folder: Path, *took_s: float) -> AsyncIterator[Standing]:
    async with backend_in(folder) as (backend, _):
        slow = SlowPresence(backend.presence, *took_s)
        presence: Any = slow
        slow.standing = Standing(replace(backend, presence=presence))
        yield slow.standing


async def test_a_look_that_takes_long_is_shown_until_the_next_one(tmp_path: Path) -> None:
    """A look takes a twentieth of the time at most, so the next is later than figures last."""
    async with slow_in(tmp_path, 2.0) as standing:
        await standing.survey.look()
        standing.now_s += 40.0
        assert standing.shows()

        standing.now_s += STALE_S - EVERY_S
        assert not standing.shows()


@pytest.mark.parametrize(
    ("took_s", "pause_s"),
    [((0.0,), EVERY_S), ((2.0,), 40.0), ((3600.0,), 60.0), ((3600.0, 0.0), EVERY_S)],
)
async def test_the_time_of_an_outage_is_not_waited_for_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    took_s: tuple[float, ...],
    pause_s: float,
) -> None:
    async with slow_in(tmp_path, *took_s) as standing:
        standing.tasks.synced.set()
        pauses: list[float] = []
        real_sleep = asyncio.sleep

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if standing.told:
                raise asyncio.CancelledError
            await real_sleep(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        with suppress(asyncio.CancelledError):
            await standing.survey.run(standing.tasks.synced, standing.tell)

    assert standing.told == 1
    assert pauses[-1] == pause_s


@pytest.mark.parametrize("app", ["shop", EVERY_APP])
async def test_an_app_that_may_send_no_more_today_waits_for_no_process(
    tmp_path: Path, app: str
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        standing = Standing(backend)
        standing.tasks.apply(await add_task(backend, Level.HIGH, 5, app="shop"))
        standing.limits = {Subject("app", app): Limit(a_day=2)}
        await standing.survey.look()
        before = standing.survey.drain()
        tally = Tally("app/shop", "a_day", utc_day(now_ms()))
        await backend.limiter.lease_totals([TotalAsk(tally, 2, "one", 2, 2)])
        await standing.survey.look()
        after = standing.survey.drain()

        assert before is not None
        assert after is not None
        assert (before.backlog, after.backlog) == (5, 0)


async def drained(standing: Standing, *tasks: Task) -> int:
    """The backlog to drain of these tasks, once looked at."""
    for one in tasks:
        standing.tasks.apply(one)
    await standing.survey.look()
    found = standing.survey.drain()
    assert found is not None
    return found.backlog


async def test_hours_in_a_zone_that_this_machine_does_not_know_are_by_utc(tmp_path: Path) -> None:
    """As pushes are sent by: what is quiet now waits, and takes the figures of no other away."""
    async with backend_in(tmp_path) as (backend, _):
        now, hour = datetime.now(UTC), timedelta(hours=1)
        hours = {"quiet": f"{now - hour:%H:%M}-{now + hour:%H:%M}", "zone": "Mars/Olympus"}
        tasks = [await add_task(backend, pushes=5, **fields) for fields in ({}, hours)]
        standing = Standing(backend)

        assert await drained(standing, *tasks) == 5


async def test_a_task_whose_start_cannot_be_told_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = [await add_task(backend, pushes=5, **one) for one in ({}, {"quiet": "nights"})]
        standing = Standing(backend)

        assert [await drained(standing, *tasks) for _ in range(2)] == [5, 5]
        figures = standing.survey.figures()

    assert figures is not None
    assert figures.backlog["high", "default"] == 10
    [said] = [one for one in caplog.messages if "leave out" in one]
    assert tasks[1].id in said


class Said:
    """Processes, by what they say of themselves."""

    def __init__(self, *drains: DrainFigures | None) -> None:
        self.drains = list(drains)
        self.asked = 0

    async def list(self) -> list[Process]:
        self.asked += 1
        default: Any = {"kind": "dispatcher", "pid": 1, "version": "1"}
        return [Process(id=str(n), drain=one, **default) for n, one in enumerate(self.drains)]


def figures_at(at_ms: int) -> DrainFigures:
    by_sink = {
        "fcm": SinkDrain(seconds=10, backlog=100, rate_per_s=10),
        "apns": SinkDrain(seconds=60, backlog=300, rate_per_s=5),
    }
    return DrainFigures(
        seconds=60, target_s=300, backlog=400, rate_per_s=15, by_sink=by_sink, at_ms=at_ms
    )


class TestReading:
    async def test_what_the_newest_leader_says_counts(self) -> None:
        said: Any = Said(figures_at(1), None, figures_at(3), figures_at(2))

        assert (await DrainReader(said).read()).at_ms == 3

    async def test_of_some_sinks_the_largest_is_told(self) -> None:
        reader = DrainReader(Said(figures_at(1)))  # type: ignore[arg-type]
        one, both = await reader.read(["fcm"]), await reader.read(["fcm", "apns"])

        assert (one.seconds, one.backlog, one.rate_per_s) == (10, 100, 10)
        assert both == figures_at(1)

    async def test_it_asks_every_two_seconds_at_most(self) -> None:
        said, now_s = Said(figures_at(1)), [0.0]
        reader = DrainReader(said, lambda: now_s[0])  # type: ignore[arg-type]
        for at_s in (0.0, 1.9, 2.0, 3.9):
            now_s[0] = at_s
            await reader.read()

        assert said.asked == 2

    async def test_without_a_leader_it_says_so(self) -> None:
        with pytest.raises(NoLeader, match="within 10 s"):
            await DrainReader(Said(None)).read()  # type: ignore[arg-type]

    async def test_a_sink_that_nobody_serves_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(BadInput, match=r"'fmc'.*did you mean.*fcm.*there are fcm, apns"):
            await DrainReader(Said(figures_at(1))).read(["fmc"])  # type: ignore[arg-type]
