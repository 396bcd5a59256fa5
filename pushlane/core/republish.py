"""Puts pushes on other lanes: retries and forwards on theirs, dead ones on the dead-letter lane.

What has gathered for a lane is published together, and tried again until it is there. Only then is
the message that a push came on acked (`core.endings`).

A publish that got no answer may have reached the broker all the same. So each body has a number, by
which the broker keeps it once, however often it is published. The broker takes only numbers above
all that it has from that source: so the publishes on a lane go one after another, and none begins
before the one before it has got through, or was given up.

A batch of which only a part got through is repeated whole. That is safe since what the broker has
of it is a beginning: the client sends in order on one connection, sends again in order on the
next, and when one body times out gives up all that are on their way.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from pushlane.core.endings import FLUSH_EVERY_S, Ending, Flusher
from pushlane.core.errors import PushlaneError, UnknownFormat, UnknownLane
from pushlane.core.names import is_dead, is_pool, task_of
from pushlane.core.ports import LaneBroker, Source
from pushlane.core.push import Kind
from pushlane.core.retrying import Backoffs
from pushlane.core.task import Task

log = logging.getLogger("pushlane.settle")

MOST_SOURCES = 256
IDLE_S = 300.0
_GONE = "its lane was dropped"


class LaneOpener(Protocol):
    """Opens the lanes of a task that not every task needs."""

    async def ensure(self, task_id: str, sink: str = "") -> None:
        """Return once the task has a later lane, or its lane at this sink, or has ended.

        Raises:
            PushlaneError: broker or registry does not answer, or many change the task at once.
        """

    async def find(self, task_id: str) -> Task | None:
        """Return the task of this id, None when it was forgotten. Raises TaskInDoubt."""


class _LaneQueue:
    """What goes on on one lane, under the name of one source. `number` is the last that was used.

    It is `busy` while something of it is being published; `used_s` is when that last ended.
    """

    __slots__ = ("busy", "endings", "lane", "name", "number", "used_s")

    def __init__(self, lane: str, name: str) -> None:
        self.lane = lane
        self.name = name
        self.endings: list[Ending] = []
        self.number = 0
        self.busy = False
        self.used_s = 0.0

    def take(self) -> tuple[list[Ending], Source]:
        """Take all that waits, with a number for each."""
        endings, self.endings = self.endings, []
        first = self.number + 1
        self.number += len(endings)
        return endings, Source(self.name, range(first, self.number + 1))


class Republisher:
    """Publishes what goes on on another lane, and hands it to the flusher then.

    Bodies are `numbered` unless the broker needs no numbers. The sources of lanes on which nothing
    went on for a while are closed, and the oldest when there are too many; no name is used twice.
    `clock_s` is a monotonic clock.
    """

    def __init__(
        self,
        broker: LaneBroker,
        opener: LaneOpener,
        flusher: Flusher,
        *,
        numbered: bool,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._opener = opener
        self._flusher = flusher
        self._numbered = numbered
        self._clock_s = clock_s
        self._token = secrets.token_hex(6)
        self._openings = itertools.count(1)
        self._queues: OrderedDict[str, _LaneQueue] = OrderedDict()  # the latest used last
        self._endings: list[Ending] = []
        self._due = asyncio.Event()
        self._backoffs = Backoffs(log)

    def add(self, ending: Ending) -> None:
        """Publish its body with the next batch."""
        self._endings.append(ending)
        self._due.set()

    async def run(self) -> None:
        """Publish what has gathered, each lane for itself: one to be opened holds up no other."""
        async with asyncio.TaskGroup() as publishing:
            publishing.create_task(self._close_idle_ones())
            while True:
                await self._due.wait()
                self._due.clear()
                await asyncio.sleep(FLUSH_EVERY_S)
                endings, self._endings = self._endings, []
                for ending in endings:
                    queue = self._queue_of(ending.target)
                    queue.endings.append(ending)
                    if not queue.busy:
                        queue.busy = True
                        publishing.create_task(self._publish_all(queue))
                if len(self._queues) > MOST_SOURCES:  # not awaited: a close may take its 10 s
                    publishing.create_task(self.close_old(float("-inf")))

    def _queue_of(self, lane: str) -> _LaneQueue:
        queue = self._queues.get(lane)
        if queue is None:
            name = f"again-{self._token}-{next(self._openings)}"
            queue = self._queues[lane] = _LaneQueue(lane, name)
        self._queues.move_to_end(lane)
        return queue

    async def _close_idle_ones(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S / 2)
            await self.close_old(self._clock_s() - IDLE_S)

    async def close_old(self, before_s: float) -> None:
        """Close sources that were last used before then, and the oldest of too many.

        All are forgotten before the first is waited for: so none that is being closed is used
        again, and none is closed by two calls at once.
        """
        for queue in self._forget_old(before_s):
            if self._numbered:
                await self._broker.close_source(queue.lane, queue.name)

    def _forget_old(self, before_s: float) -> list[_LaneQueue]:
        idle = [queue for queue in self._queues.values() if not queue.busy]
        excess = max(0, len(self._queues) - MOST_SOURCES)
        old = [
            queue for place, queue in enumerate(idle) if place < excess or queue.used_s < before_s
        ]
        for queue in old:
            del self._queues[queue.lane]
        return old

    async def _publish_all(self, queue: _LaneQueue) -> None:
        while queue.endings:
            await self._publish(queue.lane, *queue.take())
        queue.busy = False
        queue.used_s = self._clock_s()

    async def _publish(self, lane: str, endings: list[Ending], source: Source) -> None:
        """Try until they are there, each time the same ones."""
        while True:
            try:
                await self._publish_once(lane, endings, source)
                break
            except UnknownFormat:  # unacked, they go to processes of a newer version
                self._flusher.release(endings)
                return
            except PushlaneError as error:
                await self._backoffs.wait(lane, error)
        self._backoffs.reset(lane)
        self._flusher.add(endings)

    async def _publish_once(self, lane: str, endings: list[Ending], source: Source) -> None:
        first = next((ending for ending in endings if ending.opens_for), None)
        if first is not None:
            await self._opener.ensure(first.opens_for, first.opens_at)
        try:
            await self._put_on(lane, endings, source)
        except UnknownLane:
            if is_dead(lane) or is_pool(lane):  # made by its first dead push, or lost
                await self._broker.open_lane(lane)
                await self._put_on(lane, endings, source)
            elif await self._is_over(lane):
                for ending in endings:
                    _drop(ending)
            else:  # not heard of yet, or about to be made anew
                raise

    async def _put_on(self, lane: str, endings: list[Ending], source: Source) -> None:
        await self._broker.publish(
            lane,
            [ending.body for ending in endings],
            delay_s=[ending.delay_s for ending in endings],
            source=source if self._numbered else None,
        )

    async def _is_over(self, lane: str) -> bool:
        """Tell whether the lane went with its task. Raises TaskInDoubt while nobody knows."""
        task_id = task_of(lane)
        task = await self._opener.find(task_id) if task_id is not None else None
        return task is None or task.state.is_terminal


def _drop(ending: Ending) -> None:
    """Make it the ending of a push whose lane went with its task."""
    ending.kind = Kind.DROPPED
    ending.outcome = None if ending.job.error else Kind.DROPPED
    ending.reason, ending.why, ending.at_ms = _GONE, _GONE, 0
