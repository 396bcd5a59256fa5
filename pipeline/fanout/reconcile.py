"""Makes parts that stopped long ago go on behind what was published of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pushlane.lanes.backend import Backend
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.pipeline.fanout.stage import Frozen, Part, StageManifest
from pushlane.producers.reconcile import reached


def forgotten(manifest: StageManifest, frozen: Frozen, settings: Settings) -> list[Part]:
    """Parts that were begun, so long ago that the broker may not know what it has of them; and all
    that an older version has begun, since it numbered messages in another way.

    A broker that remembers its sources never forgets.
    """
    if settings.capabilities.remembers_sources:
        return []
    oldest_ms = (time.time() - settings.dedup_window_s) * 1000
    begun = frozen.reached(manifest.parts)
    return [
        part
        for part in manifest.parts
        if (found := begun.get(part.first_seq))
        and found.seq < part.last_seq
        and (found.at_ms < oldest_ms or manifest.format == 1)
    ]


async def reconcile(
    backend: Backend, task: Task, manifest: StageManifest, frozen: Frozen, parts: Sequence[Part]
) -> None:
    """Make each of these parts go on behind what was published of it.

    Raises:
        TaskConflict: nobody can know any more.
    """
    stretches = [range(part.first_seq, part.last_seq + 1) for part in parts]
    found = await reached(backend, task, stretches)
    starts = frozen.starts(manifest.parts)
    for part, last in zip(parts, found, strict=True):
        starts[part.first_seq] = max(starts[part.first_seq], last + 1)
    frozen.start(starts)
