"""Submits rows for a client: on its backend, or through its server.

Through a server rows are read, checked, rendered and deduplicated here; what is sent is finished
pushes, as lines.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from pushlane.client.connection import Connection
from pushlane.client.lines import Lines, in_requests, line_of
from pushlane.client.remote import Remote
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.push import decode_many
from pushlane.core.task import Progress, Task
from pushlane.model.limits import Limit
from pushlane.operations.receiving import CreateTask, SealTask
from pushlane.operations.shares import GetLimit
from pushlane.operations.submitting import SubmitResult, result_view
from pushlane.operations.task_views import TaskView
from pushlane.operations.tasks import CancelTask, GetTask
from pushlane.producers.check import CheckedRows, checked_rows
from pushlane.producers.request import OnProgress, SubmitProgress, SubmitRequest, SubmitStage
from pushlane.producers.rows import prefetched
from pushlane.producers.submit import submit
from pushlane.producers.task_builder import new_task
from pushlane.producers.trial import trial_of
from pushlane.settings import Settings
from pushlane.util.retrying import until_reachable

_LINES = 4_096


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
    request = request.complete()
    if request.test_to:
        request = trial_of(request)
    made = new_task(request, settings, on_own_lane=True)
    async with checked_rows(request, settings, made, tell) as (task, rows):
        view = await remote.do(_created(request, task, rows))
        if view.total is not None:
            now = await remote.do(GetTask(task=view.id))
            counts = Progress(view.id, now.delivered, now.dead, now.expired, now.dropped)
            return _result(view, rows, already_done=True, progress=counts)
        return await _Sending(remote, request, view, task, rows, tell).run()


def _created(request: SubmitRequest, task: Task, rows: CheckedRows) -> CreateTask:
    """Return what makes the task of a request at the server."""
    return CreateTask(
        level=request.level,
        app=request.app,
        name=request.name,
        key=request.key,
        quota=request.quota,
        sinks=request.sinks,
        max_attempts=request.max_attempts,
        delivery=request.delivery,
        on_unknown=request.on_unknown,
        not_before_ms=request.not_before_ms,
        expires_at_ms=request.expires_at_ms,
        quiet=task.quiet,
        zone=request.zone,
        dedupe=task.dedupe,
        retention_s=request.retention_s,
        stop_if_dead=request.stop_if_dead,
        rate_per_s=request.rate_per_s,
        in_flight=request.in_flight,
        deliver="at_once",
        paused=request.paused,
        ordered=task.ordered,
        expects=rows.accepted,
        digest=task.fingerprint if request.key else "",
    )


def _result(view: TaskView, rows: CheckedRows, published: int = 0, **more: Any) -> SubmitResult:
    plain = TaskView(**{name: getattr(view, name) for name in TaskView.__struct_fields__})
    return SubmitResult(
        task_id=view.id,
        task=plain,
        published=published,
        rejected=rows.rejected,
        rejects=None if rows.rejects is None else str(rows.rejects),
        accepted=rows.accepted,
        **more,
    )


@dataclass(eq=False, repr=False)
class _Sending:
    """The second pass over the rows of one task: sends them as lines, then seals it."""

    remote: Remote
    request: SubmitRequest
    view: TaskView
    task: Task
    rows: CheckedRows
    tell: OnProgress

    def __post_init__(self) -> None:
        accepted, first = self.rows.accepted, self.request.first
        self.end = accepted if first is None else min(first, accepted)
        self.lines = Lines(self.remote, self.view.id)

    async def run(self) -> SubmitResult:
        """Send what is not safe yet, and return the task: sealed, unless `first` asks for less.

        Raises BadInput for a row that the server refuses, or a file that has changed since it was
        checked: the task is cancelled then.
        """
        was_safe = await self._retried(self.lines.look)
        published = max(0, self.end - was_safe)
        shown = partial(_result, rows=self.rows, published=published, limit=await self._limit())
        try:
            read = await self._send_all()
            self.rows.refuse_changed(read + self.rows.accepted - self.end)
        except BadInput as error:
            raise await self._give_up(error) from error
        if self.request.first is not None:
            view = await self._retried(partial(self.remote.do, GetTask(task=self.view.id)))
            return shown(view, part=max(self.end, self.lines.safe))
        seal = SealTask(task=self.view.id, total=self.end)
        await self._retried(partial(self.remote.do, seal))
        view = await self._retried(partial(self.remote.do, GetTask(task=self.view.id)))
        return shown(view, resumed=bool(was_safe))

    async def _limit(self) -> Limit | None:
        """Return what the task is limited to, None when that was not asked for."""
        if self.request.limit.is_none:
            return None
        wanted = GetLimit(subject=f"task/{self.view.id}")
        found: Limit = (await self._retried(partial(self.remote.do, wanted))).limit
        return found

    async def _send_all(self) -> int:
        """Send the rows up to the end; return how many of them there were to read."""
        read = 0
        # the pushes of the rows are those of the task that the server has made
        task = replace(self.task, id=self.view.id, created_at_ms=self.view.created_at_ms)
        async with prefetched(self.rows.chunks(task, _LINES)) as coming:
            async for chunk in coming:
                some = chunk[: self.end - read]
                new = some[max(0, self.lines.safe - read) :]
                first = read + len(some) - len(new) + 1
                pushes = decode_many(new) if new else []
                for lines in in_requests(line_of(push, task) for push in pushes):
                    await self._retried(partial(self.lines.send, lines, first))
                    first += len(lines)
                read += len(some)
                self._say()
                if read >= self.end:
                    break
        return read

    async def _give_up(self, error: BadInput) -> PushlaneError:
        await self._retried(partial(self.remote.do, CancelTask(task=self.view.id)))
        return type(error)(
            f"{error}. Task {self.view.id} is cancelled; {self.lines.safe} of its pushes had been "
            "published. Submit the whole file under a new key"
        )

    async def _retried(self, action: Any) -> Any:
        return await until_reachable(action, self._say, asyncio.sleep)

    def _say(self, note: str = "") -> None:
        sent = min(self.lines.safe, self.end)
        self.tell(SubmitProgress(SubmitStage.PUBLISHING, sent, self.end, self.view.id, note))
