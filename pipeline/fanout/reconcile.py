"""Finds out how far a part was published when the broker may have forgotten its producer.

A producer's batches come in order, so what is on the lanes of a part, or was finished, is a first
stretch of it: everything behind the highest seq that is found is missing, nothing before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from lanes.backend import Backend
from lanes.errors import MalformedPush, TaskConflict
from lanes.naming import later_lane, own_lane
from lanes.push import decode
from lanes.settings import Settings
from lanes.task import Task
from pipeline.fanout.stage import Frozen, Manifest, Part

_ASK_AT_ONCE = 10_000


def forgotten(manifest: Manifest, frozen: Frozen, settings: Settings) -> list[Part]:
    """Parts that were begun, so long ago that the broker may not know what it has of them.

    The embedded store never forgets.
    """
    if settings.broker == "embedded":
        return []
    oldest_ms = (time.time() - settings.dedup_window_s) * 1000
    reached = frozen.reached(manifest.parts)
    begun = ((part, reached.get(part.first_seq)) for part in manifest.parts)
    return [
        part
        for part, found in begun
        if found and found.seq < part.last_seq and found.at_ms < oldest_ms
    ]


async def reconcile(
    backend: Backend, task: Task, manifest: Manifest, frozen: Frozen, parts: Sequence[Part]
) -> None:
    """Make each of these parts go on behind what was published of it.

    Raises:
        TaskConflict: nobody can know any more.
    """
    if await backend.registry.counted_since_ms() > task.created_at_ms:
        raise TaskConflict(
            f"fan-out of task {task.id} stopped too long ago to go on: the broker has forgotten "
            "what it had, and the counts of finished pushes were lost meanwhile. Cancel the task "
            "(what is on its lane is dropped), and run this again with another --key"
        )
    last = dict.fromkeys((part.first_seq for part in parts), 0)
    await _seen_on_lanes(backend, task, parts, last)
    starts = frozen.starts(manifest.parts)
    for part in parts:
        found = max(last[part.first_seq], await _last_finished(backend, task, part))
        starts[part.first_seq] = max(starts[part.first_seq], found + 1)
    frozen.start(starts)


async def _seen_on_lanes(
    backend: Backend, task: Task, parts: Sequence[Part], last: dict[int, int]
) -> None:
    for lane in _lanes(task):
        async for bodies in backend.broker.replay(lane):
            for seq in _seqs(task.id, bodies):
                part = next((p for p in parts if p.first_seq <= seq <= p.last_seq), None)
                if part:
                    last[part.first_seq] = max(last[part.first_seq], seq)


def _lanes(task: Task) -> list[str]:
    """Wherever a push of the task may wait."""
    lanes = dict.fromkeys((task.first_lane, task.lane, own_lane(task.id)))
    return [name for lane in lanes for name in (lane, later_lane(lane))]


def _seqs(task_id: str, bodies: Iterable[bytes]) -> Iterable[int]:
    for body in bodies:
        try:
            push = decode(body)
        except MalformedPush:  # of somebody else: all that we publish can be read
            continue
        if push.task_id == task_id:
            yield push.seq


async def _last_finished(backend: Backend, task: Task, part: Part) -> int:
    for end in range(part.last_seq, part.first_seq - 1, -_ASK_AT_ONCE):
        seqs = range(max(part.first_seq, end - _ASK_AT_ONCE + 1), end + 1)
        finished = await backend.registry.finished(task.id, seqs)
        if any(finished):
            return max(seq for seq, is_done in zip(seqs, finished, strict=True) if is_done)
    return 0
