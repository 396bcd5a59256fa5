"""What holds for a stream, given to its tasks: each process that takes pushes of it feeds one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery, pages
from pushlane.core.task import ACTIVE_STATES, Edit, State, Task
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.streams import Stream, level_of


async def tasks_of(
    backend: Backend, stream: Stream, states: Sequence[State] = ACTIVE_STATES
) -> list[Task]:
    """Return the tasks of a stream in these states, newest first: those that have not ended."""
    query = TaskQuery(states, stream.key, stream.app)
    return [
        task
        async for page in pages(backend.registry, query)
        for task in page
        if task.key.startswith(stream.key)
    ]


def as_stream(stream: Stream, *, resumes: bool = False) -> Edit:
    """Give a task level, quota and pause of its stream. One that has ended stays as it is.

    What is paused by itself stays so unless it `resumes`. The level of a task that has that of its
    records stays, too. A stream's task has a lane of its own.
    """

    def edit(task: Task) -> Task:
        if task.state.is_terminal:
            return task
        state, reason = task.state, task.reason
        if stream.paused:
            state, reason = State.PAUSED, stream.reason
        elif resumes and state is State.PAUSED:
            state, reason = State.RUNNING, ""
        level = level_of(task, stream)
        changed = replace(task, level=level, quota=stream.quota, state=state, reason=reason)
        return task if changed == task else changed

    return edit


async def apply(backend: Backend, stream: Stream, *, resumes: bool = False) -> None:
    """Give all tasks of a stream that have not ended what holds for it now."""
    found = await tasks_of(backend, stream)
    for task in found:
        await backend.registry.change(task.id, as_stream(stream, resumes=resumes))
    await _share(backend, stream, found)


async def share_limits(backend: Backend, stream: Stream) -> None:
    """Share the limits of a stream out among its tasks that have not ended, in equal parts."""
    if stream.rate_per_s is not None or stream.in_flight is not None:
        await _share(backend, stream, await tasks_of(backend, stream))


async def _share(backend: Backend, stream: Stream, tasks: Sequence[Task]) -> None:
    parts = len(tasks)

    def edit(had: Limit) -> Limit:
        rate = None if stream.rate_per_s is None else stream.rate_per_s / parts
        in_flight = None if stream.in_flight is None else max(1, stream.in_flight // parts)
        return replace(had, rate_per_s=rate, in_flight=in_flight)

    for task in tasks:
        await change_limit(backend.documents, Subject("task", task.id), edit)
