"""Two sides of a partition of Redis, each with a leader, one broker and one journal."""

from __future__ import annotations

from dataclasses import replace as with_other
from pathlib import Path

from pushlane.backends.ports import ALL
from pushlane.backends.redis import connect_redis
from pushlane.core.names import own_lane
from pushlane.core.task import State
from pushlane.model import task_changes
from tests.backends.redis.world import WINDOW_S, new_task, world_on
from tests.core.support import backend_in
from tests.leader.recovering import MINUTE_MS, Recovering

MINUTES = 15
"""More than the ten for which a lane that seems to be nobody's is left alone."""


async def test_neither_drops_a_lane_of_the_other_sides_tasks(
    tmp_path: Path, redis_url: str
) -> None:
    """The journal is on the broker, which both reach: so what one registers the other finds out."""
    async with (
        backend_in(tmp_path) as (both, _),
        world_on(redis_url) as one_side,
        world_on(redis_url) as other_side,
    ):
        other_side.journal = one_side.journal
        async with (
            connect_redis(redis_url, one_side.prefix, one_side.journal, WINDOW_S) as one,
            connect_redis(redis_url, other_side.prefix, other_side.journal, WINDOW_S) as other,
        ):
            sides = [with_other(both, registry=side.registry) for side in (one, other)]
            leaders = [Recovering(side) for side in sides]
            lanes: set[str] = set()
            over = new_task()
            await both.broker.open_lane(own_lane(over.id))
            for minute in range(MINUTES):
                side = sides[minute % 2]
                task = await side.registry.add(new_task())
                lanes.add(task.lane)
                await both.broker.open_lane(task.lane)
                await side.registry.change(task.id, task_changes.start)
                for leader in leaders:
                    await leader.step(MINUTE_MS)

                assert lanes <= set(await both.broker.lanes())

            assert own_lane(over.id) not in await both.broker.lanes()
            assert {task.state for task in (await sides[0].registry.page(ALL)).tasks} == {
                State.RUNNING
            }
