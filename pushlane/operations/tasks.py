"""Operations on tasks that exist: look at them, change what they may send and when, forget them."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from pushlane.backends.ports import TaskQuery, whole_pages
from pushlane.core.task import ACTIVE_STATES, MAX_QUOTA, Level, State, Task
from pushlane.model import task_changes
from pushlane.model.states import STATES, STORED_AS
from pushlane.model.task_changes import Check, NewTimes
from pushlane.operations.operation import ETag, Of, Operation, Role, read_by
from pushlane.operations.paging import Cursor, cut, place_of
from pushlane.operations.session import Session
from pushlane.operations.task_views import (
    ChangedTask,
    TaskNow,
    TaskView,
    changed_view,
    forgotten_view,
    look_at,
    set_of,
)
from pushlane.util.conversion import one_of, texts

ANY_STATE = "any"
"""Tasks in all states, finished ones too."""

STATE_WORDS = (ANY_STATE, *STATES)
"""What can be asked for as a state."""

_ONE_DOWN = {Level.HIGH: Level.MEDIUM, Level.MEDIUM: Level.LOW, Level.LOW: Level.LOW}
_ONE_UP = {Level.LOW: Level.MEDIUM, Level.MEDIUM: Level.HIGH, Level.HIGH: Level.HIGH}


def read_states(what: str, given: object) -> tuple[str, ...]:
    """Return words for states. Raises BadInput for what is none."""
    return tuple(one_of("state", one, STATE_WORDS) for one in texts(what, given))


def stored_as(words: Sequence[str]) -> tuple[State, ...]:
    """Return the states in which those are stored that are asked for; without any the active."""
    some = (STORED_AS.get(word) or (State(word),) for word in words)
    return tuple(dict.fromkeys(state for each in some for state in each)) or ACTIVE_STATES


TaskWord = Annotated[str, Meta(description="Its id, key or name.")]


class ListTasks(Operation[list[TaskNow]], frozen=True, kw_only=True):
    """List tasks, oldest first: those that are not finished, unless states are given.

    Of pages the first has the newest so many, the next those before them.
    """

    method, path, role, of = "GET", "/tasks", Role.VIEWER, Of.APPS
    commands = ("tasks",)

    state: Annotated[
        tuple[str, ...],
        read_by(read_states),
        Meta(description=f"Only in these: {', '.join(STATES)}; or {ANY_STATE}."),
    ] = ()
    find: Annotated[str, Meta(description="Only if id, key or name hold this.")] = ""
    app: Annotated[str, Meta(description="Only of this app.")] = ""
    level: Annotated[Level | None, Meta(description="Only of this level.")] = None
    limit: Annotated[int, Meta(ge=0, description="The newest so many; 0 for all.")] = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[TaskNow]:
        words = {*read_states("state", self.state)} - {ANY_STATE}
        stored = () if ANY_STATE in self.state else stored_as(self.state)
        [only] = at.apps if at.apps is not None and len(at.apps) == 1 else [""]
        query = TaskQuery(stored, self.find, self.app or only, self.level)
        processes = await at.backend.presence.list()
        found: list[tuple[str, TaskNow]] = []
        async for page in whole_pages(at.backend.registry, query, place_of(self)):
            if at.apps is None:  # whose they are nobody knows
                at.beside.unread += len(page.unread)
            placed = zip(page.places, page.tasks, strict=True)
            mine = {place: task for place, task in placed if at.sees(task.app)}
            views = zip(mine, await look_at(at.backend, [*mine.values()], processes), strict=True)
            found += [
                (place, one)
                for place, one in views
                if not words or {one.state, one.shown_state} & words
            ]
            if self.limit and len(found) > self.limit:
                break
        return [one for _, one in cut(at, self, found, lambda placed: placed[0])][::-1]

    @staticmethod
    def joined(page: list[TaskNow], following: list[TaskNow]) -> list[TaskNow]:
        return [*following, *page]


class GetTask(Operation[TaskNow], frozen=True, kw_only=True):
    """Show all there is to know about a task."""

    method, path, role, of = "GET", "/tasks/{task}", Role.VIEWER, Of.TASK
    commands = ("task show",)
    etag = ETag.SHOWN

    task: TaskWord

    async def run(self, at: Session) -> TaskNow:
        processes = await at.backend.presence.list()
        task = await at.task(self.task)
        at.show(f"task/{task.id}", set_of(task))
        [found] = await look_at(at.backend, [task], processes, asks_broker=True)
        return found


class PauseTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """Hold a task; its pushes wait. Refused when it is finished."""

    method, path, role, of = "POST", "/tasks/{task}/pause", Role.SUBMITTER, Of.TASK
    commands = ("pause",)
    changes = True
    etag = ETag.TAKEN

    task: TaskWord
    reason: Annotated[str, Meta(description="Kept with the task.")] = ""

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        return await _changed(at, task, at.backend.pause(task.id, self.reason, _check(at)))


class ResumeTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """Let a paused task go on. Refused when it is not paused."""

    method, path, role, of = "POST", "/tasks/{task}/resume", Role.SUBMITTER, Of.TASK
    commands = ("resume",)
    changes = True
    etag = ETag.TAKEN

    task: TaskWord

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        edit = task_changes.checked(_check(at), task_changes.resume)
        return await _changed(at, task, at.backend.registry.change(task.id, edit))


class CancelTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """End a task; what it has not sent is never sent. Refused when it is done."""

    method, path, role, of = "POST", "/tasks/{task}/cancel", Role.SUBMITTER, Of.TASK
    commands = ("cancel",)
    changes = destroys = True
    etag = ETag.TAKEN

    task: TaskWord

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        edit = task_changes.checked(_check(at), task_changes.cancel)
        return await _changed(at, task, at.backend.registry.change(task.id, edit))


class PromoteTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """Move a task to another level, on a lane of its own; its backlog follows."""

    method, path, role, of = "POST", "/tasks/{task}/promote", Role.OPERATOR, Of.TASK
    commands = ("promote",)
    changes = True
    etag = ETag.NEEDED

    task: TaskWord
    level: Annotated[Level | None, Meta(description="The level; one up unless given.")] = None

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        level = self.level or _ONE_UP[task.level]
        return await _changed(at, task, at.backend.promote(task.id, level, _check(at)))


class DemoteTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """Move a task to a lower level; it keeps its lane, and its backlog follows."""

    method, path, role, of = "POST", "/tasks/{task}/demote", Role.OPERATOR, Of.TASK
    commands = ("demote",)
    changes = True
    etag = ETag.NEEDED

    task: TaskWord
    level: Annotated[Level | None, Meta(description="The level; one down unless given.")] = None

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        demoted = task_changes.demote(self.level or _ONE_DOWN[task.level])
        edit = task_changes.checked(_check(at), demoted)
        return await _changed(at, task, at.backend.registry.change(task.id, edit))


class SetQuota(Operation[ChangedTask], frozen=True, kw_only=True):
    """Set how many pushes a task sends in its turn, from now on.

    One that shares a lane moves to one of its own, at its level; its backlog follows.
    """

    method, path, role, of = "PUT", "/tasks/{task}/quota", Role.OPERATOR, Of.TASK
    commands = ("quota",)
    changes = True
    etag = ETag.NEEDED

    task: TaskWord
    quota: Annotated[int | str, Meta(description=f"Pushes a turn, from 1 to {MAX_QUOTA:,}.")]

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        return await _changed(at, task, at.backend.set_quota(task.id, self.quota, _check(at)))


class SetStopIfDead(Operation[ChangedTask], frozen=True, kw_only=True):
    """Pause a task when more of its pushes die than this, counted from now on.

    One that is paused stays so. The limit that it has already changes nothing, unless it paused it.
    """

    method, path, role, of = "PUT", "/tasks/{task}/stop-if-dead", Role.OPERATOR, Of.TASK
    commands = ("stop-if-dead",)
    changes = True
    etag = ETag.NEEDED

    task: TaskWord
    rule: Annotated[str, Meta(description="The share of dead pushes, like 5%, or off.")]

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        change = at.backend.set_stop_if_dead(task.id, self.rule, _check(at))
        return await _changed(at, task, change)


class RescheduleTask(Operation[ChangedTask], frozen=True, kw_only=True):
    """Change start, expiry and quiet hours of a task that is not finished, from now on.

    What is not given stays as it is. A start or an expiry that single pushes have of their own
    stays too. Pushes that wait for its old times follow within a minute, once a dispatcher runs.
    """

    method, path, role, of = "PATCH", "/tasks/{task}/times", Role.OPERATOR, Of.TASK
    commands = ("reschedule",)
    changes = True
    etag = ETag.NEEDED

    task: TaskWord
    not_before_ms: (
        Annotated[int, Meta(ge=0, description="Start then (Unix ms); 0 is at once.")] | None
    ) = None
    expires_at_ms: (
        Annotated[int, Meta(ge=0, description="Send nothing from then on (Unix ms); 0 is never.")]
        | None
    ) = None
    quiet: Annotated[
        str | None, Meta(description="Hours like 22:00-08:00 by the recipient's clock, or empty.")
    ] = None
    zone: Annotated[str | None, Meta(description="Of recipients without one: Europe/Berlin.")] = (
        None
    )

    @staticmethod
    def to(task: str, times: NewTimes) -> RescheduleTask:
        """Return the operation for times that were read."""
        return RescheduleTask.made(task=task, **msgspec.structs.asdict(times))

    async def run(self, at: Session) -> ChangedTask:
        task = await at.task(self.task)
        given = msgspec.structs.asdict(self)
        del given["task"]
        change = at.backend.reschedule(task.id, NewTimes(**given), _check(at))
        return await _changed(at, task, change)


class ForgetTask(Operation[TaskView], frozen=True, kw_only=True):
    """Remove a task that has ended, with its counts, key, lanes and dead pushes.

    Refused when it has not ended, or somebody still reads its lane.
    """

    method, path, role, of = "DELETE", "/tasks/{task}", Role.OPERATOR, Of.TASK
    commands = ("forget",)
    changes = destroys = True

    task: TaskWord

    async def run(self, at: Session) -> TaskView:
        from pushlane.producers.forgetting import forget_task  # which loads how tasks are made

        task = await at.task(self.task)
        await forget_task(at.backend, task)
        return forgotten_view(at, task)


async def _changed(at: Session, before: Task, change: Awaitable[Task]) -> ChangedTask:
    after = await change
    at.show(f"task/{after.id}", set_of(after))
    return changed_view(at, before, after)


def _check(at: Session) -> Check:
    """Return what refuses a task that is not as the caller has seen it."""
    return lambda task: at.require_seen(f"task/{task.id}", set_of(task))
