"""Operations on tasks: make them, follow them, change what they may send, and forget them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from pushlane.client.connection import Connection
from pushlane.client.submitting import submitted
from pushlane.core.task import Level, State, now_ms
from pushlane.operations.finding import FindTasks, FoundPage
from pushlane.operations.replays import CloneTask, ReplayedView, ReplayTask
from pushlane.operations.submitting import SubmitResult
from pushlane.operations.task_views import ChangedTask, TaskNow
from pushlane.operations.tasks import (
    ANY_STATE,
    CancelTask,
    DemoteTask,
    ForgetTask,
    GetTask,
    ListTasks,
    PauseTask,
    PromoteTask,
    RescheduleTask,
    ResumeTask,
    SetQuota,
    SetStopIfDead,
)
from pushlane.operations.unreadable import (
    GetUnreadable,
    ListUnreadable,
    RemovedTask,
    RemoveUnreadable,
    UnreadableTask,
)
from pushlane.producers.new_times import Moment, given_new_times
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.util.conversion import instance, seconds

_LOOK_FIRST_S = 0.02
_LOOK_EVERY_S = 1.0


class TaskOperations(Connection):
    """What can be done with tasks. Each is named by its id, key or name."""

    async def submit(
        self, request: SubmitRequest, on_progress: OnProgress | None = None
    ) -> SubmitResult:
        """Make a task of a file's rows, or of rows in memory. Idempotent with a key.

        Raises:
            BadInput: the request or a row cannot be used; nothing was published.
            TaskConflict: the key belongs to other content, or is being submitted now.
        """
        asked = instance("request", request, SubmitRequest)
        return await submitted(self, asked, on_progress)

    async def tasks(
        self,
        states: Sequence[State | str] | str = ANY_STATE,
        *,
        find: str = "",
        app: str = "",
        level: Level | str | None = None,
        limit: int = 0,
    ) -> list[TaskNow]:
        """Return the tasks that fit all that is given, oldest first; all tasks unless it is.

        `find` is a part of the id, key or name. With a `limit` only the newest so many.
        """
        wanted = ListTasks.made(
            state=states or ANY_STATE, find=find, app=app, level=level, limit=limit
        )
        return await self.do(wanted)

    async def find_tasks(
        self,
        states: Sequence[State | str] | str = (),
        *,
        find: str = "",
        app: str = "",
        level: Level | str | None = None,
        sink: str = "",
        sort: str = "-created",
        limit: int = 0,
    ) -> FoundPage:
        """Return the tasks that fit all that is given, in an order, and how many there are.

        Those that are not finished unless states are given. `sort` is like `rate`, or `-rate` for
        the largest first. With a `limit` the first so many. It is quick among very many.
        """
        wanted = FindTasks.made(
            state=states, find=find, app=app, level=level, sink=sink, sort=sort, limit=limit
        )
        return await self.do(wanted)

    async def task(self, task_id: str) -> TaskNow:
        """Return the task, with how many of its pushes have ended, and in which way."""
        return await self.do(GetTask.made(task=task_id))

    async def wait(
        self, task_id: str, *, timeout_s: float | timedelta | str | None = None
    ) -> TaskNow:
        """Wait until the task is done, cancelled or expired; return it.

        One that is paused, or open for more pushes, may take for ever. Raises TimeoutError when it
        has not ended in that time.
        """
        patience_s = None if timeout_s is None else seconds("timeout_s", timeout_s, 0)
        wait_s, task = _LOOK_FIRST_S, await self.task(task_id)
        try:
            async with asyncio.timeout(patience_s):
                while not task.has_ended:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _LOOK_EVERY_S)
                    task = await self.task(task.id)
        except TimeoutError:
            raise TimeoutError(f"task {task.id} is still {task.state}") from None
        return task

    async def pause(self, task_id: str, reason: str = "") -> ChangedTask:
        """Hold the task back; its pushes wait. Raises InvalidChange when it is finished."""
        return await self.do(PauseTask.made(task=task_id, reason=reason))

    async def resume(self, task_id: str) -> ChangedTask:
        """Let a paused task go on. Raises InvalidChange when it is not paused."""
        return await self.do(ResumeTask.made(task=task_id))

    async def cancel(self, task_id: str) -> ChangedTask:
        """End the task and drop what it has not sent. Raises InvalidChange when it is done."""
        return await self.do(CancelTask.made(task=task_id))

    async def promote(self, task_id: str, level: Level | str | None = None) -> ChangedTask:
        """Move the task and its backlog to another level, one up unless it is given.

        Raises InvalidChange when it is finished.
        """
        return await self.do(PromoteTask.made(task=task_id, level=level))

    async def demote(self, task_id: str, level: Level | str | None = None) -> ChangedTask:
        """Move the task and its backlog to a lower level, one down unless it is given.

        Raises InvalidChange when it is finished.
        """
        return await self.do(DemoteTask.made(task=task_id, level=level))

    async def set_quota(self, task_id: str, quota: int | str) -> ChangedTask:
        """Set how many pushes the task sends in its turn, from now on.

        A task that shares a lane moves to one of its own, at its level; its backlog follows.

        Raises:
            BadInput: the quota is no whole number, or out of range; it is never rounded.
            InvalidChange: the task is finished.
        """
        return await self.do(SetQuota.made(task=task_id, quota=quota))

    async def set_stop_if_dead(self, task_id: str, rule: str) -> ChangedTask:
        """Pause the task when more of its pushes die than this, like `5%`; `off` never does.

        It is the share of those that end from now on.

        Raises:
            BadInput: there is no such rule.
            InvalidChange: the task is finished.
        """
        return await self.do(SetStopIfDead.made(task=task_id, rule=rule))

    async def reschedule(
        self,
        task_id: str,
        *,
        not_before_ms: Moment | None = None,
        expires_at_ms: Moment | None = None,
        quiet: str | None = None,
        zone: str | None = None,
    ) -> ChangedTask:
        """Change start, expiry and quiet hours of the task from now on; None leaves what it is.

        Each is as in `TaskOptions`: a start of 0 or `now` is at once, an expiry of 0 or `none` is
        never, quiet hours of `none` or an empty text are none. Pushes that wait for its old times
        follow within a minute, once a dispatcher runs.

        Raises:
            BadInput: nothing is given, or a time, hours or a zone cannot be.
            InvalidChange: the task is finished.
        """
        times = given_new_times(not_before_ms, expires_at_ms, quiet, zone, now_ms())
        return await self.do(RescheduleTask.to(task_id, times))

    async def forget(self, task_id: str) -> None:
        """Remove a task that has ended, with its counts, key, lanes and dead pushes.

        Raises:
            InvalidChange: it has not ended.
            UserError: somebody still reads its lane.
        """
        await self.do(ForgetTask.made(task=task_id))

    async def unreadable_tasks(self) -> list[UnreadableTask]:
        """Return the tasks that cannot be read, by id: what is wrong with each, and what to do."""
        return await self.do(ListUnreadable())

    async def unreadable(self, task_id: str) -> UnreadableTask:
        """Say what is wrong with a task that cannot be read. Raises InvalidChange for another."""
        return await self.do(GetUnreadable.made(task=task_id))

    async def remove_unreadable(self, task_id: str) -> RemovedTask:
        """Remove a task that cannot be read, with all that is its own; nothing more is sent.

        Raises InvalidChange for one that can be read, and TaskConflict while a process of a newer
        version lives.
        """
        return await self.do(RemoveUnreadable.made(task=task_id))

    async def clone(self, task_id: str) -> ReplayedView:
        """Send all its pushes in a new task. Raises InvalidChange when not all are retained."""
        return await self.do(CloneTask.made(task=task_id))

    async def replay(
        self, task_id: str, since_ms: int | datetime | timedelta | str
    ) -> ReplayedView:
        """Send again, in a new task, the pushes that it has published since then (Unix ms).

        The start may be a datetime with a zone, too, a timedelta ago, or a text: a duration ago
        like `2h`, or an ISO time. Raises InvalidChange when not all of that is retained, or there
        is none.
        """
        return await self.do(ReplayTask.made(task=task_id, since_ms=since_ms))
