"""Completes words for the shell: levels, states, delivery modes, ids of the embedded store's tasks.

Remote backends are not asked: a key press must not wait for a network.
"""

from __future__ import annotations

import asyncio

import typer

from pushlane import settings
from pushlane.backends.backend import connect
from pushlane.cli.parsing import STATES
from pushlane.core.errors import PushlaneError
from pushlane.core.task import DeliveryMode, Level
from pushlane.lanes.search import pages


def complete_level(incomplete: str) -> list[str]:
    return [level for level in Level if level.startswith(incomplete)]


def complete_state(incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete)]


def complete_delivery(incomplete: str) -> list[str]:
    return [mode for mode in DeliveryMode if mode.startswith(incomplete)]


def complete_task(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids that begin like this, each with the task's name."""
    flags = {name: ctx.params.get(name) for name in ("broker", "data_dir")}
    try:
        return asyncio.run(_tasks(flags, incomplete))
    except PushlaneError:
        return []


async def _tasks(flags: dict[str, str | None], incomplete: str) -> list[tuple[str, str]]:
    chosen = settings.load(flags)
    if not chosen.capabilities.is_local or chosen.is_store_missing:
        return []
    async with connect(chosen, create=False) as backend:
        tasks = [task async for page in pages(backend.registry) for task in page]
    return [(task.id, task.name) for task in tasks if task.id.startswith(incomplete)]
