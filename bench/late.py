"""A sink of a known rate, and a late task among backlogs on it, timed by the receiver's log.

A sink of 2,000/s: 100 slots, and a webhook that answers after 50 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.dispatching import dispatching, drain
from bench.figures import say
from dev.demo import Campaign, Queues
from dev.receiver import Follower, running
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings

SLOTS = 100
SINK_MS = 50.0
LATE = 1_000
_BODY = "x" * 150
_LOOK_EVERY_S = 0.05
_SETTLE_S = 2.0
_PATIENCE_S = 120.0
_SLOWEST_PER_S = 500


@dataclass(frozen=True)
class Late:
    """One late task. `handed_in_s` is when its submit began; times are Unix seconds."""

    handed_in_s: float
    submitted_s: float
    first_s: float
    last_s: float

    @property
    def first_push_s(self) -> float:
        """What a user would call the delay: from handing it in, the submit's own time included."""
        return self.first_s - self.handed_in_s

    @property
    def completion_s(self) -> float:
        return self.last_s - self.handed_in_s


@dataclass(frozen=True)
class Played:
    """`rest` is what was left at the end, sent to a file so that every push is accounted for."""

    lates: list[Late]
    webhook: Follower
    rest: Follower
    totals: dict[str, int]


async def play(settings: Settings, folder: Path, backlog: int, lates: int) -> Played:
    """Late tasks one after the other, behind an earlier high task and a low one."""
    webhook, rest = Follower(folder / "webhook.jsonl"), Follower(folder / "rest.jsonl")
    totals: dict[str, int] = {}
    measured: list[Late] = []
    async with connect(settings) as backend:
        for level in (Level.HIGH, Level.LOW):
            say(f"submitting {backlog:,} {level} pushes")
            totals[await _submit(backend, settings, level, backlog)] = backlog
        with sink(settings, folder / "webhook.jsonl") as has_ended:
            await arrived(webhook, 1, has_ended)
            await asyncio.sleep(_SETTLE_S)
            for number in range(1, lates + 1):
                measured.append(await _late(backend, settings, webhook, totals, has_ended))
                say(f"late task {number}: first push after {measured[-1].first_push_s:.3f} s")
    webhook.read()
    say("sending the rest to a file")
    drain(settings, f"log:{folder / 'rest.jsonl'}")
    rest.read()
    return Played(measured, webhook, rest, totals)


async def play_rival(settings: Settings, folder: Path, backlog: int) -> float:
    """The same work on one lane a level, first in first out: its late task's wait, in seconds."""
    log = Follower(folder / "rival.jsonl")
    async with connect(settings) as backend:
        queues = Queues(backend)
        say("the rival: the same work on one lane a level")
        for level in (Level.HIGH, Level.LOW):
            await queues.add(_campaign(level, backlog))
        with sink(settings, folder / "rival.jsonl") as has_ended:
            await arrived(log, 1, has_ended)
            await asyncio.sleep(_SETTLE_S)
            handed_in_s = time.time()
            late = await queues.add(_campaign(Level.HIGH, LATE))
            limit_s = _PATIENCE_S + backlog / _SLOWEST_PER_S
            await _until(log, lambda: log.counts[late] > 0, has_ended, limit_s)
    first_s = log.first(late)
    assert first_s is not None
    return first_s - handed_in_s


@contextmanager
def sink(settings: Settings, log: Path) -> Iterator[Callable[[], bool]]:
    """A dispatcher and its webhook; gives a function that says whether the dispatcher has ended."""
    with running(log, SINK_MS) as url, dispatching(settings, f"webhook:{url}") as dispatcher:
        yield lambda: dispatcher.has_ended


async def _submit(backend: Backend, settings: Settings, level: Level, pushes: int) -> str:
    rows = ({"recipient": f"device-{number}"} for number in range(pushes))
    request = SubmitRequest(source=rows, level=level, title="title", body=_BODY)
    return (await submit(backend, settings, request)).task.id


def _campaign(level: Level, pushes: int) -> Campaign:
    return Campaign(f"{level}-{pushes}", level, pushes, "", "title", _BODY)


async def _late(
    backend: Backend,
    settings: Settings,
    webhook: Follower,
    totals: dict[str, int],
    has_ended: Callable[[], bool],
) -> Late:
    handed_in_s = time.time()
    task_id = await _submit(backend, settings, Level.HIGH, LATE)
    submitted_s = time.time()
    totals[task_id] = LATE
    await _until(webhook, lambda: webhook.counts[task_id] >= LATE, has_ended, _PATIENCE_S)
    first_s, last_s = webhook.first(task_id), webhook.last(task_id)
    assert first_s is not None
    assert last_s is not None
    return Late(handed_in_s, submitted_s, first_s, last_s)


async def arrived(log: Follower, count: int, has_ended: Callable[[], bool]) -> None:
    """Wait until the log has so many; raises PushlaneError when they do not come."""
    await _until(log, lambda: log.counts.total() >= count, has_ended, _PATIENCE_S)


async def _until(
    log: Follower, reached: Callable[[], bool], has_ended: Callable[[], bool], timeout_s: float
) -> None:
    """Follow the log until it says so; fails when nobody sends any more, or in so long a time."""
    deadline = time.monotonic() + timeout_s
    log.read()
    while not reached():
        if has_ended() or time.monotonic() > deadline:
            raise PushlaneError(f"{log.counts.total()} pushes arrived, and then no more in time")
        await asyncio.sleep(_LOOK_EVERY_S)
        log.read()
