"""Refuses a sink that nobody knows, before a task is made whose pushes would wait for ever."""

from __future__ import annotations

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, UnknownTask
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import Task
from pushlane.lanes.suggestions import did_you_mean
from pushlane.settings import Settings


async def refuse_unknown_sinks(backend: Backend, settings: Settings, task: Task) -> None:
    """Refuse a new task for a sink that neither the settings nor a live process names.

    So is one that names no sink, where the settings have named ones and nothing is `default`.

    A task that is there already was accepted once, so its submit goes on.

    Raises:
        BadInput: names the sink, the nearest that is known, and all that are.
    """
    if all(name in settings.served for name in task.chain):
        return
    processes = await backend.presence.list()
    live = (name for process in processes for name in process.sink_names)
    known = list(dict.fromkeys((*settings.served, *live)))
    unknown = next((name for name in task.chain if name not in known), None)
    if unknown is None or await task_of_key(backend, task.key) is not None:
        return
    if unknown == DEFAULT_SINK:
        raise BadInput(
            "the settings name sinks, and none of them is `default`: name a sink with --sink "
            f"({', '.join(known)}), or set `sink`"
        )
    raise BadInput(
        f"no sink is named {unknown!r}, neither in the settings nor by a live process"
        f"{did_you_mean(unknown, known)}; known are: {', '.join(known)}"
    )


async def task_of_key(backend: Backend, key: str) -> Task | None:
    """Return the task that was made of this key, None when there is none."""
    if not key:
        return None
    try:
        found = await backend.registry.get(key)
    except UnknownTask:
        return None
    return found if found.key == key else None
