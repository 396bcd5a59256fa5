"""Submits rows by operations: a task is made, its pushes go as lines, it is sealed.

Rows are read, checked, rendered and deduplicated where this runs; what is sent is finished pushes.
Where operations are done, at a server or in this process, is the way's to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from pushlane.backends.leases import WORK_TTL_S
from pushlane.core.push import decode_many
from pushlane.core.task import Progress, Task
from pushlane.operations.operation import Operation, Result
from pushlane.operations.receiving import CreateTask, GetTerms, SealTask
from pushlane.operations.shares import GetLimit
from pushlane.operations.submitting import SubmitResult, result_view
from pushlane.operations.task_views import TaskNow, TaskView
from pushlane.operations.tasks import CancelTask, GetTask
from pushlane.producers.check import first_pass
from pushlane.producers.dry_run import DryRun, try_rows
from pushlane.producers.lines import in_requests, line_of
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.producers.second_pass import Begun, SecondPass
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.util.errors import LinesBusy, NotFound

_MOST_COUNTED = 100_000
"""Recipients told apart by a check; takes 10 MB. A process of serve makes several at once."""


class TaskLines(Protocol):
    """The lines of a task; `safe` is the last that is known to be on its lane."""

    safe: int

    async def look(self) -> int:
        """Return which line is safe. Raises LinesBusy, and what `GetSafeLine` does."""

    async def send(self, lines: Sequence[bytes], first: int) -> None:
        """Send lines, of which the first is line `first`. Raises LinesBusy, and refusals."""


class Way(Protocol):
    """A place that does operations and takes lines."""

    async def do(self, operation: Operation[Result], traceparent: str = "") -> Result:
        """Do an operation for a caller at this place in a trace.

        Raises what that raises, and Unreachable without an answer.
        """

    def lines(self, task_id: str) -> TaskLines:
        """Return the lines of a task."""


async def submitted_by(
    way: Way, settings: Settings, request: SubmitRequest, tell: OnProgress
) -> SubmitResult:
    """Submit a request. Raises as `producers.submit.submit` does."""
    async with first_pass(request, settings, tell, partial(_told, way)) as (request, task, rows):
        view = await way.do(created(request, task, rows.accepted), task.traceparent)
        # the pushes of the rows are those of the task that was made
        task = replace(task, id=view.id, created_at_ms=view.created_at_ms, total=view.total)
        sending = _Sending(task, request, rows, tell, asyncio.sleep, way, view)
        done = await sending.run()
        return replace(result_view(done), task=sending.view, resumed=sending.is_resumed)


@dataclass(frozen=True)
class Tried:
    """The result of a dry run. `wanted` would make its task; `existing` has the same key."""

    ran: DryRun
    wanted: CreateTask
    existing: TaskNow | None


async def tried_by(way: Way, settings: Settings, request: SubmitRequest, tell: OnProgress) -> Tried:
    """Check a submit, and return what it would do; nothing is made. Raises as a submit does."""
    told = partial(_told, way)
    ran = await try_rows(request, settings, tell, told, most_counted=_MOST_COUNTED)
    existing = None
    if request.key:
        with suppress(NotFound):
            existing = await way.do(GetTask(task=request.key))
    return Tried(ran, created(request.complete(), ran.task, ran.accepted), existing)


async def _told(way: Way, request: SubmitRequest, task: Task) -> PayloadLimits:
    """Return the limits of the sinks there. Raises what refuses the task there."""
    names = GetTerms.__struct_fields__
    terms = await way.do(GetTerms(**{name: getattr(request, name) for name in names}))
    limits = {one.sink: (one.kind, one.most_bytes) for one in terms.sinks}
    return PayloadLimits(limits, tuple(one.sink for one in terms.sinks if one.silent))


def created(request: SubmitRequest, task: Task, accepted: int) -> CreateTask:
    """Return what makes the task of a request, with so many rows."""
    names = {one.name for one in fields(request)} & {*CreateTask.__struct_fields__}
    given = {name: getattr(request, name) for name in names}
    made = {name: getattr(task, name) for name in ("quiet", "dedupe", "ordered")}
    digest = task.fingerprint if request.key else ""
    asked = {"sinks": request.sinks, "deliver": "at_once", "expects": accepted}
    return CreateTask(**{**given, **made, **asked, "digest": digest})


@dataclass(eq=False, repr=False)
class _Sending(SecondPass):
    """Sends the pushes of a task as lines. `view` is the task as it is shown there."""

    way: Way
    view: TaskView
    is_resumed: bool = False

    async def progress(self) -> Progress:
        now = await self.way.do(GetTask(task=self.task.id))
        return Progress(now.id, now.delivered, now.dead, now.expired, now.dropped)

    async def begin(self) -> Begun:
        self._lines = self.way.lines(self.task.id)
        self.sent = await self.retried(self._look)
        self.is_resumed = self.sent > 0
        if self.request.limit.is_none:
            return Begun(self.sent)
        wanted = partial(self.way.do, GetLimit(subject=f"task/{self.task.id}"))
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
        yield partial(self._send, bodies, before)

    async def _send(self, bodies: list[bytes], before: int) -> None:
        """Send what is not safe of the pushes behind the seq `before`. Can be repeated."""
        new = bodies[max(0, self.sent - before) :]
        first = before + len(bodies) - len(new) + 1
        for lines in await asyncio.to_thread(self._written, new):
            try:
                await self._lines.send(lines, first)
            finally:
                self.sent = self._lines.safe
            first += len(lines)

    def _written(self, bodies: list[bytes]) -> list[list[bytes]]:
        pushes = decode_many(bodies) if bodies else []
        return [*in_requests(line_of(push, self.task) for push in pushes)]

    async def close(self) -> Task:
        if not self.is_part:
            await self.way.do(SealTask(task=self.task.id, total=self.end))
        now = await self.way.do(GetTask(task=self.task.id))
        self.view = TaskView(**{name: getattr(now, name) for name in TaskView.__struct_fields__})
        return self.task

    async def cancel(self) -> None:
        await self.way.do(CancelTask(task=self.task.id))
