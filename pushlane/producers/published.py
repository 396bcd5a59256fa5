"""Announces collapse keys of pushes that are on a lane, and finds out how far a task is there.

The pushes of a producer come in order, so what is on the lanes of its seqs, or was finished, is a
first stretch of them: everything behind the highest seq that is found is missing, nothing before.
That holds even when the broker has forgotten its producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.core.errors import MalformedPush, TaskConflict
from pushlane.core.names import later_lane
from pushlane.core.publish import Announce
from pushlane.core.push import decode
from pushlane.core.task import Task
from pushlane.model.recipients import collapse_mark
from pushlane.wire import open_message


async def announce(backend: Backend, task: Task, bodies: Sequence[bytes]) -> None:
    """Announce collapse keys of pushes that are on the lane; earlier, both pushes could be lost."""
    pushes = map(decode, bodies)
    marks = [collapse_mark(task.app, push) for push in pushes if push.collapse]
    if marks:
        await backend.recipient_windows.announce(marks)


def announcing(backend: Backend, collapses: bool) -> Announce | None:
    """Return what announces the pushes of a task that `collapses`; None for any other."""
    return partial(announce, backend) if collapses else None


_ASK_AT_ONCE = 10_000


async def reached(backend: Backend, task: Task, stretches: Sequence[range]) -> list[int]:
    """Return the last published seq of each stretch, or the one before its first if none was.

    A stretch holds the seqs of one producer. No publish of the task may be under way. Raises
    TaskConflict when nobody can know any more.
    """
    if await backend.registry.counted_since_ms() > task.created_at_ms:
        raise TaskConflict(
            f"publishing task {task.id} stopped too long ago to go on: the broker has forgotten "
            "what it had, and the counts of finished pushes were lost meanwhile. Cancel the task "
            "(what is on its lane is dropped), and run this again with another --key"
        )
    last = [stretch.start - 1 for stretch in stretches]
    homes = dict.fromkeys((task.first_lane, task.lane))
    at_home = [name for lane in homes for name in (lane, later_lane(lane))]
    for lane in dict.fromkeys([*at_home, *task.own_lanes()]):  # on which a push of it may wait
        async for messages in backend.broker.replay(lane):
            for seq in _seqs(task.id, messages):
                for at, stretch in enumerate(stretches):
                    if seq in stretch:
                        last[at] = max(last[at], seq)
    return [
        max(found, await _last_finished(backend, task, stretch))
        for found, stretch in zip(last, stretches, strict=True)
    ]


def _seqs(task_id: str, messages: Iterable[bytes]) -> Iterable[int]:
    for message in messages:
        try:
            bundle = open_message(message)
        except MalformedPush:  # of somebody else: all that we publish can be read
            continue
        if bundle.task_id == task_id:
            yield from bundle.seqs


async def published_of(backend: Backend, task: Task, seqs: range) -> set[int]:
    """Return those of a task's seqs that are on its lanes, or were finished."""
    found: set[int] = set()
    for lane in dict.fromkeys([task.first_lane, task.lane, *task.own_lanes()]):
        for name in (lane, later_lane(lane)):
            async for messages in backend.broker.replay(name):
                found.update(seq for seq in _seqs(task.id, messages) if seq in seqs)
    for first in range(seqs.start, seqs.stop, _ASK_AT_ONCE):
        some = range(first, min(seqs.stop, first + _ASK_AT_ONCE))
        finished = await backend.registry.finished(task.id, some)
        found.update(seq for seq, is_done in zip(some, finished, strict=True) if is_done)
    return found


async def _last_finished(backend: Backend, task: Task, stretch: range) -> int:
    for end in range(stretch.stop - 1, stretch.start - 1, -_ASK_AT_ONCE):
        seqs = range(max(stretch.start, end - _ASK_AT_ONCE + 1), end + 1)
        finished = await backend.registry.finished(task.id, seqs)
        if any(finished):
            return max(seq for seq, is_done in zip(seqs, finished, strict=True) if is_done)
    return stretch.start - 1


def refuse_outdated(task: Task) -> None:
    """Refuse to go on with a task that a version before 0.2.0 has begun to publish.

    It numbered messages in another way, so that what is on the lane would be published again.

    Raises:
        TaskConflict: it is such a one.
    """
    if not task.bundle:
        raise TaskConflict(
            f"task {task.id} was begun by a version of pushlane before 0.2.0, in messages that "
            "this version does not recognise: end its submit with release 0.2.0, or cancel the "
            "task and submit all of it under a new key"
        )
