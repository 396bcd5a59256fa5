"""Announces collapse keys of pushes that are on their lane, so that older ones are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.core.publish import Announce
from pushlane.core.push import decode
from pushlane.core.task import Task
from pushlane.model.recipients import collapse_mark


async def announce(backend: Backend, task: Task, bodies: Sequence[bytes]) -> None:
    """Announce collapse keys of pushes that are on the lane; earlier, both pushes could be lost."""
    pushes = map(decode, bodies)
    marks = [collapse_mark(task.app, push) for push in pushes if push.collapse]
    if marks:
        await backend.recipient_windows.announce(marks)


def announcing(backend: Backend, collapses: bool) -> Announce | None:
    """Return what announces the pushes of a task that `collapses`; None for any other."""
    return partial(announce, backend) if collapses else None
