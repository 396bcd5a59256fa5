"""A task of which too many pushes die is paused, once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.errors import TaskConflict
from pushlane.core.names import is_pool, own_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome
from pushlane.core.task import Finished, Level, Progress, State, Task
from pushlane.dispatcher.deaths import StopIfDead
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.model import task_changes
from pushlane.model.reasons import DEAD_ADDRESS, Reasons
from pushlane.model.stop_rule import DEFAULT_STOP
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    drain,
    until_state,
)


def refuse(_: Delivery) -> Outcome:
    return Outcome.dead("HTTP 410")


async def progress_of(backend: Backend, task: Task) -> Progress:
    [progress] = await backend.registry.progress([task.id])
    return progress


class Refusing(MemorySink):
    """Kills every push, and holds back what comes behind the 300th and behind the 900th.

    Once it is mended it kills one of 25, and holds nothing back.
    """

    def __init__(self) -> None:
        super().__init__(self._outcome)
        self.is_mended = False

    def _outcome(self, delivery: Delivery) -> Outcome:
        return DELIVERED if self.is_mended and delivery.push.seq % 25 else refuse(delivery)

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        if len(self.received) in (300, 900) and not self.is_mended:
            self.gate.clear()
        return await super().deliver(batch)

    async def stopped(self, backend: Backend, task: Task) -> Task:
        """The task, once it is paused; what was in flight lands then."""
        paused = await until_state(backend, task, State.PAUSED)
        self.gate.set()
        return paused


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_a_task_whose_pushes_all_die_is_paused_and_says_why(
    tmp_path: Path, level: Level
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, level, 4_000, stop_if_dead=DEFAULT_STOP)
        sink = Refusing()
        async with dispatching(backend, sink, settings):
            paused = await sink.stopped(backend, task)

        assert (paused.stopped, is_pool(paused.lane)) == (True, False)
        assert paused.reason.startswith("stopped: ")
        assert " died, most often HTTP 410; fix the cause, then pushlane resume " in paused.reason
        progress = await progress_of(backend, task)
        assert progress.dead == progress.failed == len(sink.received) < 400
        reasons = [Reasons(task.id, {"HTTP 410": progress.dead})]
        assert await backend.registry.reasons([task.id]) == reasons


async def test_resumed_it_goes_on_to_its_end_without_asking_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 700, stop_if_dead="5%")
        sink = Refusing()
        async with dispatching(backend, sink, settings):
            await sink.stopped(backend, task)
            await backend.registry.change(task.id, task_changes.resume)
            done = await until_state(backend, task, State.DONE)

        assert (done.reason, done.stop_if_dead) == ("", "5%")
        assert await progress_of(backend, task) == Progress(task.id, dead=700, failed=700)


async def test_a_new_limit_stops_it_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 2_000, stop_if_dead="5%")
        sink = Refusing()
        async with dispatching(backend, sink, settings):
            await sink.stopped(backend, task)
            await backend.set_stop_if_dead(task.id, "90%")
            await backend.registry.change(task.id, task_changes.resume)
            again = await sink.stopped(backend, task)

        assert (again.stopped, again.stop_if_dead) == (True, "90%")
        [failed, ended] = re.findall(r"([\d,]+) of ([\d,]+) died since the limit", again.reason)[0]
        assert failed == ended
        assert int(ended) <= len(sink.received) - again.stop_since[0]


async def test_a_new_limit_counts_from_then_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 2_000, stop_if_dead="50%")
        sink = Refusing()
        async with dispatching(backend, sink, settings):
            await sink.stopped(backend, task)
            died = len(sink.received)
            async with asyncio.timeout(DEADLINE_S):
                while (await progress_of(backend, task)).finished < died:
                    await asyncio.sleep(0)
            sink.is_mended = True
            await backend.set_stop_if_dead(task.id, "5%")
            await backend.registry.change(task.id, task_changes.resume)
            done = await until_state(backend, task, State.DONE)

        assert (done.stopped, done.stop_since) == (False, (died, died))
        assert (await progress_of(backend, task)).delivered > 1_000


async def test_a_stop_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = KnownTasks(backend)
        failing = await add_task(backend, Level.HIGH, 500, stop_if_dead="5%")
        other = await add_task(backend, Level.HIGH, 500, stop_if_dead="5%")
        for task in (failing, other):
            tasks.apply(task)
        stops = StopIfDead(FailingStop(backend, failing.id), tasks)  # type: ignore[arg-type]
        counted = [Progress(task.id, dead=200, failed=200) for task in (failing, other)]
        await stops.settled([], [], counted)

        running = asyncio.create_task(stops.run())
        paused = await until_state(backend, other, State.PAUSED)
        running.cancel()

        assert paused.stopped
        assert (await backend.registry.get(failing.id)).state is State.RUNNING


class FailingStop:
    """A backend that cannot stop one of the tasks."""

    def __init__(self, backend: Backend, task_id: str) -> None:
        self._backend = backend
        self._task_id = task_id
        self.registry = backend.registry

    async def stop(self, task_id: str, reason: str) -> Task:
        if task_id == self._task_id:
            raise TaskConflict("it is under change")
        return await self._backend.stop(task_id, reason)


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ("off", refuse),
        ("5%", lambda _: Outcome.gone("UNREGISTERED")),
        ("5%", lambda delivery: Outcome.dropped("not now")),
        ("55%", lambda one: DELIVERED if one.push.seq % 2 else Outcome.dead("HTTP 410")),
    ],
    ids=["off", "dead addresses", "dropped", "fewer than the limit"],
)
async def test_others_go_on_to_their_end(tmp_path: Path, rule: str, answer) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 1_000, stop_if_dead=rule)

        await drain(backend, MemorySink(answer), settings)

        assert (await backend.registry.get(task.id)).state is State.DONE


async def test_dead_addresses_are_told_as_such_and_warn_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 5, stop_if_dead="5%")
        other = await add_task(backend, Level.HIGH, 5)
        gone = Outcome.gone("UNREGISTERED")
        sink = MemorySink(lambda one: gone if one.push.task_id == task.id else refuse(one))

        await drain(backend, sink, settings)

        assert await backend.registry.reasons([task.id]) == [Reasons(task.id, {DEAD_ADDRESS: 5})]
        warned = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
        assert warned[0] == f"default: 1 push died: HTTP 410 (task {other.id})"
        assert not [line for line in warned if task.id in line or "to-" in line]


class Counted:
    """A task of 1,000 pushes with a rule, and two processes that count its dead ones."""

    def __init__(self, backend: Backend, task: Task) -> None:
        self.backend = backend
        self.task = task
        self.stops = [self._stop() for _ in range(2)]
        self.seq = 0

    def _stop(self) -> StopIfDead:
        tasks = KnownTasks(self.backend)
        tasks.apply(self.task)
        return StopIfDead(self.backend, tasks)

    async def die(self, count: int, process: int = 0) -> None:
        seqs = list(range(self.seq + 1, self.seq + count + 1))
        self.seq += count
        finished = [Finished(self.task.id, Kind.DEAD, seqs, "HTTP 404")]
        counted = await self.backend.registry.record(finished)
        await self.stops[process].settled([], finished, counted)


async def test_of_processes_that_count_past_the_limit_one_pauses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pushlane.pauses")
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 1_000, stop_if_dead="5%")
        counted = Counted(backend, task)
        running = [asyncio.create_task(stop.run()) for stop in counted.stops]

        await counted.die(60, process=0)
        await counted.die(60, process=1)
        await counted.die(60, process=0)
        paused = await until_state(backend, task, State.PAUSED)
        await counted.die(60, process=1)
        for each in running:
            each.cancel()

        assert paused.lane == own_lane(task.id)
        assert len(caplog.records) == 1
        assert paused.reason in caplog.records[0].getMessage()


async def test_one_who_has_not_heard_of_the_resume_pauses_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.HIGH, 1_000, stop_if_dead="5%")
        await backend.stop(task.id, "first")
        await backend.registry.change(task.id, task_changes.resume)

        late = await backend.stop(task.id, "late")

        assert (late.state, late.reason) == (State.RUNNING, "")


async def test_a_task_that_has_ended_is_left_alone_and_gets_no_lane(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, Level.LOW, 10, stop_if_dead="5%")
        await backend.registry.change(task.id, task_changes.cancel)

        await backend.stop(task.id, "late")

        assert own_lane(task.id) not in await backend.broker.lanes()
