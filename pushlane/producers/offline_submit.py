"""Submits while the services are away: the whole task goes into a spool, to be sent from there.

The rows are checked as ever. It never reaches for a service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pushlane.core.task import Task
from pushlane.producers.check import CheckedRows, checked_rows, refuse_other
from pushlane.producers.input import OnProgress
from pushlane.producers.outbox.folder import SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, Header
from pushlane.producers.request import SubmitRequest, SubmitResult
from pushlane.producers.task_builder import new_task
from pushlane.settings import Settings


async def submit_offline(
    settings: Settings, request: SubmitRequest, spool: Path, tell: OnProgress
) -> SubmitResult:
    """Put a task into the spool, whole or not at all, and with a key only once.

    Raises:
        BadInput: the request or its rows cannot be used, or the spool not as a folder.
        TaskConflict: the spool is in use, or has the key with other content.
        StorageFull: the spool has no room for it.
    """
    request = request.complete()
    made = new_task(request, settings)
    with closing(SpoolFolder(spool)) as folder:
        async with checked_rows(request, settings, made, tell) as (task, rows):
            result = SubmitResult(task, 0, rows.rejected, rows.rejects, spooled=rows.accepted)
            if found := _earlier(folder, task):
                return replace(result, task=found, resumed=True)
            header = Header(
                task,
                settings.batch,
                is_sealed=True,
                collapses=rows.encoder.collapses,
                added=Added.NO,
            )
            batches = _batches(settings.batch, task, rows)
            await asyncio.to_thread(folder.begin, header, batches)
            return result


def _earlier(folder: SpoolFolder, task: Task) -> Task | None:
    """Return the task that the spool already has of the same key."""
    for spool in folder.spools:
        earlier = spool.header.task
        if task.key and earlier.key == task.key:
            refuse_other(task, earlier)
            return earlier
    return None


def _batches(size: int, task: Task, rows: CheckedRows) -> Iterator[Batch]:
    seq = 1
    for chunk in rows.chunks(task, size):
        yield Batch(seq, chunk)
        seq += len(chunk)
    rows.refuse_changed(seq - 1, "; submit it again")
