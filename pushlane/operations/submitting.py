"""How a submit is shown: its task, and what the call did for it."""

from __future__ import annotations

import msgspec

from pushlane.core.task import Progress
from pushlane.model.limits import Limit
from pushlane.operations.task_views import TaskView, view_of
from pushlane.producers.request import Submitted


class SubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a submit, and what the call did for it. With `first` the task stays open.

    `published` counts the rows this call sent, of which the broker keeps each once. `resumed`
    says that an earlier submit of the key had stopped half-way, `already_done` that it had not:
    `progress` is then what has become of that one's pushes.
    `spooled` counts the pushes that wait in a spool, of a task that no dispatcher knows of yet.
    `rejects` is the file in which bad rows are listed, if there were some. `part` is, with `first`,
    how many of the task's pushes, `accepted` in all, are submitted by now. `limit` is what a task
    for which limits were asked is limited to: those that it had stay.
    """

    task_id: str
    task: TaskView
    published: int
    rejected: int = 0
    rejects: str | None = None
    resumed: bool = False
    already_done: bool = False
    spooled: int = 0
    progress: Progress | None = None
    part: int | None = None
    accepted: int = 0
    limit: Limit | None = None


def result_view(done: Submitted) -> SubmitResult:
    """Return what a submit did, as it is shown."""
    return SubmitResult(
        task_id=done.task.id,
        task=view_of(done.task),
        published=done.published,
        rejected=done.rejected,
        rejects=None if done.rejects is None else str(done.rejects),
        resumed=done.resumed,
        already_done=done.already_done,
        spooled=done.spooled,
        progress=done.progress,
        part=done.part,
        accepted=done.accepted,
        limit=done.limit,
    )
