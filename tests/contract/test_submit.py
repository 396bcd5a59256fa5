"""A submit that is paused, limited or made in parts, on every backend: it holds at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher.gates.budget_gate import LimitsFollower
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Subject, read_limits
from pushlane.producers.request import SubmitRequest, Submitted
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from tests.contract.conftest import Connections
from tests.core.support import MemorySink, dispatching, until, until_state

LEVELS = [Level.HIGH, Level.LOW]


async def submitted(
    backend: Backend, settings: Settings, level: Level = Level.HIGH, **options: Any
) -> Submitted:
    rows = [{"recipient": f"to-{number}"} for number in range(1, 21)]
    given: Mapping[str, Any] = {"title": "Hi", "key": "sale", **options}
    return await submit(backend, settings, SubmitRequest(source=rows, level=level, **given))


def recipients(sink: MemorySink) -> list[str]:
    return [delivery.push.recipient for delivery in sink.received]


@pytest.mark.parametrize("level", LEVELS)
async def test_one_that_is_paused_sends_nothing_until_it_is_resumed(
    connections: Connections, settings: Settings, level: Level
) -> None:
    async with connections:
        backend = await connections.one()
        sink = MemorySink()
        async with dispatching(backend, sink, settings):
            held = (await submitted(backend, settings, level, paused=True)).task
            free = (await submitted(backend, settings, level, key="other")).task
            await until_state(backend, free, State.DONE)
            assert sink.pushes(held) == []

            assert (held.state, held.reason, held.total) == (State.PAUSED, "submitted paused", 20)
            assert held.lane == held.first_lane == own_lane(held.id)
            await backend.registry.change(held.id, task_changes.resume)
            await until_state(backend, held, State.DONE)

        assert sorted(sink.pushes(held)) == [(held.id, seq) for seq in range(1, 21)]


@pytest.mark.parametrize("level", LEVELS)
async def test_one_that_is_paused_never_runs_before(
    connections: Connections, settings: Settings, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connections:
        backend = await connections.one()
        seen: list[State] = []
        change = backend.registry.change

        async def noted(task_id: str, edit: task_changes.Edit) -> Task:
            seen.append((task := await change(task_id, edit)).state)
            return task

        monkeypatch.setattr(backend.registry, "change", noted)
        await submitted(backend, settings, level, paused=True)

        assert seen == [State.PAUSED] * 3


async def test_one_that_was_resumed_is_not_paused_again_by_a_repeat(
    connections: Connections, settings: Settings
) -> None:
    async with connections:
        backend = await connections.one()
        first = await submitted(backend, settings, paused=True, first=5)
        await backend.registry.change(first.task.id, task_changes.resume)
        again = await submitted(backend, settings, paused=True)

        assert (again.task.state, again.published) == (State.RUNNING, 15)


@pytest.mark.parametrize("level", LEVELS)
async def test_not_one_push_goes_over_a_limit_that_it_was_submitted_with(
    connections: Connections, settings: Settings, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the process would not hear of the limit for long."""

    async def never_again(follower: LimitsFollower) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(LimitsFollower, "run", never_again)
    async with connections:
        backend = await connections.one()
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            await submitted(backend, settings, level, key="other")
            await sink.until_received(20)
            task = (await submitted(backend, settings, level, rate_per_s=1e-6)).task
            await until(lambda: dispatcher.stats.limited["task"])

            assert len(sink.pushes(task)) <= 1


async def test_a_limit_that_was_changed_meanwhile_is_not_undone_by_a_repeat(
    connections: Connections, settings: Settings
) -> None:
    async with connections:
        backend = await connections.one()
        first = await submitted(backend, settings, rate_per_s=5, in_flight=3, first=5)
        subject = Subject("task", first.task.id)
        assert first.limit == Limit(rate_per_s=5, in_flight=3)
        assert await read_limits(backend.documents) == {subject: first.limit}

        await backend.documents.remove("limit", str(subject))
        again = await submitted(backend, settings, rate_per_s=5, in_flight=3)

        assert (again.limit, await read_limits(backend.documents)) == (Limit(), {})


async def test_the_first_rows_go_then_the_rest_and_each_once(
    connections: Connections, settings: Settings
) -> None:
    async with connections:
        backend = await connections.one()
        sink = MemorySink()
        async with dispatching(backend, sink, settings):
            await submitted(backend, settings, first=5)
            await sink.until_received(5)
            assert sorted(recipients(sink)) == sorted(f"to-{n}" for n in range(1, 6))

            task = (await submitted(backend, settings)).task
            await until_state(backend, task, State.DONE)

        assert sorted(sink.pushes()) == [(task.id, seq) for seq in range(1, 21)]
