"""Operations that send again what a task has published, as a new task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.task import Task, now_ms
from pushlane.model.times import LAST_DATE_MS, given_since_ms
from pushlane.operations.operation import Of, Operation, Role, read_by
from pushlane.operations.session import Session
from pushlane.operations.task_views import TaskView, view_of
from pushlane.operations.tasks import TaskWord
from pushlane.util.errors import NotAllowed

if TYPE_CHECKING:
    from pushlane.producers.replay import Begun, ReplayedTask


def _since_ms(what: str, given: Any) -> int:
    return given_since_ms(what, given, now_ms())


class ReplayedView(msgspec.Struct, frozen=True):
    """The new task, how many pushes it was given, and how many of those are empty."""

    task_id: str
    published: int
    empty: int
    task: TaskView


class CloneTask(Operation[ReplayedView], frozen=True, kw_only=True):
    """Send all pushes of a task again, as a new task. Refused when not all are retained."""

    method, path, role, of = "POST", "/tasks/{task}/clone", Role.SUBMITTER, Of.TASK
    commands = ("clone",)
    changes = True

    task: TaskWord

    async def run(self, at: Session) -> ReplayedView:
        from pushlane.producers import replay

        old = await at.task(self.task)
        return await _replayed(
            at, old, lambda begun: replay.clone(at.backend, at.settings, old.id, begun=begun)
        )


class ReplayTask(Operation[ReplayedView], frozen=True, kw_only=True):
    """Send again what a task has published since a time, as a new task.

    Refused when not all of that is retained, or there is none.
    """

    method, path, role, of = "POST", "/tasks/{task}/replay", Role.SUBMITTER, Of.TASK
    commands = ("replay",)
    changes = True

    task: TaskWord
    since_ms: Annotated[
        int,
        read_by(_since_ms),
        Meta(ge=0, le=LAST_DATE_MS, description="From then on (Unix ms)."),
    ]

    async def run(self, at: Session) -> ReplayedView:
        from pushlane.producers import replay

        old = await at.task(self.task)
        return await _replayed(
            at,
            old,
            lambda begun: replay.replay(
                at.backend, at.settings, old.id, self.since_ms, begun=begun
            ),
        )


async def _replayed(
    at: Session, old: Task, work: Callable[[Begun], Awaitable[ReplayedTask]]
) -> ReplayedView:
    """Do the work. The audit has its task even when it ends half-way: that goes on sending."""
    _refuse_over_bounds(at, old)
    made: list[Task] = []

    def begun(new: Task) -> None:
        made.append(new)
        at.begun(new.id)

    published = {}
    try:
        done = await work(begun)
        published = {"published": done.published}
    finally:
        for new in made:
            noted = {"replay_of": old.id, "level": new.level.value, **published}
            at.changed(f"task/{new.id}", {}, noted, new.app)
    return ReplayedView(done.task.id, done.published, done.empty, view_of(done.task))


def _refuse_over_bounds(at: Session, task: Task) -> None:
    """Raise NotAllowed for a task that the caller could not have submitted."""
    access, who = at.caller.access, at.caller.name
    try:
        access.refuse_beyond(
            who, level=task.level, sinks=task.sinks, quota=task.quota, rate_per_s=None
        )
    except NotAllowed as error:
        raise NotAllowed(
            f"{error}: the new task would have the settings of task {task.id}"
        ) from None
    if access.most_per_s is not None:
        raise NotAllowed(
            f"the new task of task {task.id} would have no limit on its rate, and {who} may ask "
            f"for up to {access.most_per_s:g} pushes/s: ask an operator"
        )
