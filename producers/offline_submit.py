"""Submits while the services are away: the whole task goes into a spool, to be sent from there.

The rows are checked as ever. It never reaches for a service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace as with_other
from pathlib import Path

from msgspec.structs import replace

from pushlane.lanes.errors import BadInput, TaskConflict
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.producers.check import CheckedRows, check_rows, fingerprint
from pushlane.producers.chunks import chunks
from pushlane.producers.input import OnProgress, as_file
from pushlane.producers.outbox.folder import Header, SpoolFolder
from pushlane.producers.outbox.store import Batch
from pushlane.producers.request import SubmitRequest, SubmitResult
from pushlane.producers.sources import open_source
from pushlane.producers.task_builder import new_task


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
    task = new_task(request, settings)
    with closing(SpoolFolder(spool)) as folder:
        async with as_file(request, tell) as file:
            source = await asyncio.to_thread(open_source, file.path, file.format, file.name)
            rows = await check_rows(request, file, source, task, tell)
            if request.key:
                task = replace(task, fingerprint=await fingerprint(request, settings, file))
            result = SubmitResult(task, 0, rows.rejected, rows.rejects, spooled=rows.accepted)
            if found := _earlier(folder, task):
                return with_other(result, task=found, resumed=True)
            await asyncio.to_thread(_write, folder, settings.batch, task, rows)
            return result


def _earlier(folder: SpoolFolder, task: Task) -> Task | None:
    """Return the task that the spool already has of the same key."""
    for stream in folder.streams:
        if task.key and stream.task.key == task.key:
            if stream.task.fingerprint != task.fingerprint:
                raise TaskConflict(
                    f"the spool has key {task.key!r} with other rows or options, as task "
                    f"{stream.task.id}; choose another key"
                )
            return stream.task
    return None


def _write(folder: SpoolFolder, batch: int, task: Task, rows: CheckedRows) -> None:
    header = Header(task, batch, is_sealed=True, collapses=rows.encoder.collapses)
    folder.begin(header, _batches(batch, task, rows))


def _batches(size: int, task: Task, rows: CheckedRows) -> Iterator[Batch]:
    encode_row, seq = rows.encoder.for_task(task), 1
    for chunk in chunks(rows.source, rows.encoder.wanted, encode_row, size, lambda _, bad: None):
        yield Batch(seq, chunk)
        seq += len(chunk)
    if rows.file.signature() != rows.signature or seq - 1 != rows.accepted:
        raise BadInput(f"{rows.file.name} changed while it was submitted; submit it again")
