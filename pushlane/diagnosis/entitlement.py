"""What a task is entitled to of its sink now, with its limits or as if it had none."""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec.structs import replace as with_fields

from pushlane.core.task import Task
from pushlane.diagnosis.situation import Situation
from pushlane.lanes.sink_shares import entitled_rates, entitled_shares
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import SinkLoad

_ENDLESS = 10**9


def entitled_share(now: Situation) -> float | None:
    """Return the part of its sink that the task, or its lane of the pool, is entitled to now.

    What others may not take by their limits is shared by those that may. None while it has nothing
    to send, or may not.
    """
    return _share_in(now.load, now.task)


def share_without_own_limits(now: Situation) -> float | None:
    """Return what `entitled_share` would be if the task and its app had no rate or places set."""
    load, unlimited = now.load, {"rate_per_s": math.inf, "in_flight": _ENDLESS}
    own = (Subject("task", now.task.id), Subject("app", now.task.app))
    freed = {one: with_fields(load.limits.get(one, Limit()), **unlimited) for one in own}
    return _share_in(replace(load, limits={**load.limits, **freed}), now.task)


def _share_in(load: SinkLoad, task: Task) -> float | None:
    going = load.going
    if task.id not in {one.task.id for one in going}:
        return None
    per_s = load.sink.capacity_per_s
    if not per_s:
        return entitled_shares(load, going).get(task.lane)
    return entitled_rates(load, going, per_s)[task.lane] / per_s
