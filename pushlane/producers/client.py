"""The client by which an application submits tasks, looks at them and changes them.

A thin face over the backend for one event loop. It never delivers: that is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from pushlane.backends.backend import Backend, Connect, connect
from pushlane.backends.ports import listed
from pushlane.core.errors import PushlaneError
from pushlane.core.task import MAX_WEIGHT, Level, Progress, State, Task, Weights, now_ms
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Limits, Subject, read_limits, set_app_share
from pushlane.model.presence import Process
from pushlane.model.task_changes import settled
from pushlane.model.times import given_since_ms
from pushlane.producers.device_events import PushEvent, record_events
from pushlane.producers.limit_changes import set_limit
from pushlane.producers.new_times import Moment, given_new_times
from pushlane.producers.replay import ReplayedTask, clone, replay
from pushlane.producers.request import OnProgress, SubmitRequest, SubmitResult
from pushlane.producers.submit import submit
from pushlane.producers.suppress import register_address
from pushlane.settings import Settings, load
from pushlane.util.conversion import instance, text, texts, whole, word


class Client:
    """A connection to a backend, open while it is entered: `async with Client() as client: ...`.

    Settings are those of `PUSHLANE_*` and `pushlane.toml` unless given. Every method raises
    `Unreachable` when a service does not answer, `UnknownTask` for an id that is no task's, and
    `BadInput` for a value that cannot be. What has just one meaning is taken: `"3"` for a quota of
    3, `HIGH` for a level, a datetime or a text like `2h` for a time. A test may give it another
    way to a backend, like `MemoryBackend().connect`.
    """

    def __init__(self, settings: Settings | None = None, *, connect: Connect = connect) -> None:
        self._settings = load() if settings is None else instance("settings", settings, Settings)
        self._connect = connect
        self._exits = AsyncExitStack()
        self._backend: Backend | None = None

    async def __aenter__(self) -> Client:
        self._backend = await self._exits.enter_async_context(self._connect(self._settings))
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._backend = None
        await self._exits.__aexit__(*error)

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

    async def tasks(self, states: Sequence[State | str] | str = ()) -> list[Task]:
        """Return the tasks in these states (all when none is named), oldest first."""
        words = texts("states", states)
        return await listed(self._open.registry, [word("state", one, State) for one in words])

    async def task(self, task_id: str) -> Task:
        """Return the task of this id, key or name."""
        return await self._open.registry.get(_id(task_id))

    async def progress(self, task_id: str) -> Progress:
        """Return how many of the task's pushes have ended, and in which way."""
        task = await self.task(task_id)
        [progress] = await self._open.registry.progress([task.id])
        return settled(task, progress)

    async def set_quota(self, task_id: str, quota: int | str) -> Task:
        """Set how many pushes the task sends in its turn, from now on.

        A task that shares a lane moves to one of its own, at its level; its backlog follows.

        Raises:
            BadInput: the quota is no whole number, or out of range; it is never rounded.
            InvalidChange: the task is finished.
        """
        return await self._open.set_quota(_id(task_id), quota)

    async def set_app_quota(
        self, app: str, quota: int | str | None = None, *, high_part: float | str | None = None
    ) -> Limit:
        """Set how many pushes an app sends in its turn within a level, from now on.

        `high_part` is the part of the high level that it may have at most, as long as another app
        or level has something to send. `*` is every app that has no such limit of its own. What is
        None stays as it is. Returns all limits of the app. Raises BadInput when the app has no
        name, or a value is out of range.
        """
        documents = self._open.documents
        return await set_app_share(documents, app, quota=quota, high_part=high_part)

    async def weights(self) -> Weights:
        """Return the weights by which the levels share the sink."""
        return await self._open.registry.weights()

    async def set_levels(self, weights: Weights | str) -> None:
        """Share the sink like this from now on: `6:3:1`. Raises BadInput for other texts."""
        if isinstance(weights, Weights):
            each = weights.by_level().items()
            parts = (whole(f"weight of {level}", one, 0, MAX_WEIGHT) for level, one in each)
            given = ":".join(map(str, parts))
        else:
            given = text("levels", weights)
        await self._open.registry.set_weights(Weights.parse(given))

    async def limits(self) -> Limits:
        """Return all limits that are set, by their subject."""
        return await read_limits(self._open.documents)

    async def set_limit(self, subject: str | Subject, **changes: Any) -> Limit:
        """Change limits of a subject like `app/shop`, by the fields of `Limit`; None takes one off.

        Those that are not named stay. Every dispatcher keeps to them within a second. Returns all
        that the subject has now. Raises BadInput when there is no such kind of subject, no such
        limit, or it cannot be so.
        """
        return await set_limit(self._open, subject, changes)

    async def pause(self, task_id: str, reason: str = "") -> Task:
        """Hold the task back; its pushes wait. Raises InvalidChange when it is finished."""
        return await self._open.pause(_id(task_id), reason)

    async def resume(self, task_id: str) -> Task:
        """Let a paused task go on. Raises InvalidChange when it is not paused."""
        return await self._open.registry.change(_id(task_id), task_changes.resume)

    async def set_stop_if_dead(self, task_id: str, rule: str) -> Task:
        """Pause the task when more of its pushes die than this, like `5%`; `off` never does.

        It is the share of those that end from now on.

        Raises:
            BadInput: there is no such rule.
            InvalidChange: the task is finished.
        """
        return await self._open.set_stop_if_dead(_id(task_id), rule)

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
        return await self._open.reschedule(_id(task_id), times)

    async def cancel(self, task_id: str) -> Task:
        """End the task and drop what it has not sent. Raises InvalidChange when it is done."""
        return await self._open.registry.change(_id(task_id), task_changes.cancel)

    async def promote(self, task_id: str, level: Level | str) -> Task:
        """Move the task and its backlog to another level. Raises InvalidChange when finished."""
        return await self._open.promote(_id(task_id), level)

    async def demote(self, task_id: str, level: Level | str) -> Task:
        """Move the task and its backlog to a lower level. Raises InvalidChange when finished."""
        return await self._open.registry.change(_id(task_id), task_changes.demote(level))

    async def processes(self) -> list[Process]:
        """Return what is known of the live dispatchers, in the order of their starts."""
        return await self._open.presence.list()

    async def clone(self, task_id: str) -> ReplayedTask:
        """Send all its pushes in a new task. Raises InvalidChange when not all are retained."""
        return await clone(self._open, self._settings, _id(task_id))

    async def replay(self, task_id: str, since_ms: int | datetime | str) -> ReplayedTask:
        """Send again, in a new task, the pushes that it has published since then (Unix ms).

        Since when may be a datetime, too, or a text: a duration ago like `2h`, or an ISO time.
        Raises InvalidChange when not all of that is retained, or there is none.
        """
        since = given_since_ms("since_ms", since_ms, now_ms())
        return await replay(self._open, self._settings, _id(task_id), since)

    async def record_events(self, events: Iterable[PushEvent]) -> int:
        """Add what devices report to receipts; return how many events. Each counts once.

        Raises:
            UnknownTask: no task of an event's id is kept. Those before it may be recorded.
            BadInput: an event's task has no such push, or receipts are off.
        """
        return await record_events(self._open, self._settings, events)

    async def register_address(self, sink: str, address: str) -> bool:
        """Let an address that an app has registered anew be sent to at this sink again.

        Call it when a device tells its token: an answer about an earlier life of the token, which
        may come late, then changes nothing. Returns whether it was dead or suppressed there. Raises
        BadInput when the sink has no name, or no push can have such an address.
        """
        return await register_address(self._open, sink, address)

    @property
    def _open(self) -> Backend:
        if self._backend is None:
            raise PushlaneError(
                "the client is not open; use it inside `async with Client() as ...`"
            )
        return self._backend


def _id(task: str) -> str:
    return text("task_id", task)
