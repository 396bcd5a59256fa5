"""A key stands for one task: of the same rows and options, and not one that was stopped.

With a task are kept short hashes of all that its key stands for, in a fixed order, so that what
differs can be named. Versions that know fewer parts than another compare those that both have.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import TaskConflict
from pushlane.core.names import another_key
from pushlane.core.task import Progress, State, Task, settled

_PART_BYTES = 2
_FOLLOWS = {"pool_lanes": "level"}
"""Parts that differ by themselves where another one does."""

_SHOWN_AS = {
    "retention_s": "retention",
    "attributes": "attribute",
    "batch": "the setting batch",
    "pool_lanes": "the setting pool_lanes",
    "limits": "the settings of its sinks",
}


class KeyEnded(TaskConflict):
    """The key's task was cancelled or has expired; nothing more is sent of it."""

    def __init__(self, message: str, task: Task) -> None:
        super().__init__(message)
        self.task = task


def short_hashes(parts: Iterable[Any]) -> bytes:
    """Return two bytes for each part, by which it is known whether another one is the same."""
    return b"".join(_short_hash(part) for part in parts)


def other_content(task: Task, kept: Task, names: Sequence[str], possible: str) -> TaskConflict:
    """Return the error for a key whose task `kept` was made of something else than `task`.

    It says what differs, by the `names` of the parts that both have hashes of; what is `possible`
    if the hashes do not tell, as of tasks of older versions.
    """
    differing = _differing(task.made_of, kept.made_of, names)
    what = f"which differs in {_listed(differing)}" if differing else f"with other {possible}"
    return TaskConflict(
        f"key {task.key!r} is used by task {kept.id}, {what}; repeat that submit as it was, or "
        f"choose another key, such as {another_key(task.key)}"
    )


async def progress_of(backend: Backend, task: Task) -> Progress:
    """Return how many of the task's pushes have ended, and in which way."""
    [progress] = await backend.registry.progress([task.id])
    return settled(task, progress)


async def refuse_stopped(backend: Backend, kept: Task) -> None:
    """Refuse the key of a task that was cancelled or has expired.

    Raises:
        KeyEnded: says how much of it was delivered, and which key to use.
    """
    if kept.state not in _STOPPED:
        return
    delivered = (await progress_of(backend, kept)).delivered
    of_total = "" if kept.total is None else f" of its {kept.total:,}"
    again = f", those {delivered:,} again too" if delivered else ""
    raise KeyEnded(
        f"key {kept.key!r} is that of task {kept.id}, which {_STOPPED[kept.state]}: {delivered:,}"
        f"{of_total} pushes were delivered, and nothing was submitted now. To send all of these "
        f"rows{again}, use another key, such as {another_key(kept.key)}",
        kept,
    )


_STOPPED = {State.CANCELLED: "was cancelled", State.EXPIRED: "has expired"}


def _short_hash(part: Any) -> bytes:
    return zlib.crc32(msgspec.json.encode(part)).to_bytes(4, "big")[:_PART_BYTES]


def _differing(ours: bytes, theirs: bytes, names: Sequence[str]) -> list[str]:
    known = min(len(ours), len(theirs)) // _PART_BYTES
    places = ((n, slice(_PART_BYTES * n, _PART_BYTES * (n + 1))) for n in range(known))
    found = [names[n] for n, part in places if ours[part] != theirs[part]]
    return [_shown(name) for name in found if _FOLLOWS.get(name) not in found]


def _shown(name: str) -> str:
    return _SHOWN_AS.get(name, name.replace("_", "-"))


def _listed(names: Sequence[str]) -> str:
    *all_but_last, last = names
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
