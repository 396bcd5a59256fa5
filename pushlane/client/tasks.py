"""Operations on tasks: make them, follow them, change what they may send, and forget them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from pushlane.backends.ports import TaskQuery, pages
from pushlane.client.connection import Connection, task_word
from pushlane.core.task import Level, Progress, State, Task, now_ms
from pushlane.model import task_changes
from pushlane.model.task_changes import settled
from pushlane.model.times import given_since_ms
from pushlane.producers.forgetting import forget_task
from pushlane.producers.new_times import Moment, given_new_times
from pushlane.producers.replay import ReplayedTask, clone, replay
from pushlane.producers.request import OnProgress, SubmitRequest, SubmitResult
from pushlane.producers.submit import submit
from pushlane.util.conversion import instance, seconds, text, texts, whole, word

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
        return await submit(self._open, self._settings, asked, on_progress)

    async def tasks(
        self,
        states: Sequence[State | str] | str = (),
        *,
        find: str = "",
        app: str = "",
        level: Level | str | None = None,
        limit: int = 0,
    ) -> list[Task]:
        """Return the tasks that fit all that is given, oldest first; all tasks unless it is.

        `find` is a part of the id, key or name. With a `limit` only the newest so many.
        """
        words = [word("state", one, State) for one in texts("states", states)]
        at_level = None if level is None else word("level", level, Level)
        query = TaskQuery(words, text("find", find), text("app", app), at_level)
        most = whole("limit", limit, 0)
        found: list[Task] = []
        async for page in pages(self._open.registry, query):
            found += page
            if most and len(found) >= most:
                break
        return (found[:most] if most else found)[::-1]

    async def task(self, task_id: str) -> Task:
        """Return the task."""
        return await self._open.registry.get(task_word(task_id))

    async def progress(self, task_id: str) -> Progress:
        """Return how many of the task's pushes have ended, and in which way."""
        task = await self.task(task_id)
        [progress] = await self._open.registry.progress([task.id])
        return settled(task, progress)

    async def wait(self, task_id: str, *, timeout_s: float | timedelta | str | None = None) -> Task:
        """Wait until the task is done, cancelled or expired; return it.

        One that is paused, or open for more pushes, may take for ever. Raises TimeoutError when it
        has not ended in that time.
        """
        patience_s = None if timeout_s is None else seconds("timeout_s", timeout_s, 0)
        wait_s, task = _LOOK_FIRST_S, await self.task(task_id)
        try:
            async with asyncio.timeout(patience_s):
                while not task.state.is_terminal:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _LOOK_EVERY_S)
                    task = await self.task(task.id)
        except TimeoutError:
            raise TimeoutError(f"task {task.id} is still {task.state}") from None
        return task

    async def pause(self, task_id: str, reason: str = "") -> Task:
        """Hold the task back; its pushes wait. Raises InvalidChange when it is finished."""
        return await self._open.pause(task_word(task_id), reason)

    async def resume(self, task_id: str) -> Task:
        """Let a paused task go on. Raises InvalidChange when it is not paused."""
        return await self._open.registry.change(task_word(task_id), task_changes.resume)

    async def cancel(self, task_id: str) -> Task:
        """End the task and drop what it has not sent. Raises InvalidChange when it is done."""
        return await self._open.registry.change(task_word(task_id), task_changes.cancel)

    async def promote(self, task_id: str, level: Level | str) -> Task:
        """Move the task and its backlog to another level. Raises InvalidChange when finished."""
        return await self._open.promote(task_word(task_id), level)

    async def demote(self, task_id: str, level: Level | str) -> Task:
        """Move the task and its backlog to a lower level. Raises InvalidChange when finished."""
        return await self._open.registry.change(task_word(task_id), task_changes.demote(level))

    async def set_quota(self, task_id: str, quota: int | str) -> Task:
        """Set how many pushes the task sends in its turn, from now on.

        A task that shares a lane moves to one of its own, at its level; its backlog follows.

        Raises:
            BadInput: the quota is no whole number, or out of range; it is never rounded.
            InvalidChange: the task is finished.
        """
        return await self._open.set_quota(task_word(task_id), quota)

    async def set_stop_if_dead(self, task_id: str, rule: str) -> Task:
        """Pause the task when more of its pushes die than this, like `5%`; `off` never does.

        It is the share of those that end from now on.

        Raises:
            BadInput: there is no such rule.
            InvalidChange: the task is finished.
        """
        return await self._open.set_stop_if_dead(task_word(task_id), rule)

    async def reschedule(
        self,
        task_id: str,
        *,
        not_before_ms: Moment | None = None,
        expires_at_ms: Moment | None = None,
        quiet: str | None = None,
        zone: str | None = None,
    ) -> Task:
        """Change start, expiry and quiet hours of the task from now on; None leaves what it is.

        Each is as in `TaskOptions`: a start of 0 or `now` is at once, an expiry of 0 or `none` is
        never, quiet hours of `none` or an empty text are none. What waits for its old times is
        asked anew within a minute, once a dispatcher runs.

        Raises:
            BadInput: nothing is given, or a time, hours or a zone cannot be.
            InvalidChange: the task is finished.
        """
        times = given_new_times(not_before_ms, expires_at_ms, quiet, zone, now_ms())
        return await self._open.reschedule(task_word(task_id), times)

    async def forget(self, task_id: str) -> None:
        """Remove a task that has ended, with its counts, key, lanes and dead pushes.

        Raises:
            InvalidChange: it has not ended.
            UserError: somebody still reads its lane.
        """
        await forget_task(self._open, await self.task(task_id))

    async def clone(self, task_id: str) -> ReplayedTask:
        """Send all its pushes in a new task. Raises InvalidChange when not all are retained."""
        return await clone(self._open, self._settings, task_word(task_id))

    async def replay(
        self, task_id: str, since_ms: int | datetime | timedelta | str
    ) -> ReplayedTask:
        """Send again, in a new task, the pushes that it has published since then (Unix ms).

        Since when may be a datetime with a zone, too, a timedelta ago, or a text: a duration ago
        like `2h`, or an ISO time. Raises InvalidChange when not all of that is retained, or there
        is none.
        """
        since = given_since_ms("since_ms", since_ms, now_ms())
        return await replay(self._open, self._settings, task_word(task_id), since)
