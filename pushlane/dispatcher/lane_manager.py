"""Which lanes this process reads, and whether their tasks let them move.

It opens a lane when a task has one, holds it while the task is paused or starts later, and retires
it when the task ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pushlane.core.lane import Lane
from pushlane.core.lanes import Lanes
from pushlane.core.names import is_later, is_pool, lane_at, own_lane, pool_lanes, pool_sink
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lanes import ReaderOpener
from pushlane.dispatcher.start_timer import StartTimer
from pushlane.lanes.ports import Broker

log = logging.getLogger("pushlane.lanes")

_SHARED = 2  # as if bundles were so small: many tasks that share a lane have one at hand, or a push


class LaneManager:
    """Listens to tasks and keeps their lanes at one sink.

    `prefetch` is how many pushes of one are at hand.
    """

    def __init__(
        self,
        sink: str,
        tasks: KnownTasks,
        lanes: Lanes,
        opener: ReaderOpener,
        prefetch: int,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._sink = sink
        self._tasks = tasks
        self._lanes = lanes
        self._opener = opener
        self._prefetch = prefetch
        self._start_timer = StartTimer(clock_ms)

    def open_pool(self, count: int) -> None:
        """Read every lane that low tasks share, with its later lane."""
        for name in pool_lanes(count, self._sink):
            self._open_pool_lane(name)

    async def open_old_pool(self, broker: Broker) -> None:
        """Read the lanes of when the pool was larger: something may be left on them."""
        for name in await broker.lanes():
            if is_pool(name) and not is_later(name) and pool_sink(name) == self._sink:
                self._open_pool_lane(name)

    def on_task(self, task: Task) -> None:
        if task.state.is_terminal:
            self._retire(task.id)
        elif self._sink in task.reached:
            self._place(task, task.lane_at(self._sink), has_later=True)
        elif self._sink == task.chain[0]:
            for name in (task.first_lane, task.lane):  # our settings may have a smaller pool
                if is_pool(name):
                    self._open_pool_lane(name)
            if not task.pooled and task.state is not State.SUBMITTED:
                self._place(task, task.lane, has_later=task.has_later)

    def on_unread(self, task_id: str) -> None:
        self._retire(task_id)

    def _retire(self, task_id: str) -> None:
        self._lanes.retire(own_lane(task_id))
        self._lanes.retire(lane_at(task_id, self._sink))

    def read_again(self) -> None:
        """Read the lanes that were left to others for long enough."""
        for lane in self._lanes.take_left():
            for lane_input in lane.inputs:
                if lane_input.wanted:
                    self._opener.open(lane, lane_input)

    async def run_starts(self) -> None:
        """Let scheduled tasks move when their time has come, for ever."""
        await self._start_timer.run(self._start)

    def _start(self, task_id: str) -> None:
        if task := self._tasks.active.get(task_id):
            log.info("task %s starts", task_id, extra={"action": "task_started"})
            self.on_task(task)

    def _place(self, task: Task, name: str, *, has_later: bool) -> None:
        """Open a lane that a task has alone, unless it is open; let it move unless it must wait."""
        is_home = name == (task.first_lane or task.lane)
        lane = self._lanes.by_name.get(name)
        if lane is None:
            bundle = task.bundle if is_home else 1
            lane = self._open(name, task.level, task.quota, bundle, task.app)
        total = (task.total or 0) if is_home else 0
        held = self._start_timer.waits(task) or task.state is State.PAUSED
        self._lanes.update(lane, task, total, held=held)  # first: a reader opens by its level
        if has_later and not lane.later.wanted:
            self._opener.open(lane, lane.later)

    def _open_pool_lane(self, name: str) -> None:
        if name not in self._lanes.by_name:
            self._open(name, Level.LOW, 1, _SHARED)

    def _open(self, name: str, level: Level, quota: int, bundle: int, app: str = "") -> Lane:
        """Open a lane of at most `bundle` pushes a message; on its later lane each is alone."""
        depth = max(2, self._prefetch // max(1, bundle))
        lane = self._lanes.add(
            name, level, quota=quota, app=app, depth=depth, later_depth=self._prefetch
        )
        self._opener.open(lane, lane.main)
        return lane
