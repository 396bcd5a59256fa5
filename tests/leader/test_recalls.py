"""What waits for times that were changed is asked anew: when, how often, and by whom."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import lane_at, later_lane, own_lane
from pushlane.core.task import Task, now_ms
from pushlane.dispatcher.leader.recalls import AGAIN_S, FIRST_S, Recalls
from pushlane.model import task_changes
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.task_changes import NewTimes
from tests.core.support import Wrapped, add_task, backend_in

QUIET = "22:00-08:00"


class Watched(Wrapped):
    """A broker that remembers what was hastened, and fails as often as it is told."""

    hastened: list[str]
    fails = 0

    async def hasten(self, lane: str, later_than_ms: int) -> int:
        self.hastened.append(lane)
        if self.fails:
            self.fails -= 1
            raise Unreachable("the broker is away")
        return int(await self._real.hasten(lane, later_than_ms))


class Leading:
    """Recalls by hand: `step` is what happens after so many seconds."""

    def __init__(self, backend: Backend) -> None:
        self.broker = Watched(backend.broker)
        self.broker.hastened = []
        self._now_s = 100.0
        self.leads = True
        self.recalls = Recalls(
            with_other(backend, broker=self.broker),
            lambda: self.leads,
            lambda task: self.recalls.on_task(task),
            lambda: self._now_s,
        )

    async def step(self, later_s: float = 0.0) -> int:
        """Return how many lanes were hastened."""
        self._now_s += later_s
        before = len(self.broker.hastened)
        await self.recalls.step()
        return len(self.broker.hastened) - before


@asynccontextmanager
async def recalled(folder: Path) -> AsyncIterator[tuple[Backend, Task, Leading]]:
    """A task that was quiet and is no more, with two pushes on its later lane."""
    async with backend_in(folder) as (backend, _):
        task = await add_task(backend, pushes=2, quiet=QUIET)
        task = await backend.open_later(task.id)
        await backend.broker.publish(later_lane(task.lane), [b"1", b"2"], delay_s=7_200)
        changed = await backend.reschedule(task.id, NewTimes(quiet=""))
        leading = Leading(backend)
        leading.recalls.on_task(changed)
        yield backend, changed, leading


async def waiting(backend: Backend, task: Task) -> int:
    found = await backend.broker.delayed(later_lane(task.lane))
    assert found is not None
    return found.messages


async def test_it_is_done_once_all_have_heard_and_once_more_for_those_who_had_not(
    tmp_path: Path,
) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        assert await leading.step(FIRST_S - 0.1) == 0
        assert await leading.step(0.1) == 1
        assert await waiting(backend, task) == 0
        assert await leading.step(AGAIN_S - FIRST_S - 0.1) == 0
        assert (await backend.registry.get(task.id)).recall_ms == task.recall_ms
        await backend.broker.publish(later_lane(task.lane), [b"1"], delay_s=7_200)

        assert await leading.step(0.1) == 1

        assert await waiting(backend, task) == 0
        assert (await backend.registry.get(task.id)).recall_ms == 0
        assert await leading.step(10 * AGAIN_S) == 0


async def test_who_does_not_lead_does_nothing_and_who_leads_later_does_it_once(
    tmp_path: Path,
) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        leading.leads = False
        assert await leading.step(AGAIN_S) == 0
        leading.leads = True

        assert await leading.step() == 1

        assert (await backend.registry.get(task.id)).recall_ms == 0


async def test_what_fails_is_done_again(tmp_path: Path) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        leading.broker.fails = 1
        with pytest.raises(Unreachable):
            await leading.step(FIRST_S)

        assert await leading.step() == 1

        assert await waiting(backend, task) == 0


async def test_a_later_change_of_the_times_begins_anew(tmp_path: Path) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        await leading.step(FIRST_S)
        await backend.reschedule(task.id, NewTimes(quiet=QUIET))
        again = await backend.reschedule(task.id, NewTimes(quiet=""))

        await leading.step(AGAIN_S - FIRST_S)  # it has not heard of the second one
        assert (await backend.registry.get(task.id)).recall_ms == again.recall_ms
        leading.recalls.on_task(again)

        assert await leading.step(FIRST_S) == 1
        assert await leading.step(AGAIN_S - FIRST_S) == 1
        assert (await backend.registry.get(task.id)).recall_ms == 0


async def test_later_lanes_at_all_sinks_that_it_has_reached_are_asked(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add_task(backend, quiet=QUIET, sinks=("push", "sms", "mail"))
        await backend.reach(task.id, "sms")
        leading = Leading(backend)
        leading.recalls.on_task(await backend.reschedule(task.id, NewTimes(quiet="")))

        await leading.step(FIRST_S)

        homes = (own_lane(task.id), lane_at(task.id, "sms"))
        assert leading.broker.hastened == [later_lane(home) for home in homes]


async def test_a_task_that_has_ended_or_is_unreadable_is_left_alone(tmp_path: Path) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        ended = await backend.registry.change(task.id, task_changes.cancel)
        leading.recalls.on_task(ended)
        assert await leading.step(AGAIN_S) == 0
        leading.recalls.on_task(task)
        leading.recalls.on_unread(task.id)

        assert await leading.step(AGAIN_S) == 0


async def test_a_task_that_was_forgotten_meanwhile_ends_it(tmp_path: Path) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        ended = await backend.registry.change(task.id, task_changes.cancel)
        assert await backend.forget(ended)

        await leading.step(AGAIN_S)

        assert await leading.step(AGAIN_S) == 0


async def test_what_was_noted_of_the_old_times_is_forgotten(tmp_path: Path) -> None:
    async with recalled(tmp_path) as (backend, task, leading):
        soon_ms = now_ms() + 2 * QUARTER_MS
        note = PutOff(task.id, "quiet_hours", soon_ms // QUARTER_MS, 2, soon_ms, soon_ms)
        await backend.registry.put_off([note])

        await leading.step(FIRST_S)

        assert [list(notes) for notes in await backend.registry.put_offs([task.id])] == [[]]


async def test_the_log_says_how_many_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with recalled(tmp_path) as (_, task, leading):
        with caplog.at_level(logging.INFO, "pushlane.recalls"):
            await leading.step(FIRST_S)
            await leading.step(AGAIN_S - FIRST_S)

    told = [one.message for one in caplog.records if one.name == "pushlane.recalls"]
    assert told == [f"task {task.id} has new times: 2 of its waiting pushes are checked again"]
