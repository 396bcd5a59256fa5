"""Sends again what a task has published, in a new task with seqs of its own.

Reads the task's first lane, where all its pushes were published, acked or not. Nothing is made
unless all that is asked for is still there. The new task always has a lane of its own.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import InvalidChange, MalformedPush
from pushlane.core.names import is_pool, own_lane
from pushlane.core.publish import Publication, chunk_size
from pushlane.core.push import Push, decode, decode_many, encode
from pushlane.core.task import State, Task, now_ms
from pushlane.model.names import new_task_id, submit_lease
from pushlane.model.task_changes import submit_again
from pushlane.producers.encoder import carried_expiry_ms
from pushlane.producers.published import announce
from pushlane.producers.validate import nothing_in
from pushlane.settings import Settings
from pushlane.util.retrying import Sleep, until_reachable
from pushlane.wire import bodies_of

Begun = Callable[[Task], None]


def _untold(new: Task) -> None:
    """Do nothing: the caller need not know of the new task before it is complete."""


@dataclass(frozen=True)
class ReplayedTask:
    """The new task, sealed, how many pushes it was given, and how many of those are empty."""

    task: Task
    published: int
    empty: int = 0


class Seqs:
    """Maps old seqs to new ones; it takes 4 bytes for each old seq."""

    def __init__(self) -> None:
        self._new = array("I")
        self.count = 0

    def add(self, old: int) -> int | None:
        """Return the new seq; None when the old one has one, as a push that was published twice."""
        if old >= len(self._new):
            self._new.extend([0] * (old + 1 - len(self._new)))
        if self._new[old]:
            return None
        self.count += 1
        self._new[old] = self.count
        return self.count

    def of(self, old: int) -> int:
        """Return the new seq, 0 when the old one is not in the replay."""
        return self._new[old] if old < len(self._new) else 0


async def clone(
    backend: Backend, settings: Settings, task_id: str, *, begun: Begun = _untold
) -> ReplayedTask:
    """Send all pushes of a task again in a new one. Raises InvalidChange if not all are kept."""
    task = await backend.registry.get(task_id)
    if task.total is None:
        raise InvalidChange(
            f"task {task.id} is not submitted completely, so it cannot be cloned; replay what "
            f"there is: pushlane replay {task.id} --since 1h"
        )
    return await replay(backend, settings, task.id, 0, begun=begun)


async def replay(
    backend: Backend,
    settings: Settings,
    task_id: str,
    since_ms: int,
    *,
    begun: Begun = _untold,
    sleep: Sleep = asyncio.sleep,
) -> ReplayedTask:
    """Send again, in a new task of the same options, what a task has published since then.

    `begun` is told of the new task before any push is on its lane. Raises InvalidChange when part
    of it is no longer retained (says what is), or there was nothing.
    """
    old = await backend.registry.get(task_id)
    await _refuse_untold(backend, old, since_ms)
    new = heir(old, reason=f"replay of {old.id}", expires_at_ms=0, first_expiry_ms=None)
    new = await backend.add(new, settings, old.total or 0)
    begun(new)
    again = "run the same command again for a new one"
    publication = Publication(backend, new, announce=partial(announce, backend), advice=again)
    retried = partial(until_reachable, tell=lambda note: None, sleep=sleep)

    async def publish() -> ReplayedTask:
        await retried(publication.open)
        empty = 0
        size = chunk_size(max(settings.batch, new.bundle))
        async for bodies in _chunks(backend, old, new, since_ms, size):
            await retried(partial(publication.publish, bodies, f"submit-{new.id}"))
            empty += sum(nothing_in(push, new.chain) is not None for push in decode_many(bodies))
        total = publication.published
        return ReplayedTask(await retried(partial(publication.seal, total)), total, empty)

    busy = f"another process is running the replay into task {new.id}; wait for it to end"
    guard = LeaseGuard(backend.lease, submit_lease(new.id), busy, sleep)
    return await guard.run(publish, lambda: None)


async def _refuse_untold(backend: Backend, old: Task, since_ms: int) -> None:
    """Refuse unless all of it is retained, since a replay would not show what it lacks."""
    retained_ms = await backend.broker.retained_since_ms(_home(old))
    if retained_ms is None:
        raise InvalidChange(_nothing_retained(old))
    if old.total is not None and since_ms < retained_ms:
        count = await _count(backend, old, 0)
        if count < old.total:
            raise InvalidChange(
                f"task {old.id} has {count:,} of its {old.total:,} pushes retained, those "
                f"published since {_time_text(retained_ms)}; replay from then on, or "
                f"{submit_again(old)}"
            )
    if not await _count(backend, old, since_ms):
        raise InvalidChange(
            f"task {old.id} has published nothing since {_time_text(since_ms)}; it was "
            f"submitted at {_time_text(old.created_at_ms)}: give an earlier time"
        )


async def _count(backend: Backend, task: Task, since_ms: int) -> int:
    """Return how many pushes of the task are retained, each counted once."""
    seqs = Seqs()
    async for push in retained_pushes(backend, task, since_ms):
        seqs.add(push.seq)
    return seqs.count


async def _chunks(
    backend: Backend, old: Task, new: Task, since_ms: int, size: int
) -> AsyncIterator[list[bytes]]:
    """Yield whole bundles, so that a chunk that is sent again has the same ones."""
    seqs = Seqs()
    carried_ms = carried_expiry_ms(old)
    chunk: list[bytes] = []
    async for push in retained_pushes(backend, old, since_ms):
        seq = seqs.add(push.seq)
        if seq is not None:
            # An expiry that was the old task's does not hold for the new one, which has none.
            own_expiry = 0 if push.expires_at_ms == carried_ms else push.expires_at_ms
            times = {"expires_at_ms": own_expiry, "not_before_ms": 0}
            again = first_attempt(push, new, seq, seqs.of(push.after_seq), **times)
            chunk.append(encode(again))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def retained_pushes(backend: Backend, task: Task, since_ms: int = 0) -> AsyncIterator[Push]:
    """Yield the task's pushes that its first lane still has; one may come twice.

    The lane may have those of others too. It takes nothing and disturbs nobody.
    """
    async for messages in backend.broker.replay(_home(task), since_ms):
        for body in (body for message in messages for body in bodies_of(message)):
            try:
                push = decode(body)
            except MalformedPush:  # was buried when it came out
                continue
            if push.task_id == task.id:
                yield push


def _home(task: Task) -> str:
    return task.first_lane or task.lane


def heir(old: Task, **changes: Any) -> Task:
    """Return a task of the same options on a lane of its own, which has sent nothing yet."""
    task_id = new_task_id()
    lane = own_lane(task_id)
    begun = {
        "id": task_id,
        "lane": lane,
        "first_lane": lane,
        "bundle": 0,
        "key": "",
        "fingerprint": "",
        "made_of": b"",
        "traceparent": "",
        "state": State.SUBMITTED,
        "total": None,
        "last_seq": 0,
        "not_before_ms": 0,
        "is_fed": False,
        "has_later": False,
        "reached": (),
        "created_at_ms": now_ms(),
        "finished_at_ms": 0,
        "stalled_at_ms": 0,
        "left_with": None,
        "lane_dropped": False,
        "stopped": False,
        "stop_since": (0, 0),
        "recall_ms": 0,
        "version": 0,
    }
    return replace(old, **begun | changes)


def first_attempt(push: Push, new: Task, seq: int, after_seq: int, **changes: Any) -> Push:
    """Return the push as one of the new task, as if it had never been tried.

    Without its key, by which it would be a duplicate of itself.
    """
    return replace(
        push,
        task_id=new.id,
        seq=seq,
        after_seq=after_seq,
        attempt=1,
        waits=None,
        key="",
        strikes=0,
        due_at_ms=0,
        submitted_at_ms=new.created_at_ms,
        **changes,
    )


def _nothing_retained(task: Task) -> str:
    if task.lane_dropped:
        why = "its lane was deleted " + (
            "when it was cancelled"
            if task.state is State.CANCELLED
            else f"{task.retention_s:g} s after its end, as its retention says"
        )
    elif is_pool(_home(task)):
        why = "it shares a pool lane, and keeps nothing there; submit it with a retention"
    else:
        why = "its lane keeps nothing; submit it with a retention"
    return f"task {task.id} has no pushes retained: {why}. To send it again, {submit_again(task)}"


def _time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(timespec="seconds")
