"""Tells whether anybody knows an app or a sink that an operation names."""

from __future__ import annotations

from pushlane.backends.backend import Backend
from pushlane.backends.ports import ALL
from pushlane.core.turns import EVERY_APP
from pushlane.model.limits import Subject
from pushlane.settings import Settings
from pushlane.util.texts import did_you_mean

_LOOKED_AT = 1_000


async def is_used(backend: Backend, kind: str, name: str) -> bool:
    """Tell whether one of the newest tasks has this app or this sink."""
    page = await backend.registry.page(ALL, most=_LOOKED_AT)
    if kind == "app":
        return any(task.app == name for task in page.tasks)
    return any(name in task.chain for task in page.tasks)


async def unknown_text(backend: Backend, settings: Settings, subject: Subject) -> str:
    """Return a remark on an app or a sink that nobody knows yet, empty for all else."""
    kind, name = subject
    if kind not in ("app", "sink") or name == EVERY_APP or await is_used(backend, kind, name):
        return ""
    if kind == "app":
        return f"no task has the app {name!r} yet; it holds for those that will"
    served = {one for process in await backend.presence.list() for one in process.sink_names}
    known = {*settings.served, *served}
    if name in known:
        return ""
    return (
        f"no sink is named {name!r} yet, by the settings, a live process or a task; it holds when "
        f"there is one{did_you_mean(name, known)}"
    )
