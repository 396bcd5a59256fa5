"""The lanes that this process reads, and which of them are in the scheduler's ring.

The only writer of the scheduler's membership. It never takes a message.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.lanes.errors import PushlaneError, TaskInDoubt, UnknownFormat
from pushlane.lanes.ports import LaneReader
from pushlane.lanes.task import Task

log = logging.getLogger("pushlane.lanes")

_AGAIN_S = 60.0


class LaneRing:
    """Puts lanes into the ring when they may move, and takes them out when they may not.

    `wake` is called when a lane may have become ready. `clock_s` is a monotonic clock.
    """

    def __init__(
        self,
        scheduler: Scheduler[OpenLane],
        wake: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._wake = wake
        self._clock_s = clock_s
        self._left: set[OpenLane] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self.lanes: dict[str, OpenLane] = {}

    def add(self, lane: OpenLane, quota: int, app: str = "") -> None:
        """Know the lane from now on; it moves once something of it may be taken.

        A lane that tasks share is of no app.
        """
        self.lanes[lane.name] = lane
        self._scheduler.add(lane, lane.level, quota, app)

    def update(self, lane: OpenLane, task: Task, total: int, *, held: bool) -> None:
        """Give a task's own lane its level, its quota, and leave to move unless it is `held`."""
        is_moved = lane.level is not task.level
        if is_moved:
            self._scheduler.remove(lane)
        lane.set_task(task.level, total, held=held)
        if is_moved:
            self._scheduler.add(lane, task.level, task.quota, task.app)
        self._scheduler.set_quota(lane, task.quota)
        self._refresh(lane)

    def starve(self, lane: OpenLane) -> None:
        """Take out a lane that has nothing at hand; its readers will say when it has."""
        self._scheduler.rest(lane)

    def hold(self, lane: OpenLane, taken: Held) -> None:
        """Keep what was taken of a paused task for when it goes on."""
        lane.give_back(taken)
        lane.hold()
        self._scheduler.rest(lane)

    def released(self, lane: OpenLane) -> None:
        """Let a lane move again of which less is pending, or close it if it is to be left."""
        if not (lane.retired or lane.left_for):
            self._refresh(lane)
        elif not lane.pending:
            self._close(lane)

    def resume(self, lane: OpenLane) -> None:
        """Do as `released`, and have the loop look at once."""
        self.released(lane)
        self._wake()

    def retire(self, name: str) -> None:
        """Read no more of a lane, if this process does."""
        lane = self.lanes.pop(name, None)
        if lane is not None:
            self._scheduler.remove(lane)
            lane.retire()
            self.released(lane)

    def leave(
        self, lane: OpenLane, error: UnknownFormat | TaskInDoubt, wait_s: float = _AGAIN_S
    ) -> None:
        """Leave a lane alone, as a push was taken with which this process can do nothing now.

        Only a newer version can read it, or the registry does not know its task. It is not acked,
        so the broker gives it to another process when the readers close, once what is in flight of
        the lane is settled. After the wait the lane is tried again.
        """
        why, action = (
            ("doubt", "task_in_doubt")
            if isinstance(error, TaskInDoubt)
            else ("format", "format_unknown")
        )
        if not lane.again_at_s:
            log.warning("lane %s: %s", lane.name, error, extra={"action": action})
        lane.leave(why, self._clock_s() + wait_s)
        self._left.add(lane)
        if not lane.retired:
            self._scheduler.rest(lane)
        self.released(lane)

    def is_left(self, name: str) -> bool:
        """Tell whether the lane is left to others for now."""
        lane = self.lanes.get(name)
        return lane is not None and bool(lane.left_for)

    def take_left(self) -> list[OpenLane]:
        """Return the lanes that were left and are to be read again: others may have emptied them.

        They have to be opened.
        """
        now_s = self._clock_s()
        due = [lane for lane in self._left if lane.again_at_s <= now_s and not lane.pending]
        self._left.difference_update(due)
        again = [lane for lane in due if not lane.retired]
        for lane in again:
            lane.come_back()
        return again

    async def close(self) -> None:
        """Close every reader; what they hold goes to other processes."""
        for lane in self.lanes.values():
            self._close(lane)
        self.lanes.clear()
        await asyncio.gather(*self._closing)

    def _refresh(self, lane: OpenLane) -> None:
        if lane.retired:
            return
        if lane.may_move:
            self._scheduler.ready(lane)
        else:
            self._scheduler.rest(lane)

    def _close(self, lane: OpenLane) -> None:
        for reader in lane.let_go():
            closing = asyncio.create_task(_closed(reader))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _closed(reader: LaneReader) -> None:
    try:
        await reader.close()
    except PushlaneError as error:
        log.warning("lane %s is given back later: %s", reader.lane, error)
