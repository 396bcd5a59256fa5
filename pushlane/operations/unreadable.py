"""Operations on tasks that cannot be read: what is wrong with one, and its removal."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import msgspec

from pushlane.backends.ports import whole_pages
from pushlane.core.errors import InvalidChange, TaskConflict, UnknownFormat
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session
from pushlane.operations.tasks import TaskWord
from pushlane.util.errors import DamagedRecord, UnknownTask


class UnreadableTask(msgspec.Struct, frozen=True):
    """A task that cannot be read: what is wrong with it, and what to do.

    `kept_for` says why it may not be removed now, absent where it may. One that is not `damaged` is
    of a newer version.
    """

    task_id: str
    fault: str
    do: str
    kept_for: str | None = None
    damaged: bool = True


class RemovedTask(msgspec.Struct, frozen=True):
    """A task that is removed. Somebody may still read its lane: then that goes in 10 minutes."""

    task_id: str
    is_lane_gone: bool


class GetUnreadable(Operation[UnreadableTask], frozen=True, kw_only=True):
    """Say what is wrong with a task that cannot be read. Refused for one that can."""

    method, path, role, of = "GET", "/unreadable/{task}", Role.VIEWER, Of.EVERYTHING
    commands = ("forget", "cancel")

    task: TaskWord

    async def run(self, at: Session) -> UnreadableTask:
        return await _look_at(at, await _fault(at, self.task))


class ListUnreadable(Operation[list[UnreadableTask]], frozen=True, kw_only=True):
    """List the tasks that cannot be read, by id: what is wrong with each, and what to do."""

    method, path, role, of = "GET", "/unreadable", Role.VIEWER, Of.EVERYTHING

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[UnreadableTask]:
        looked_at = whole_pages(at.backend.registry)
        ids = sorted([task_id async for some in looked_at for task_id in some.unread])
        shown: list[UnreadableTask] = []
        for task_id in page(at, self, ids, str):
            with suppress(UnknownTask, InvalidChange):  # removed, or mended, since it was seen
                shown.append(await _look_at(at, await _fault(at, task_id)))
        return shown


class RemoveUnreadable(Operation[RemovedTask], frozen=True, kw_only=True):
    """Remove a task that cannot be read, with its key, counts, lanes and dead pushes.

    What it has not sent does not go out. Refused for one that can be read, and while a process of a
    newer version lives, which may read it.
    """

    method, path, role, of = "DELETE", "/unreadable/{task}", Role.OPERATOR, Of.EVERYTHING
    commands = ("forget", "cancel")
    changes = destroys = True

    task: TaskWord

    async def run(self, at: Session) -> RemovedTask:
        from pushlane.producers.dead import DeadLetters, Selection  # loads how tasks are made
        from pushlane.producers.forgetting import removed_in_time

        found = await _fault(at, self.task)
        task_id = found.task_id
        await at.backend.refuse_newer(f"task {task_id}")
        at.changed(f"task/{task_id}", {"unreadable": found.fault}, {})
        await DeadLetters(at.backend).purge(Selection(task=task_id))
        is_gone = await removed_in_time(partial(at.backend.discard, task_id))
        return RemovedTask(task_id, is_gone)


async def _look_at(at: Session, found: UnknownFormat) -> UnreadableTask:
    kept_for = None
    try:
        await at.backend.refuse_newer(f"task {found.task_id}")
    except TaskConflict as error:
        kept_for = str(error)
    is_damaged = isinstance(found, DamagedRecord)
    return UnreadableTask(found.task_id, found.fault, found.way_out, kept_for, is_damaged)


async def _fault(at: Session, word: str) -> UnknownFormat:
    """Return why a task cannot be read. Raises UnknownTask, and InvalidChange for one that can."""
    try:
        task = await at.task(word)
    except UnknownFormat as error:
        if not error.task_id:
            raise
        return error
    raise InvalidChange(
        f"task {task.id} can be read, so it is not removed like this: cancel it, and forget it"
    )
