"""Submits rows for a client: on its backend, or through its server.

Through a server rows are read, checked, rendered and deduplicated here; what is sent is finished
pushes, as lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial

from msgspec.structs import replace

from pushlane.backends.leases import WORK_TTL_S
from pushlane.client.connection import Connection
from pushlane.client.lines import Lines, LinesBusy, in_requests, line_of
from pushlane.client.remote import Remote
from pushlane.core.push import decode_many
from pushlane.core.task import Progress, Task
from pushlane.operations.receiving import CreateTask, GetTerms, SealTask
from pushlane.operations.shares import GetLimit
from pushlane.operations.submitting import SubmitResult, result_view
from pushlane.operations.task_views import TaskView
from pushlane.operations.tasks import CancelTask, GetTask
from pushlane.producers.check import CheckedRows, first_pass
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.producers.second_pass import Begun, SecondPass
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits


async def submitted(
    client: Connection, request: SubmitRequest, tell: OnProgress | None = None
) -> SubmitResult:
    """Submit a request. Raises as `producers.submit.submit` does."""
    if client.remote is None:
        return result_view(await submit(client.backend, client.settings, request, tell))
    return await _through(client.remote, client.settings, request, tell or (lambda progress: None))


async def _through(
    remote: Remote, settings: Settings, request: SubmitRequest, tell: OnProgress
) -> SubmitResult:
    async with first_pass(request, settings, tell, partial(_told, remote)) as (request, task, rows):
        view = await remote.do(_created(request, task, rows))
        # the pushes of the rows are those of the task that the server has made
        task = replace(task, id=view.id, created_at_ms=view.created_at_ms, total=view.total)
        sending = _Sending(task, request, rows, tell, asyncio.sleep, remote, view)
        done = await sending.run()
        return replace(result_view(done), task=sending.view, resumed=sending.is_resumed)


async def _told(remote: Remote, request: SubmitRequest, task: Task) -> PayloadLimits:
    """Return the limits of the server's sinks. Raises what refuses the task there."""
    names = GetTerms.__struct_fields__
    terms = await remote.do(GetTerms(**{name: getattr(request, name) for name in names}))
    limits = {one.sink: (one.kind, one.most_bytes) for one in terms.sinks}
    return PayloadLimits(limits, tuple(one.sink for one in terms.sinks if one.silent))


def _created(request: SubmitRequest, task: Task, rows: CheckedRows) -> CreateTask:
    """Return what makes the task of a request at the server."""
    names = {one.name for one in fields(request)} & {*CreateTask.__struct_fields__}
    given = {name: getattr(request, name) for name in names}
    made = {name: getattr(task, name) for name in ("quiet", "dedupe", "ordered")}
    digest = task.fingerprint if request.key else ""
    asked = {"sinks": request.sinks, "deliver": "at_once", "expects": rows.accepted}
    return CreateTask(**{**given, **made, **asked, "digest": digest})


@dataclass(eq=False, repr=False)
class _Sending(SecondPass):
    """Sends the pushes of a task to a server as lines. `view` is the task as that shows it."""

    remote: Remote
    view: TaskView
    is_resumed: bool = False

    async def progress(self) -> Progress:
        now = await self.remote.do(GetTask(task=self.task.id))
        return Progress(now.id, now.delivered, now.dead, now.expired, now.dropped)

    async def begin(self) -> Begun:
        self._lines = Lines(self.remote, self.task.id)
        self.sent = await self.retried(self._look)
        self.is_resumed = self.sent > 0
        if self.request.limit.is_none:
            return Begun(self.sent)
        wanted = partial(self.remote.do, GetLimit(subject=f"task/{self.task.id}"))
        return Begun(self.sent, (await self.retried(wanted)).limit)

    async def _look(self) -> int:
        """Return the safe line. Who was killed with lines under way is outlasted, as a lease is."""
        waited_s = 0.0
        while True:
            try:
                return await self._lines.look()
            except LinesBusy:
                if waited_s > WORK_TTL_S:
                    raise
                if not waited_s:
                    task = f"task {self.task.id} (key {self.task.key!r})"
                    self.say(f"another submit of {task} is under way; waiting for it to let go")
                await self.sleep(WORK_TTL_S / 5)
                waited_s += WORK_TTL_S / 5

    def steps(self, bodies: list[bytes], before: int) -> Iterator[Callable[[], Awaitable[None]]]:
        new = bodies[max(0, self.sent - before) :]
        first = before + len(bodies) - len(new) + 1
        pushes = decode_many(new) if new else []
        for lines in in_requests(line_of(push, self.task) for push in pushes):
            yield partial(self._send, lines, first)
            first += len(lines)

    async def _send(self, lines: Sequence[bytes], first: int) -> None:
        try:
            await self._lines.send(lines, first)
        finally:
            self.sent = self._lines.safe

    async def close(self) -> Task:
        if not self.is_part:
            await self.remote.do(SealTask(task=self.task.id, total=self.end))
        now = await self.remote.do(GetTask(task=self.task.id))
        self.view = TaskView(**{name: getattr(now, name) for name in TaskView.__struct_fields__})
        return self.task

    async def cancel(self) -> None:
        await self.remote.do(CancelTask(task=self.task.id))
