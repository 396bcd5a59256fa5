"""`pool` shows the lanes that low tasks share and what is left on each, and sets their number."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from pushlane.backends.backend import Backend
from pushlane.backends.ports import listed
from pushlane.backends.queries import pool_size, set_pool_size
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, on_backend
from pushlane.cli.render import Column, print_json, print_table
from pushlane.core.names import is_pool, pool_lanes
from pushlane.core.task import ACTIVE_STATES

_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("LANE", lambda one: one["lane"]),
    Column("LEFT", lambda one: f"{one['left']:,}", number=True),
    Column("TASKS", lambda one: str(one["tasks"]), number=True),
)
_AT_ONCE = 32


def pool(
    flags: Flags,
    lanes: Annotated[int | None, argument("[N]", "So many from now on, 1 to 1024.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the lanes that low tasks share, or change how many there are from now on."""
    settings = flags.settings()

    async def apply(backend: Backend) -> tuple[int, list[dict[str, Any]]]:
        if lanes is not None:
            await set_pool_size(backend.documents, lanes)
        size = await pool_size(backend.documents, settings.pool_lanes)
        return size, await _look(backend, size)

    size, found = on_backend(settings, apply, create=lanes is not None)
    if as_json:
        print_json({"lanes": size, "shared": found})
    else:
        print_table(_COLUMNS, found)
    if lanes is not None:
        note(f"low tasks that come from now on share {size} lanes")
    if beyond := [one["lane"] for one in found[size:]]:
        some = ", ".join(beyond[:3]) + (" …" if beyond[3:] else "")
        note(f"{some}: no new task gets these, those that are there go on")


async def _look(backend: Backend, size: int) -> list[dict[str, Any]]:
    """Return each lane of the pool, then those that unfinished tasks have from when it was larger.

    `left` counts messages: each is a bundle of a task's pushes.
    """
    unfinished = await listed(backend.registry, ACTIVE_STATES)
    tasks = Counter(task.first_lane or task.lane for task in unfinished)
    names = pool_lanes(size)
    former = (lane for lane in tasks if is_pool(lane) and lane not in names)
    names += sorted(former, key=lambda lane: (len(lane), lane))  # by its number
    left: list[int] = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        left += await asyncio.gather(*(backend.broker.backlog(lane) for lane in some))
    return [
        {"lane": lane, "left": count, "tasks": tasks[lane]}
        for lane, count in zip(names, left, strict=True)
    ]
