"""Makes a task of a file's rows: check all, register, limit, open the lane, publish, seal.

Every step can be repeated, so a submit with a key that was cut off is resumed by calling it again:
it publishes the same chunks, and the broker keeps one that it has once. Its limits are set, and it
is paused, before any process may read its lane. It never publishes before
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
from pushlane.core.publish import Publication, chunk_size, refuse_ended
from pushlane.core.task import Task, now_ms
from pushlane.model import task_changes
from pushlane.model.limits import Limit
from pushlane.model.names import submit_lease
from pushlane.producers.check import CheckedRows, checked_rows, refuse_other
from pushlane.producers.limit_changes import limit_at_start
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, Header
from pushlane.producers.parts import Parts, PartsStore, begun
from pushlane.producers.published import announcing, reached, refuse_outdated
from pushlane.producers.request import (
    OnProgress,
    SubmitProgress,
    SubmitRequest,
    SubmitStage,
    Submitted,
)
from pushlane.producers.rows import prefetched
from pushlane.producers.task_builder import (
    new_task,
    progress_of,
    refuse_stopped,
    refuse_unknown_sinks,
)
from pushlane.producers.trial import trial_of
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
) -> Submitted:
    """Submit a task and return it: sealed, unless only its first rows are asked for.

    With a key, the same call after a crash goes on where it stopped, and after success does
    nothing. A service lost in mid-publish is waited for. `sleep` is how waiting is done.

    Raises:
        BadInput: the request or its rows cannot be used, or nobody knows a sink of it; nothing was
            published.
        TaskConflict: the key belongs to other content or to a task that was cancelled or has
            expired, a submit of it is under way, or more of it than `first` may be sent already.
        Unreachable: a service does not answer at the start.
    """
    request = request.complete()
    if request.test_to:
        request = trial_of(request)
    tell = on_progress or (lambda progress: None)
    # refuses a bad option before anything is read
    made = new_task(request, settings, on_own_lane=request.needs_own_lane)
    await refuse_unknown_sinks(backend, settings, made)
    async with checked_rows(request, settings, made, tell) as (task, rows):
        kept = await backend.add(task, settings, rows.accepted)
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

        async def publish() -> Submitted:
            task = await backend.known(kept.id)
            return await _Publishing(backend, settings, request, task, rows, tell, sleep).run()

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
    request: SubmitRequest
    task: Task
    rows: CheckedRows
    tell: OnProgress
    sleep: Sleep
    published: int = 0

    def __post_init__(self) -> None:
        announce = announcing(self.backend, self.rows.encoder.collapses)
        self.publication = Publication(self.backend, self.task, announce=announce)
        self.store = PartsStore(self.backend, self.task)
        accepted, first = self.rows.accepted, self.request.first
        self.is_part = first is not None
        self.end = accepted if first is None else min(first, accepted)
        self.parts = Parts(ends=(self.end,))

    async def run(self) -> Submitted:
        """Publish the rows and return the task sealed, or the first of them and return the task.

        Raises BadInput if the file changed since it was checked: the task is cancelled then;
        TaskConflict if it ended, nobody knows what was published, or it was begun before 0.2.0.
        """
        rows = self.rows
        result = Submitted(self.task, 0, rows.rejected, rows.rejects, accepted=rows.accepted)
        if self.task.total is not None:
            progress = await progress_of(self.backend, self.task)
            return replace(result, already_done=True, progress=progress)
        refuse_ended(self.task)
        refuse_outdated(self.task)
        if not await self._begin():
            return replace(result, part=self.parts.reached)
        result = replace(result, limit=await self._start())
        try:
            await self._publish_all(max(await self._known(), self.parts.reached))
            rows.refuse_changed(self.published + rows.accepted - self.end)
        except BadInput as error:
            raise await self._give_up(error) from error
        result = replace(result, published=self.published - self.parts.reached)
        return await self._end_part(result) if self.is_part else await self._seal(result)

    async def _begin(self) -> bool:
        """Note up to where this goes, where it is one part of several; False if it is there.

        Raises TaskConflict when more than this part may be on the lane already.
        """
        noted = await self.store.read()
        if self.is_part:
            self.parts = begun(self.task, noted, self.end)
        elif noted is not None:
            self.parts = noted.to(self.end)
        if (self.is_part or noted is not None) and self.parts != noted:
            await self.store.write(self.parts)
        return not self.is_part or self.end > self.parts.reached

    async def _start(self) -> Limit | None:
        """Let dispatchers read the lane, once the task is limited and paused as it is asked for.

        Returns what it is limited to, None when that was not asked for.
        """
        asked, limit = self.request.limit, None
        if not asked.is_none:
            limit = await limit_at_start(self.backend, self.task, asked)
        if self.request.paused:
            await self.publication.open_lane()
            await self.backend.hold(self.task.id, task_changes.PAUSED_AT_SUBMIT)
        await self.publication.open()
        return limit

    async def _known(self) -> int:
        """Return up to which seq all is known to be on a lane, 0 if the broker remembers that."""
        kept_ms = round(self.settings.dedup_window_s * 1000)
        is_remembered = self.settings.capabilities.remembers_sources
        is_young = self.task.created_at_ms >= now_ms() - kept_ms
        return 0 if is_remembered or is_young else await self._reached()

    async def _end_part(self, result: Submitted) -> Submitted:
        await self._retried(lambda: self.store.write(Parts(reached=self.end)))
        task = await self._retried(lambda: self.backend.known(self.task.id))
        return replace(result, task=task, part=self.end)

    async def _seal(self, result: Submitted) -> Submitted:
        sealed = await self._retried(lambda: self.publication.seal(self.published))
        await self._retried(self.store.remove)
        return replace(result, task=sealed)

    async def _reached(self) -> int:
        """Return the last seq that an earlier run has published."""
        self._say("the broker may have forgotten this submit: reading its lane")
        stretch = range(1, self.rows.accepted + 1)
        [last] = await self._retried(lambda: reached(self.backend, self.task, [stretch]))
        return last

    async def _publish_all(self, last: int) -> None:
        """Publish the rows chunk by chunk; those up to the seq `last` are on a lane already."""
        size = chunk_size(max(self.settings.batch, self.task.bundle))
        name = f"submit-{self.task.id}"
        async with prefetched(self.rows.chunks(self.task, size)) as coming:
            async for chunk in coming:
                for piece in self.parts.cut(chunk, self.published):
                    known = min(max(0, last - self.published), len(piece))
                    await self._retried(partial(self.publication.publish, piece, name, known))
                    self.published += len(piece)
                self._say()
                if self.published >= self.end and self.is_part:
                    break

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
        total, task_id = self.end, self.task.id
        self.tell(SubmitProgress(SubmitStage.PUBLISHING, self.published, total, task_id, note))


async def submit_offline(
    settings: Settings, request: SubmitRequest, spool: Path, tell: OnProgress
) -> Submitted:
    """Put a task into the spool, whole or not at all, and with a key only once.

    Raises:
        BadInput: the request or its rows cannot be used, or the spool not as a folder.
        TaskConflict: the spool is in use, or has the key with other content.
        StorageFull: the spool has no room for it.
    """
    refuse_spooling(request)
    request = request.complete()
    made = new_task(request, settings)
    with closing(SpoolFolder(spool)) as folder:
        async with checked_rows(request, settings, made, tell) as (task, rows):
            result = Submitted(task, 0, rows.rejected, rows.rejects, spooled=rows.accepted)
            if found := _earlier(folder, task):
                return replace(result, task=found, resumed=True)
            collapses = rows.encoder.collapses
            header = Header(
                task, settings.batch, is_sealed=True, collapses=collapses, added=Added.NO
            )
            batches = _batches(settings.batch, task, rows)
            await asyncio.to_thread(folder.begin, header, batches)
            return result


def refuse_spooling(request: SubmitRequest) -> None:
    """Raise BadInput for what a task in a spool cannot keep to, as it runs once it is sent."""
    asked = {
        "--rate": request.rate_per_s is not None,
        "--in-flight": request.in_flight is not None,
        "--paused": request.paused,
        "--first": request.first is not None,
        "--test-to": bool(request.test_to),
    }
    if names := [name for name, is_asked in asked.items() if is_asked]:
        raise BadInput(
            f"{', '.join(names)} cannot be kept to by way of a spool: what `pushlane spool send` "
            "sends runs at once, whole and without a limit; leave --spool out, or these"
        )


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
