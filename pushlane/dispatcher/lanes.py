"""Opens the readers of lanes, several at once, high lanes first.

One that takes long or fails never delays another.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pushlane.core.errors import PushlaneError, UnknownLane
from pushlane.core.lane import Lane, LaneInput
from pushlane.core.lanes import Lanes
from pushlane.core.names import is_pool, task_of
from pushlane.core.retrying import Backoffs
from pushlane.core.task import Level
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.lanes.ports import Broker, LaneReader, OnReady

log = logging.getLogger("pushlane.lanes")

OPENERS = 16
_PATIENCE_S = 0.5
_FIRST_FEED_S = 0.05
_RANK = {level: rank for rank, level in enumerate(Level)}


class _Opening(NamedTuple):
    """A reader to open: those that failed before come last, then high lanes first."""

    failed: bool
    rank: int
    turn: int
    lane: Lane
    lane_input: LaneInput


class ReaderOpener:
    """Opens readers while `run` runs; `fill` is called when a lane's reader has something."""

    def __init__(
        self,
        broker: Broker,
        tasks: KnownTasks,
        lanes: Lanes,
        fill: Callable[[Lane], None],
    ) -> None:
        self._broker = broker
        self._tasks = tasks
        self._lanes = lanes
        self._fill = fill
        self._opening: asyncio.PriorityQueue[_Opening] = asyncio.PriorityQueue()
        self._turn = itertools.count()
        self._backoffs = Backoffs(log)

    def open(self, lane: Lane, lane_input: LaneInput) -> None:
        """Have a reader opened, as soon as it can be."""
        lane_input.want()
        self._queue(lane, lane_input, failed=False)

    async def first_opened(self, timeout_s: float) -> None:
        """Wait for the lanes that are there at the start, and for what is on them.

        Who began with the first of them would give those all slots, beside others who share.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._tasks.synced.wait()
                await self._opening.join()
                before = -1
                while (now := self._fed()) > before:
                    before = now
                    await asyncio.sleep(_FIRST_FEED_S)

    def _fed(self) -> int:
        """Count readers that had something; those that are asked about count half until then."""
        return sum(
            2 * bool(one.messages) + bool(one.asking)
            for lane in self._lanes.by_name.values()
            for one in lane.inputs
        )

    async def run(self) -> None:
        """Open readers, so many at once, for ever.

        One that takes long or fails gives up its place, so that it never delays another: at most
        as many are waited for as there are lanes.
        """
        places = asyncio.Semaphore(OPENERS)
        async with asyncio.TaskGroup() as attempts:
            while True:
                await places.acquire()
                attempts.create_task(self._attempt(await self._opening.get(), places))

    def _queue(self, lane: Lane, lane_input: LaneInput, *, failed: bool) -> None:
        rank = _RANK[lane.level]
        self._opening.put_nowait(_Opening(failed, rank, next(self._turn), lane, lane_input))

    async def _attempt(self, opening: _Opening, places: asyncio.Semaphore) -> None:
        def leave() -> None:
            places.release()
            self._opening.task_done()

        patience = asyncio.get_running_loop().call_later(_PATIENCE_S, leave)
        try:
            await self._open_reader(opening.lane, opening.lane_input)
        finally:
            if patience.when() > asyncio.get_running_loop().time():
                patience.cancel()
                leave()

    async def _open_reader(self, lane: Lane, lane_input: LaneInput) -> None:
        if lane.retired:
            return self._backoffs.forget(lane_input.name)
        if lane.is_left or lane_input.reader is not None:
            return None
        try:
            if is_pool(lane.name):
                await self._make_shared(lane)
            reader = await self._read_known(lane, lane_input)
        except PushlaneError as error:
            wait_s = self._backoffs.failed(lane_input.name, error)
            again = partial(self._queue, lane, lane_input, failed=True)
            asyncio.get_running_loop().call_later(wait_s, again)
            return None
        self._backoffs.reset(lane_input.name)
        return lane.opened(lane_input, reader)

    async def _read_known(self, lane: Lane, lane_input: LaneInput) -> LaneReader | None:
        """Return the reader, or None when its task has ended for sure.

        A lane that the broker does not know, of a task that has not, is one that the broker has not
        heard of yet, or that is about to be made anew.
        """
        try:
            return await self._broker.read(
                lane_input.name, self._feeder(lane, lane_input), lane_input.depth
            )
        except UnknownLane:
            task_id = task_of(lane.name)
            if task_id is None or not await self._tasks.has_ended(task_id):
                raise
            return None

    async def _make_shared(self, lane: Lane) -> None:
        """Make the later lane before the lane is read: what comes off it may have to wait there."""
        for name in (lane.later.name, lane.name):
            await self._broker.open_lane(name)
        if not lane.later.wanted:
            self.open(lane, lane.later)

    def _feeder(self, lane: Lane, lane_input: LaneInput) -> OnReady:
        def feed(_: LaneReader) -> None:
            lane_input.ready()
            self._fill(lane)

        return feed
