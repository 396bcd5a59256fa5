"""Makes a task of a file's rows: check all, register, open the lane, publish, seal.

Every step can be repeated, so a submit with a key that was cut off is resumed by calling it again:
it publishes the same chunks, and the broker keeps one that it has once. It never publishes before
the lane has its subscription, nor anything of a file with a bad row (unless bad rows are to be
skipped). While the services are away the whole task goes into a spool, to be sent from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pushlane.backends.backend import Backend
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import BadInput
from pushlane.core.publish import Publication, chunk_size, refuse_ended, refuse_outdated
from pushlane.core.task import Task, now_ms
from pushlane.model import task_changes
from pushlane.model.names import submit_lease
from pushlane.producers.check import CheckedRows, checked_rows, refuse_other
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, Header
from pushlane.producers.published import announcing, reached
from pushlane.producers.request import (
    OnProgress,
    SubmitProgress,
    SubmitRequest,
    SubmitResult,
    SubmitStage,
)
from pushlane.producers.rows import prefetched
from pushlane.producers.task_builder import (
    new_task,
    progress_of,
    refuse_stopped,
    refuse_unknown_sinks,
)
from pushlane.settings import Settings
from pushlane.util.retrying import Sleep, until_reachable

Result = TypeVar("Result")


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
        BadInput: the request or its rows cannot be used, or nobody knows a sink of it; nothing was
            published.
        TaskConflict: the key belongs to other content or to a task that was cancelled or has
            expired, or a submit of it is under way.
        Unreachable: a service does not answer at the start.
    """
    request = request.complete()
    tell = on_progress or (lambda progress: None)
    made = new_task(request, settings)  # refuses a bad option before anything is read
    await refuse_unknown_sinks(backend, settings, made)
    async with checked_rows(request, settings, made, tell) as (task, rows):
        kept = await backend.add(task, settings)
        if kept.id != task.id:
            await refuse_stopped(backend, kept)
        refuse_other(task, kept)
        busy = (
            f"a submit of task {kept.id} (key {kept.key!r}) is under way; wait for it to end, then "
            "run this again to see that it is complete"
        )
        note = f"another submit of key {kept.key!r} holds task {kept.id}; waiting for it to let go"
        waiting = SubmitProgress(SubmitStage.PUBLISHING, task_id=kept.id, note=note)
        guard = LeaseGuard(backend.lease, submit_lease(kept.id), busy, sleep)

        async def publish() -> SubmitResult:
            task = await backend.known(kept.id)
            return await _Publishing(backend, settings, task, rows, tell, sleep).run()

        result = await guard.run(publish, lambda: tell(waiting))
    return replace(result, resumed=kept.id != task.id and not result.already_done)


@dataclass(eq=False, repr=False)
class _Publishing:
    """The second pass over the rows of one task: publishes them, then seals it.

    The broker forgets an idle producer in the end, so what it has of a task made so long ago is
    looked for first.
    """

    backend: Backend
    settings: Settings
    task: Task
    rows: CheckedRows
    tell: OnProgress
    sleep: Sleep
    published: int = 0

    def __post_init__(self) -> None:
        announce = announcing(self.backend, self.rows.encoder.collapses)
        self.publication = Publication(self.backend, self.task, announce=announce)

    async def run(self) -> SubmitResult:
        """Publish the rows, and return the task sealed.

        Raises BadInput if the file changed since it was checked: the task is cancelled then;
        TaskConflict if it ended, nobody knows what was published, or it was begun before 0.2.0.
        """
        result = SubmitResult(self.task, 0, self.rows.rejected, self.rows.rejects)
        if self.task.total is not None:
            progress = await progress_of(self.backend, self.task)
            return replace(result, already_done=True, progress=progress)
        refuse_ended(self.task)
        refuse_outdated(self.task)
        await self.publication.open()
        kept_ms = round(self.settings.dedup_window_s * 1000)
        is_remembered = self.settings.capabilities.remembers_sources
        is_young = self.task.created_at_ms >= now_ms() - kept_ms
        last = 0 if is_remembered or is_young else await self._reached()
        try:
            await self._publish_all(last)
            self.rows.refuse_changed(self.published)
        except BadInput as error:
            raise await self._give_up(error) from error
        sealed = await self._retried(lambda: self.publication.seal(self.published))
        return replace(result, task=sealed, published=self.published)

    async def _reached(self) -> int:
        """Return the last seq that an earlier run has published."""
        self._say("the broker may have forgotten this submit: reading its lane")
        stretch = range(1, self.rows.accepted + 1)
        [last] = await self._retried(lambda: reached(self.backend, self.task, [stretch]))
        return last

    async def _publish_all(self, last: int) -> None:
        """Publish the rows chunk by chunk; those up to the seq `last` are on a lane already."""
        size, name = chunk_size(self.settings.batch), f"submit-{self.task.id}"
        async with prefetched(self.rows.chunks(self.task, size)) as coming:
            async for chunk in coming:
                known = min(max(0, last - self.published), len(chunk))
                await self._retried(partial(self.publication.publish, chunk, name, known))
                self.published += len(chunk)
                self._say()

    async def _give_up(self, error: BadInput) -> BadInput:
        task_id = self.task.id
        await self._retried(lambda: self.backend.registry.change(task_id, task_changes.cancel))
        return type(error)(
            f"{error}. Task {task_id} is cancelled; {self.published} of its pushes had been "
            "published. Submit the whole file under a new key"
        )

    async def _retried(self, action: Callable[[], Awaitable[Result]]) -> Result:
        return await until_reachable(action, self._say, self.sleep)

    def _say(self, note: str = "") -> None:
        total, task_id = self.rows.accepted, self.task.id
        self.tell(SubmitProgress(SubmitStage.PUBLISHING, self.published, total, task_id, note))


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
            collapses = rows.encoder.collapses
            header = Header(
                task, settings.batch, is_sealed=True, collapses=collapses, added=Added.NO
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
