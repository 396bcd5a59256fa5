"""Removes tasks that have ended, with all that is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.core.errors import UserError
from pushlane.core.task import Task
from pushlane.model.task_changes import check_forgettable
from pushlane.producers.dead import DeadLetters, Selection

_LEAVE_S = 0.25
_LEAVE_TRIES = 40


async def forget_task(backend: Backend, task: Task) -> None:
    """Remove a task that has ended, with its counts, key, lanes and dead pushes.

    Raises:
        InvalidChange: it has not ended.
        UserError: somebody still reads its lane.
    """
    check_forgettable(task)
    await DeadLetters(backend).purge(Selection(task=task.id))
    if not await removed_in_time(partial(backend.forget, task)):
        raise UserError(
            f"task {task.id} is not forgotten: somebody still reads its lane; see which "
            "dispatchers run (`pushlane processes`), then try again"
        )


async def removed_in_time(remove: Callable[[], Awaitable[bool]]) -> bool:
    """Remove a task once the readers of its lanes have left; false if they stay for 10 s."""
    for _ in range(_LEAVE_TRIES):
        if await remove():
            return True
        await asyncio.sleep(_LEAVE_S)
    return False
