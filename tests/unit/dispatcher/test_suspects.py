"""Poison: a push that was in flight when dispatchers died is delivered apart, or buried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

from dispatcher.alive import MARK
from dispatcher.job import Job
from dispatcher.stats import Stats
from dispatcher.suspects import STRIKES, YOUNG_S, Suspects
from lanes.backend import Backend
from lanes.ports import ClaimResult, Delivery
from lanes.push import DELIVERED, Outcome, Push
from lanes.task import Progress, Task
from producers.dead import DeadLetters, Selection
from tests.unit.dispatcher.support import MemorySink, Wrapped, add_task, backend_in, drain

LONG_S = 600.0
DEADLINE_S = 10.0


def claim_of(task: Task, seq: int, strikes: int) -> Push:
    return Push(f"{task.id}~{strikes}", seq, "")


async def died_with(backend: Backend, task: Task, seq: int, times: int) -> None:
    """So many processes have died while this push was in flight, one after the other."""
    claims = [claim_of(task, seq, strikes) for strikes in range(times)] + [MARK]
    assert set(await backend.ledger.claim(claims, "dead", LONG_S)) == {ClaimResult.WON}


async def progress_of(backend: Backend, task: Task) -> Progress:
    [progress] = await backend.registry.progress([task.id])
    return progress


async def test_what_was_in_flight_at_a_death_is_delivered_apart_from_others(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=20)
        await died_with(backend, task, 3, times=1)
        sink = MemorySink(batch_size=8, hosts_code=True)

        await drain(backend, sink, settings)

        of_3 = [batch for batch in sink.batches if 3 in {one.push.seq for one in batch}]
        assert [len(batch) for batch in of_3] == [1]
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
        suspects = Suspects(backend.ledger, settings, None, Stats())
        calm = [_job(Push("t", 1, ""))]

        async with asyncio.TaskGroup() as group:
            running = group.create_task(suspects.run())
            async with asyncio.timeout(DEADLINE_S):
                while suspects.watches(calm):
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
        suspects = Suspects(backend.ledger, settings, None, Stats(), clock_s=lambda: now_s)
        calm = [_job(Push("t", 1, ""))]
        suspect = [_job(Push("t", 2, "", strikes=1))]
        assert suspects.watches(calm)

        now_s += YOUNG_S

        assert not suspects.watches(calm)
        assert suspects.watches(suspect)


def _job(push: Push) -> Job:
    return Job(None, None, push, None)


class SlowRelease(Wrapped):
    """A ledger that lets go of a claim only when the push has come again."""

    def __init__(self, real: Any, again: asyncio.Event) -> None:
        super().__init__(real)
        self._again = again
        self._claimed: set[tuple[str, int]] = set()

    async def claim(self, pushes: Sequence[Push], *given: Any, **options: Any) -> Any:
        places = {(push.task_id, push.seq) for push in pushes if push != MARK}
        if places & self._claimed:
            self._again.set()
        self._claimed |= places
        return await self._real.claim(pushes, *given, **options)

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        if MARK not in pushes:
            async with asyncio.timeout(DEADLINE_S):
                await self._again.wait()
        await self._real.release(pushes, owner)


class PutOff(Wrapped):
    """A broker that tells when a push was put off for the second time."""

    def __init__(self, real: Any, again: asyncio.Event) -> None:
        super().__init__(real)
        self._again = again
        self._times = 0

    async def publish(self, *given: Any, **options: Any) -> None:
        await self._real.publish(*given, **options)
        self._times += 1
        if self._times == 2:
            self._again.set()


async def test_a_retry_that_comes_before_its_claim_is_let_go_of_is_no_strike(
    tmp_path: Path,
) -> None:
    def again(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", after_s=0) if delivery.push.attempt < 2 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=1)
        await backend.ledger.claim([MARK], "beside", LONG_S)
        again_here = asyncio.Event()
        slow = with_other(
            backend,
            ledger=SlowRelease(backend.ledger, again_here),
            broker=PutOff(backend.broker, again_here),
        )
        sink = MemorySink(again, hosts_code=True)

        await drain(slow, sink, settings)

        assert (await progress_of(backend, task)).delivered == 1
        assert {delivery.push.strikes for delivery in sink.received} == {0}
