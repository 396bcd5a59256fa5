"""Removes tasks that cannot be read, for `cancel` and `forget --force`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import on_backend
from pushlane.core.errors import UnknownFormat
from pushlane.producers.dead import DeadLetters, Selection
from pushlane.settings import Settings

_LEAVE_S = 0.25
_LEAVE_TRIES = 40


def remove_unreadable(settings: Settings, faults: Sequence[UnknownFormat], *, yes: bool) -> None:
    """Remove these tasks with all that is theirs, after a question.

    Raises:
        TaskConflict: a live process of a newer version may read them.
        UserError: the answer is no, or there is nobody to ask.
    """
    task_ids = [fault.task_id for fault in faults]
    on_backend(settings, partial(_refuse_newer, task_ids=task_ids))  # before anybody is asked
    for fault in faults:
        if not yes:
            _confirm(fault)
    on_backend(settings, partial(_remove_all, task_ids=task_ids))


def _confirm(fault: UnknownFormat) -> None:
    what = f"task {fault.task_id}"
    question = (
        f"{fault.fault}.\nRemove it, with its key, its counts, its lanes and its dead pushes? What "
        "it has not sent will not go out."
    )
    confirm(f"removing {what}", question, f"{what} is not removed")


async def _refuse_newer(backend: Backend, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        await backend.refuse_newer(f"task {task_id}")


async def _remove_all(backend: Backend, task_ids: Sequence[str]) -> None:
    await _refuse_newer(backend, task_ids)
    for task_id in task_ids:
        await DeadLetters(backend).purge(Selection(task=task_id))
        is_gone = await _removed(backend, task_id)
        later = "" if is_gone else "; its lane goes in about 10 minutes, as somebody still reads it"
        note(f"task {task_id} could not be read: it is removed, and sends nothing more{later}")


async def _removed(backend: Backend, task_id: str) -> bool:
    """Remove a task; false when readers of its lanes have not left within some seconds."""
    for _ in range(_LEAVE_TRIES):
        if await backend.discard(task_id):
            return True
        await asyncio.sleep(_LEAVE_S)
    return False
