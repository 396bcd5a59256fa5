"""Makes a task of a file's rows: check all, register, open the lane, publish, seal.

Every step can be repeated, so a submit with a key that was cut off is resumed by calling it again.
It never publishes before the lane has its subscription, nor anything of a file with a bad row
(unless bad rows are to be skipped).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace as with_other

from msgspec.structs import replace

from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import TaskConflict
from pushlane.lanes.naming import submit_lease
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.check import CheckedRows, check_rows, fingerprint
from pushlane.producers.chunks import chunk_size
from pushlane.producers.input import InputFile, OnProgress, as_file
from pushlane.producers.lease_guard import LeaseGuard, Sleep
from pushlane.producers.publish import refuse_ended
from pushlane.producers.publish_rows import RowsPublisher
from pushlane.producers.request import SubmitProgress, SubmitRequest, SubmitResult, SubmitStage
from pushlane.producers.rows import RowSource
from pushlane.producers.sources import open_source
from pushlane.producers.task_builder import new_task


async def submit(
    backend: Backend,
    settings: Settings,
    request: SubmitRequest,
    on_progress: OnProgress | None = None,
    *,
    sleep: Sleep = asyncio.sleep,
) -> SubmitResult:
    """Submit a task and return it sealed.

    With a key, the same call after a crash goes on where it stopped, and after success does
    nothing. A service lost in mid-publish is waited for. `sleep` is how waiting is done.

    Raises:
        BadInput: the request or its rows cannot be used; nothing was published.
        TaskConflict: the key belongs to other content, or a submit of it is under way.
        Unreachable: a service does not answer at the start.
    """
    request = request.complete()
    new_task(request, settings)  # refuses a bad option before anything is read
    tell = on_progress or (lambda progress: None)
    async with as_file(request, tell) as file:
        source = await asyncio.to_thread(open_source, file.path, file.format, file.name)
        return await _Submit(backend, settings, request, tell, sleep).run(file, source)


class _Submit:
    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        request: SubmitRequest,
        tell: OnProgress,
        sleep: Sleep,
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._request = request
        self._tell = tell
        self._sleep = sleep

    async def run(self, file: InputFile, source: RowSource) -> SubmitResult:
        task = new_task(self._request, self._settings)
        rows = await check_rows(self._request, file, source, task, self._tell)
        if self._request.key:
            found = await fingerprint(self._request, self._settings, file)
            task = replace(task, fingerprint=found)
        kept = await self._backend.add(task, self._settings)
        _refuse_other(task, kept)
        result = await self._lease_guard(kept).run(
            lambda: self._publish(kept.id, rows), lambda: self._tell(_waiting(kept))
        )
        return with_other(result, resumed=kept.id != task.id and not result.already_done)

    async def _publish(self, task_id: str, rows: CheckedRows) -> SubmitResult:
        task = await self._backend.registry.get(task_id)
        result = SubmitResult(task, 0, rows.rejected, rows.rejects)
        if task.total is not None:
            return with_other(result, already_done=True)
        refuse_ended(task)
        publisher = RowsPublisher(
            self._backend, task, rows, self._tell, self._sleep, self._remembered_since_ms()
        )
        sealed = await publisher.run(chunk_size(self._settings.batch))
        return with_other(result, task=sealed, published=publisher.published)

    def _remembered_since_ms(self) -> int:
        """Return since when (Unix ms) the broker knows what it has of a submit; 0 for always."""
        is_kept = self._settings.capabilities.remembers_sources
        return 0 if is_kept else now_ms() - round(self._settings.dedup_window_s * 1000)

    def _lease_guard(self, task: Task) -> LeaseGuard:
        busy = (
            f"a submit of task {task.id} (key {task.key!r}) is under way; wait for it to end, then "
            "run this again to see that it is complete"
        )
        return LeaseGuard(self._backend.lease, submit_lease(task.id), busy, self._sleep)


def _refuse_other(task: Task, kept: Task) -> None:
    if kept.fingerprint != task.fingerprint:
        raise TaskConflict(
            f"key {task.key!r} is used by task {kept.id} with other rows or options (level, quota, "
            "app, columns, order, dedupe, quiet hours, templates, delivery, bad rows, batch); "
            "repeat that submit as it was, or choose another key"
        )


def _waiting(task: Task) -> SubmitProgress:
    note = f"another submit of key {task.key!r} holds task {task.id}; waiting for it to let go"
    return SubmitProgress(SubmitStage.PUBLISHING, task_id=task.id, note=note)
