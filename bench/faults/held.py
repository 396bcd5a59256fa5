"""Which pushes wait for a lost process or broker, and when they arrive: by the sink's log alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection

from bench.faults.stream import Stream
from bench.faults.verdict import Push

_LOOK_EVERY_S = 0.01
_OTHERS_GO_AHEAD_S = 1.0


def waiting(stream: Stream, lanes: Collection[str] | None = None) -> dict[str, int]:
    """The tasks (of these lanes) with pushes left, and how many of theirs have arrived."""
    arrived = Counter(task for task, _ in stream.oracle.tally.kept)
    return {
        task: arrived[task]
        for task, total in stream.feeder.totals.items()
        if arrived[task] < total and (lanes is None or stream.feeder.lanes[task] in lanes)
    }


async def arrives(stream: Stream, before: dict[str, int]) -> None:
    """Return when of each of these tasks more has arrived than before."""
    deadline = time.monotonic() + stream.load.recovery_deadline_s
    while time.monotonic() < deadline:
        now = waiting(stream)
        if all(task not in now or now[task] > arrived for task, arrived in before.items()):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    stream.broken.append("a lane did not go on after a fault")


async def held(stream: Stream) -> set[Push]:
    """The pushes that somebody holds: others have gone ahead of them, as lanes are in order."""
    await asyncio.sleep(_OTHERS_GO_AHEAD_S)
    kept = stream.oracle.tally.kept
    last: dict[str, int] = {}
    for task, seq in kept:
        last[task] = max(seq, last.get(task, 0))
    return {
        (task, seq)
        for task, end in last.items()
        for seq in range(1, end)
        if (task, seq) not in kept
    }


async def arrive(stream: Stream, pushes: set[Push]) -> None:
    """Return when all of these pushes have arrived."""
    deadline = time.monotonic() + stream.load.recovery_deadline_s
    while time.monotonic() < deadline:
        if pushes <= stream.oracle.tally.kept:
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    stream.broken.append(
        f"{len(pushes - stream.oracle.tally.kept)} pushes stayed with a lost process"
    )
