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

from pushlane.backends.backend import Backend
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import BadInput
from pushlane.core.publish import Publication, chunk_size, refuse_ended
from pushlane.core.task import Progress, Task, now_ms
from pushlane.model import task_changes
from pushlane.model.limits import Limit
from pushlane.model.names import submit_lease
from pushlane.producers.check import CheckedRows, first_pass, refuse_other
from pushlane.producers.limit_changes import limit_at_start
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, Header
from pushlane.producers.parts import Parts, PartsStore, begun
from pushlane.producers.published import announcing, reached, refuse_outdated
from pushlane.producers.request import OnProgress, SubmitRequest, Submitted
from pushlane.producers.second_pass import Begun, SecondPass
from pushlane.producers.task_builder import known_limits, progress_of, refuse_stopped
from pushlane.settings import Settings
from pushlane.util.retrying import Sleep


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
    tell = on_progress or (lambda progress: None)
    limits_of = partial(known_limits, backend, settings)
    async with first_pass(request, settings, tell, limits_of) as (request, task, rows):
        kept = await backend.add(task, settings, rows.accepted)
        if kept.id != task.id:
            await refuse_stopped(backend, kept)
        refuse_other(task, kept)
        busy = (
            f"a submit of task {kept.id} (key {kept.key!r}) is under way; wait for it to end, then "
            "run this again to see that it is complete"
        )
        note = f"another submit of key {kept.key!r} holds task {kept.id}; waiting for it to let go"
        guard = LeaseGuard(backend.lease, submit_lease(kept.id), busy, sleep)
        publishing = _Publishing(kept, request, rows, tell, sleep, backend, settings)

        async def publish() -> Submitted:
            publishing.task = await backend.known(kept.id)
            return await publishing.run()

        result = await guard.run(publish, lambda: publishing.say(note))
    return replace(result, resumed=kept.id != task.id and not result.already_done)


@dataclass(eq=False, repr=False)
class _Publishing(SecondPass):
    """Publishes the pushes of a task on the lanes of a backend.

    The broker forgets an idle producer in the end, so what it has of a task made so long ago is
    looked for first.
    """

    backend: Backend
    settings: Settings

    async def progress(self) -> Progress:
        return await progress_of(self.backend, self.task)

    async def begin(self) -> Begun:
        """Raises TaskConflict if the task ended, nobody knows what was published, it was begun
        before 0.2.0, or more than this part may be on the lane already.
        """
        refuse_ended(self.task)
        refuse_outdated(self.task)
        self.size = chunk_size(max(self.settings.batch, self.task.bundle))
        announce = announcing(self.backend, self.rows.encoder.collapses)
        self._publication = Publication(self.backend, self.task, announce=announce)
        self._store = PartsStore(self.backend, self.task)
        self._parts = await self._noted()
        before = self._parts.reached
        if self.is_part and self.end <= before:
            return Begun(before)
        limit = await self._start()
        self._known = max(await self._reached(), before)
        return Begun(before, limit)

    async def _noted(self) -> Parts:
        """Return up to where this goes, noted where it is one part of several."""
        noted = await self._store.read()
        if self.is_part:
            parts = begun(self.task, noted, self.end)
        elif noted is not None:
            parts = noted.to(self.end)
        else:
            return Parts(ends=(self.end,))
        if parts != noted:
            await self._store.write(parts)
        return parts

    async def _start(self) -> Limit | None:
        """Let dispatchers read the lane, once the task is limited and paused as it is asked for.

        Returns what it is limited to, None when that was not asked for.
        """
        asked, limit = self.request.limit, None
        if not asked.is_none:
            limit = await limit_at_start(self.backend, self.task, asked)
        if self.request.paused:
            await self._publication.open_lane()
            await self.backend.hold(self.task.id, task_changes.PAUSED_AT_SUBMIT)
        await self._publication.open()
        return limit

    async def _reached(self) -> int:
        """Return up to which seq all is known to be on a lane, 0 if the broker remembers that."""
        kept_ms = round(self.settings.dedup_window_s * 1000)
        is_young = self.task.created_at_ms >= now_ms() - kept_ms
        if self.settings.capabilities.remembers_sources or is_young:
            return 0
        self.say("the broker may have forgotten this submit: reading its lane")
        stretch = range(1, self.rows.accepted + 1)
        [last] = await self.retried(lambda: reached(self.backend, self.task, [stretch]))
        return last

    def steps(self, bodies: list[bytes], before: int) -> Iterator[Callable[[], Awaitable[None]]]:
        for piece in self._parts.cut(bodies, before):
            yield partial(self._publish, piece)

    async def _publish(self, piece: list[bytes]) -> None:
        known = min(max(0, self._known - self.sent), len(piece))
        await self._publication.publish(piece, f"submit-{self.task.id}", known)
        self.sent += len(piece)

    async def close(self) -> Task:
        if self.is_part:
            await self._store.write(Parts(reached=self.end))
            return await self.backend.known(self.task.id)
        sealed = await self._publication.seal(self.end)
        await self._store.remove()
        return sealed

    async def cancel(self) -> None:
        await self.backend.registry.change(self.task.id, task_changes.cancel)


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
    with closing(SpoolFolder(spool)) as folder:
        async with first_pass(request, settings, tell) as (_, task, rows):
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
            f"{', '.join(names)} cannot be used with --spool: what `pushlane spool send` sends "
            "runs at once, whole and without a limit; leave --spool out, or these"
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
