"""Names of lanes. They are never reused: a lane's name carries the id of its task.

A task's own lane is `task-ID`; where its pushes go on at another sink of its chain that is
`chain-ID.SINK`: versions that know no chains take it for nobody's, and leave it alone. Low
tasks share `pool-N`, or `pool-SINK-N` for a sink that has a name. The later lane of a lane ends in
`-later`. Dead pushes of a task with a lane of its own are on `task-ID-dead`, all others on `dead`.
"""

from __future__ import annotations

import re
import zlib

DEFAULT_SINK = "default"
"""The sink of tasks that name none; its lanes carry no name of a sink."""

SINK_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}(?<!-later)(?<!-dead)")

DEAD_LANE = "dead"
_POOL = "pool-"
_TASK = "task-"
_CHAIN = "chain-"
_LATER = "-later"
_DEAD = "-dead"


def own_lane(task_id: str) -> str:
    """Return the exclusive lane of a task, at the first sink of its chain."""
    return _TASK + task_id


def lane_at(task_id: str, sink: str) -> str:
    """Return the exclusive lane of a task at a later sink of its chain."""
    return f"{_CHAIN}{task_id}.{sink}"


def is_chained(lane: str) -> bool:
    """Tell a task's lane at a later sink of its chain."""
    return lane.startswith(_CHAIN)


def pool_lanes(count: int, sink: str = DEFAULT_SINK) -> list[str]:
    """Return all lanes that low tasks of a sink share."""
    return [_pool_of(sink) + str(index) for index in range(count)]


def pool_lane(task_id: str, count: int, sink: str = DEFAULT_SINK) -> str:
    """Return a shared lane for a low task: the same one for every call."""
    return f"{_pool_of(sink)}{spread_over(task_id, count)}"


def pool_sink(lane: str) -> str:
    """Return the sink of a lane that low tasks share."""
    name, separator, _ = lane.removeprefix(_POOL).removesuffix(_LATER).rpartition("-")
    return name if separator else DEFAULT_SINK


def _pool_of(sink: str) -> str:
    return _POOL if sink == DEFAULT_SINK else f"{_POOL}{sink}-"


def spread_over(task_id: str, count: int) -> int:
    """Return a number below `count`: tasks are spread evenly, each always to the same number."""
    return zlib.crc32(task_id.encode()) % count


def later_lane(lane: str) -> str:
    """Return the lane where pushes of a lane wait for their time: retries, delays, quiet hours."""
    return lane + _LATER


def is_later(lane: str) -> bool:
    return lane.endswith(_LATER)


def task_of(lane: str) -> str | None:
    """Return the id of the task that has this lane to itself; None for lanes that are shared."""
    if lane.startswith(_CHAIN):
        return lane.removeprefix(_CHAIN).partition(".")[0]
    if not lane.startswith(_TASK):
        return None
    return lane.removeprefix(_TASK).removesuffix(_LATER).removesuffix(_DEAD)


def dead_lane(task_id: str) -> str:
    """Return the lane for dead pushes of a task with its own lane; others share `DEAD_LANE`."""
    return own_lane(task_id) + _DEAD


def is_dead(lane: str) -> bool:
    return lane == DEAD_LANE or (lane.startswith(_TASK) and lane.endswith(_DEAD))


def is_pool(lane: str) -> bool:
    return lane.startswith(_POOL)
