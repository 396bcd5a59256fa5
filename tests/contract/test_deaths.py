"""What every registry promises of why pushes died (see `backends.ports.ProgressStore.deaths`)."""

from __future__ import annotations

import asyncio

from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, Progress, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.model.stop_rule import DEAD_ADDRESS, MOST_REASONS, OTHER, Deaths


def dead(task: str, reason: str, *seqs: int) -> Finished:
    return Finished(task, Kind.DEAD, list(seqs), reason)


async def test_deaths_are_counted_by_reason_the_commonest_first(connections):
    async with connections:
        here, there = await connections.two()

        await here.registry.record([dead("t", "timed out", 1), dead("t", "HTTP 404", 2, 3)])
        [progress] = await there.registry.record([dead("t", "HTTP 404", 4)])

        assert progress == Progress("t", dead=4, failed=4)
        [deaths, none] = await here.registry.deaths(["t", "other"])
        assert list(deaths.by_reason.items()) == [("HTTP 404", 3), ("timed out", 1)]
        assert none == Deaths("other")


async def test_a_dead_push_that_comes_again_is_counted_once_and_for_its_first_reason(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([dead("t", "HTTP 404", 1, 2)])

        again = [dead("t", "HTTP 500", 1, 2, 3), Finished("t", Kind.DELIVERED, [1])]
        assert await registry.record(again) == [Progress("t", dead=3, failed=3)]

        assert await registry.deaths(["t"]) == [Deaths("t", {"HTTP 404": 2, "HTTP 500": 1})]


async def test_many_processes_count_every_death_once(connections):
    async with connections:
        pair = await connections.two()
        seqs = list(range(1, 401))

        await asyncio.gather(
            *(
                pair[n % 2].registry.record([dead("t", f"HTTP {400 + n % 4}", *seqs[n % 8 :: 8])])
                for n in range(16)
            )
        )

        [deaths] = await pair[0].registry.deaths(["t"])
        assert deaths.by_reason == {f"HTTP {400 + n}": 100 for n in range(4)}


async def test_a_dead_address_is_counted_apart_from_what_failed(connections):
    async with connections:
        registry = (await connections.one()).registry

        ends = [dead("t", DEAD_ADDRESS, 1, 2), dead("t", "HTTP 404", 3)]

        assert await registry.record(ends) == [Progress("t", dead=3, failed=1)]
        assert await registry.progress(["t"]) == [Progress("t", dead=3, failed=1)]
        assert await registry.deaths(["t"]) == [Deaths("t", {DEAD_ADDRESS: 2, "HTTP 404": 1})]


async def test_what_is_counted_without_a_reason_is_dead_and_no_more(connections):
    async with connections:
        registry = (await connections.one()).registry

        assert await registry.record([Finished("t", Kind.DEAD, [1])]) == [Progress("t", dead=1)]
        assert await registry.deaths(["t"]) == [Deaths("t")]


async def test_very_many_reasons_are_told_apart_up_to_a_bound(connections):
    async with connections:
        registry = (await connections.one()).registry
        seqs = range(1, MOST_REASONS + 11)

        await registry.record([dead("t", f"HTTP {n}", n) for n in seqs])
        await registry.record([dead("t", "HTTP 1", 101), dead("t", DEAD_ADDRESS, 102)])

        [deaths] = await registry.deaths(["t"])
        assert len(deaths.by_reason) == MOST_REASONS + 2
        assert deaths.by_reason[OTHER] == 10
        assert deaths.by_reason["HTTP 1"] == 2
        assert deaths.by_reason[DEAD_ADDRESS] == 1
        assert sum(deaths.by_reason.values()) == MOST_REASONS + 12


async def test_deaths_are_forgotten_with_their_task(connections):
    async with connections:
        registry = (await connections.one()).registry
        task_id = new_task_id()
        await registry.add(Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id)))
        await registry.record([dead(task_id, "HTTP 404", 1)])
        await registry.change(task_id, task_changes.finish(State.DONE))

        assert await registry.deaths([task_id]) == [Deaths(task_id, {"HTTP 404": 1})]
        await registry.forget(task_id)

        assert await registry.deaths([task_id]) == [Deaths(task_id)]
