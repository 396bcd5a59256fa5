"""What every registry promises of why pushes were not delivered.

See `backends.ports.ProgressStore.reasons`.
"""

from __future__ import annotations

import asyncio

from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, Progress, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.model.reasons import DEAD_ADDRESS, MOST_REASONS, OTHER, Reasons


def dead(task: str, reason: str, *seqs: int) -> Finished:
    return Finished(task, Kind.DEAD, list(seqs), reason)


async def test_deaths_are_counted_by_reason_the_commonest_first(connections):
    async with connections:
        here, there = await connections.two()

        await here.registry.record([dead("t", "timed out", 1), dead("t", "HTTP 404", 2, 3)])
        [progress] = await there.registry.record([dead("t", "HTTP 404", 4)])

        assert progress == Progress("t", dead=4, failed=4)
        [reasons, none] = await here.registry.reasons(["t", "other"])
        assert list(reasons.dead.items()) == [("HTTP 404", 3), ("timed out", 1)]
        assert none == Reasons("other")


async def test_a_dead_push_that_comes_again_is_counted_once_and_for_its_first_reason(connections):
    async with connections:
        registry = (await connections.one()).registry
        await registry.record([dead("t", "HTTP 404", 1, 2)])

        again = [dead("t", "HTTP 500", 1, 2, 3), Finished("t", Kind.DELIVERED, [1])]
        assert await registry.record(again) == [Progress("t", dead=3, failed=3)]

        assert await registry.reasons(["t"]) == [Reasons("t", {"HTTP 404": 2, "HTTP 500": 1})]


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

        [reasons] = await pair[0].registry.reasons(["t"])
        assert reasons.dead == {f"HTTP {400 + n}": 100 for n in range(4)}


async def test_a_dead_address_is_counted_apart_from_what_failed(connections):
    async with connections:
        registry = (await connections.one()).registry

        ends = [dead("t", DEAD_ADDRESS, 1, 2), dead("t", "HTTP 404", 3)]

        assert await registry.record(ends) == [Progress("t", dead=3, failed=1)]
        assert await registry.progress(["t"]) == [Progress("t", dead=3, failed=1)]
        assert await registry.reasons(["t"]) == [Reasons("t", {DEAD_ADDRESS: 2, "HTTP 404": 1})]


async def test_what_is_counted_without_a_reason_is_dead_and_no_more(connections):
    async with connections:
        registry = (await connections.one()).registry

        assert await registry.record([Finished("t", Kind.DEAD, [1])]) == [Progress("t", dead=1)]
        assert await registry.reasons(["t"]) == [Reasons("t")]


async def test_very_many_reasons_are_told_apart_up_to_a_bound(connections):
    async with connections:
        registry = (await connections.one()).registry
        seqs = range(1, MOST_REASONS + 11)

        await registry.record([dead("t", f"HTTP {n}", n) for n in seqs])
        await registry.record([dead("t", "HTTP 1", 101), dead("t", DEAD_ADDRESS, 102)])

        [reasons] = await registry.reasons(["t"])
        assert len(reasons.dead) == MOST_REASONS + 2
        assert reasons.dead[OTHER] == 10
        assert reasons.dead["HTTP 1"] == 2
        assert reasons.dead[DEAD_ADDRESS] == 1
        assert sum(reasons.dead.values()) == MOST_REASONS + 12


async def test_deaths_are_forgotten_with_their_task(connections):
    async with connections:
        registry = (await connections.one()).registry
        task_id = new_task_id()
        await registry.add(Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id)))
        await registry.record([dead(task_id, "HTTP 404", 1)])
        await registry.change(task_id, task_changes.finish(State.DONE))

        assert await registry.reasons([task_id]) == [Reasons(task_id, {"HTTP 404": 1})]
        await registry.forget(task_id)

        assert await registry.reasons([task_id]) == [Reasons(task_id)]


async def test_what_expired_and_what_was_dropped_have_reasons_of_their_own(connections):
    async with connections:
        registry = (await connections.one()).registry
        ends = [
            Finished("t", Kind.DROPPED, [1, 2], "suppressed"),
            Finished("t", Kind.EXPIRED, [3], "past its expiry"),
            Finished("t", Kind.DROPPED, [3, 4], "task cancelled"),
            dead("t", "suppressed", 5),
            Finished("t", Kind.DROPPED, [6]),
        ]

        [progress] = await registry.record(ends)

        assert progress == Progress("t", dead=1, expired=1, dropped=4, failed=1)
        [reasons] = await registry.reasons(["t"])
        assert reasons.dead == {"suppressed": 1}
        assert reasons.expired == {"past its expiry": 1}
        assert list(reasons.dropped.items()) == [("suppressed", 2), ("task cancelled", 1)]


async def test_the_bound_on_reasons_holds_for_each_outcome(connections):
    async with connections:
        registry = (await connections.one()).registry
        seqs = range(1, MOST_REASONS + 4)

        await registry.record([dead("t", f"HTTP {n}", n) for n in seqs])
        await registry.record([Finished("t", Kind.DROPPED, [100 + n], f"why {n}") for n in seqs])

        [reasons] = await registry.reasons(["t"])
        for counts in (reasons.dead, reasons.dropped):
            assert len(counts) == MOST_REASONS + 1
            assert counts[OTHER] == 3
