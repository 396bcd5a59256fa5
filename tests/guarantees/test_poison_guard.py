"""Poison: a push that was in flight when dispatchers died is delivered apart, or buried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.admission import Options
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push
from pushlane.core.task import Level, Progress, Task
from pushlane.dispatcher.guards import poison_guard
from pushlane.dispatcher.guards.poison_guard import MARK, STRIKES, YOUNG_S, PoisonGuard
from pushlane.dispatcher.stats import Stats
from pushlane.producers.dead import DeadLetters, Selection
from tests.core.support import MemorySink, Wrapped, add_task, backend_in, drain

LONG_S = 600.0
DEADLINE_S = 60.0


def claim_of(task: Task, seq: int, strikes: int) -> Push:
    return Push(f"{task.id}~{strikes}", seq, "")


async def died_with(backend: Backend, task: Task, seq: int, times: int) -> None:
    """So many processes have died while this push was in flight, one after the other."""
    claims = [claim_of(task, seq, strikes) for strikes in range(times)] + [MARK]
    assert set(await backend.ledger.claim(claims, "dead", LONG_S)) == {ClaimResult.WON}


async def progress_of(backend: Backend, task: Task) -> Progress:
    [progress] = await backend.registry.progress([task.id])
    return progress


async def test_what_was_in_flight_at_a_death_is_delivered_apart_from_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=20)
        await died_with(backend, task, 3, times=1)
        sink = MemorySink(batch_size=8, hosts_code=True)

        await drain(backend, sink, settings)

        of_3 = [batch for batch in sink.batches if 3 in {one.push.seq for one in batch}]
        assert [len(batch) for batch in of_3] == [1]
        [told] = [one for one in caplog.records if getattr(one, "action", "") == "push_strike"]
        assert getattr(told, "push_id", "") == f"{task.id}-3"
        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 21)]
        assert (await progress_of(backend, task)).delivered == 20


async def test_a_push_that_ended_its_processes_again_and_again_is_buried(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=20)
        await died_with(backend, task, 3, times=STRIKES)
        sink = MemorySink(hosts_code=True)

        await drain(backend, sink, settings)

        found = await DeadLetters(backend).find(Selection())
        assert [(one.dead.seq, one.dead.reason[:6]) for one in found.letters] == [(3, "poison")]
        assert (task.id, 3) not in sink.pushes()
        progress = await progress_of(backend, task)
        assert (progress.delivered, progress.dead) == (19, 1)


async def test_a_claim_is_let_go_of_once_the_push_has_come_through(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=5)
        await backend.ledger.claim([MARK], "dead", LONG_S)

        await drain(backend, MemorySink(hosts_code=True), settings)

        claims = [claim_of(task, seq, 0) for seq in range(1, 6)]
        assert set(await backend.ledger.claim(claims, "next", LONG_S)) == {ClaimResult.WON}


async def test_a_process_that_finds_no_mark_claims_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        guard = PoisonGuard(backend.ledger, settings, None, Stats())
        calm = Task(id="t", level=Level.HIGH, lane="task-t")

        async with asyncio.TaskGroup() as group:
            running = group.create_task(guard.run())
            async with asyncio.timeout(DEADLINE_S):
                while guard.concerns(calm):
                    await asyncio.sleep(0)
            running.cancel()

        assert await backend.ledger.claim([MARK], "next", LONG_S) == [ClaimResult.HELD]


async def test_a_process_that_ends_well_leaves_no_mark(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, pushes=5)

        await drain(backend, MemorySink(hosts_code=True), settings)

        assert await backend.ledger.claim([MARK], "next", LONG_S) == [ClaimResult.WON]


async def test_a_sink_that_runs_nobodys_code_claims_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=5)
        await died_with(backend, task, 3, times=STRIKES)
        sink = MemorySink(hosts_code=False)

        await drain(backend, sink, settings)

        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 6)]


async def test_an_old_process_claims_only_what_has_strikes(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        now_s = 100.0
        guard = PoisonGuard(backend.ledger, settings, None, Stats(), clock_s=lambda: now_s)
        calm = Task(id="t", level=Level.HIGH, lane="task-t")
        suspect = Push("t", 2, "", strikes=1)
        assert guard.concerns(calm)

        now_s += YOUNG_S

        assert not guard.concerns(calm)
        assert guard.concerns_push(suspect)


class ToldRelease(Wrapped):
    """A ledger that says when a claim on a push is let go of."""

    def __init__(self, real: Any, said: list[str]) -> None:
        super().__init__(real)
        self._said = said

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        await self._real.release(pushes, owner)
        if MARK not in pushes:
            self._said.append("released")


class ToldPublish(Wrapped):
    """A broker that says when a push is put on a lane again."""

    def __init__(self, real: Any, said: list[str]) -> None:
        super().__init__(real)
        self._said = said

    async def publish(self, *given: Any, **options: Any) -> None:
        self._said.append("on a lane again")
        await self._real.publish(*given, **options)


async def test_a_push_is_on_a_lane_again_only_when_its_claim_is_let_go_of(
    tmp_path: Path,
) -> None:
    def again(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", after_s=0) if delivery.push.attempt < 2 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=1)
        await backend.ledger.claim([MARK], "beside", LONG_S)
        said: list[str] = []
        told = with_other(
            backend,
            ledger=ToldRelease(backend.ledger, said),
            broker=ToldPublish(backend.broker, said),
        )
        sink = MemorySink(again, hosts_code=True)

        await drain(told, sink, settings)

        assert said == ["released", "on a lane again", "released"]
        assert (await progress_of(backend, task)).delivered == 1
        assert {delivery.push.strikes for delivery in sink.received} == {0}


class AwayLedger(Wrapped):
    """A ledger that does not answer."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = asyncio.Event()

    async def claim(self, *_: Any, **options: Any) -> Sequence[ClaimResult]:
        self.asked.set()
        raise Unreachable("no answer")


async def test_an_old_process_is_known_as_one_though_the_ledger_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poison_guard, "YOUNG_S", 0.01)
    async with backend_in(tmp_path, ledger_away="wait") as (backend, settings):
        ledger = AwayLedger(backend.ledger)
        guard = PoisonGuard(ledger, settings, None, Stats())
        options = Options([], [guard])
        calm = Task(id="t", level=Level.HIGH, lane="task-t")
        assert options.of(calm, Push("t", 1, ""))[1] == (guard,)

        running = asyncio.create_task(guard.run())
        async with asyncio.timeout(DEADLINE_S):
            await ledger.asked.wait()
            while options.of(calm, Push("t", 1, ""))[1]:
                await asyncio.sleep(0)
        running.cancel()
