"""Operations on the pool: the lanes that low tasks share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from pushlane.backends.ports import listed
from pushlane.backends.queries import MOST, pool_size, set_pool_size
from pushlane.core.names import is_pool, pool_lanes
from pushlane.core.task import ACTIVE_STATES
from pushlane.operations.operation import ETag, Of, Operation, Role
from pushlane.operations.session import Session

_AT_ONCE = 32


class PoolLane(msgspec.Struct, frozen=True):
    """A lane of the pool, and the unfinished tasks that have it.

    `left` counts messages: each is a bundle of a task's pushes.
    """

    lane: str
    left: int
    tasks: int


class PoolView(msgspec.Struct, frozen=True):
    """How many lanes low tasks share from now on, and each of them.

    Behind these are those that unfinished tasks have from when there were more.
    """

    lanes: int
    shared: Sequence[PoolLane]


class GetPool(Operation[PoolView], frozen=True, kw_only=True):
    """Show the lanes that low tasks share, and what is left on each."""

    method, path, role, of = "GET", "/pool", Role.VIEWER, Of.EVERYTHING
    commands = ("pool",)
    etag = ETag.SHOWN

    async def run(self, at: Session) -> PoolView:
        return await _look(at)


class SetPool(Operation[PoolView], frozen=True, kw_only=True):
    """Change how many lanes low tasks share from now on; those that are there stay on theirs."""

    method, path, role, of = "PUT", "/pool", Role.OPERATOR, Of.EVERYTHING
    commands = ("pool",)
    changes = True
    etag = ETag.NEEDED

    lanes: Annotated[int, Meta(ge=1, le=MOST, description=f"So many, 1 to {MOST}.")]

    async def run(self, at: Session) -> PoolView:
        setting = at.settings.pool_lanes

        def check(there: int | None) -> None:
            at.require_seen("pool", {"lanes": there or setting})

        before = await set_pool_size(at.backend.documents, self.lanes, check)
        at.changed("pool", {"lanes": before or setting}, {"lanes": self.lanes})
        return await _look(at)


async def _look(at: Session) -> PoolView:
    size = await pool_size(at.backend.documents, at.settings.pool_lanes)
    at.show("pool", {"lanes": size})
    unfinished = await listed(at.backend.registry, ACTIVE_STATES)
    tasks = Counter(task.first_lane or task.lane for task in unfinished)
    names = pool_lanes(size)
    former = (lane for lane in tasks if is_pool(lane) and lane not in names)
    names += sorted(former, key=lambda lane: (len(lane), lane))  # by its number
    left: list[int] = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        left += await asyncio.gather(*(at.backend.broker.backlog(lane) for lane in some))
    found = zip(names, left, strict=True)
    return PoolView(size, [PoolLane(lane, count, tasks[lane]) for lane, count in found])
