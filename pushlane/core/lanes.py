"""The lanes that this process reads, and which of them take turns.

A lane is added to the scheduler, readied, rested and removed here alone. It never takes a message.

A lane may be away in two ways. It *steps aside* for the rest of a round of the loop, and comes
back. It is *left* to other processes, as this one can do nothing with it now, and read again later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from pushlane.core.errors import PushlaneError, TaskInDoubt, UnknownFormat
from pushlane.core.lane import Job, Lane, Why
from pushlane.core.ports import LaneReader
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler

log = logging.getLogger("pushlane.lanes")

_AGAIN_S = 60.0


class Lanes:
    """Lets lanes take turns when they may move, and no longer when they may not.

    `awake` is set when the loop has to look. `clock_s` is a monotonic clock. `watch` hears of each
    round: the jobs that were chosen, and the lanes of which something has changed since the last.
    """

    def __init__(
        self,
        turns: Scheduler[Lane],
        clock_s: Callable[[], float] = time.monotonic,
        watch: Callable[[Sequence[Job], Iterable[Lane]], None] = lambda jobs, lanes: None,
    ) -> None:
        self.turns = turns
        self.awake = asyncio.Event()
        self.marked: dict[Lane, None] = {}
        self._changed: dict[Lane, None] = {}
        self._watch = watch
        self._aside: set[Lane] = set()
        self._clock_s = clock_s
        self._left: set[Lane] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self.by_name: dict[str, Lane] = {}

    def wake(self) -> None:
        """Have the loop look at what may go."""
        self.awake.set()

    def add(
        self,
        name: str,
        level: Level,
        *,
        quota: int = 1,
        app: str = "",
        depth: int = 128,
        later_depth: int = 0,
    ) -> Lane:
        """Know a lane from now on; it moves once something of it may be taken.

        A lane that tasks share is of no app. The depths are those of its readers.
        """
        lane = self.by_name[name] = Lane(name, level, depth, later_depth, self._mark)
        self.turns.add(lane, level, quota, app)
        self._changed[lane] = None
        return lane

    def update(self, lane: Lane, task: Task, highest_seq: int, *, held: bool) -> None:
        """Give a task's own lane its level, its quota, and let it move unless it is `held`."""
        is_moved = lane.level is not task.level
        if is_moved:
            self.turns.remove(lane)
        lane.set_task(task.level, highest_seq, held=held)
        if is_moved:
            self.turns.add(lane, task.level, task.quota, task.app)
        self.turns.set_quota(lane, task.quota)

    def rest(self, lane: Lane) -> bool:
        """Let it take no turns until it is marked; tell whether it has its turn with an answer."""
        self._changed[lane] = None
        is_asked = bool(lane.main.asking or lane.later.asking)
        self.turns.rest(lane, is_next=is_asked)
        return is_asked

    def step_aside(self, lane: Lane) -> None:
        """Let others have their turns, until it comes back."""
        self._aside.add(lane)
        self.turns.rest(lane)

    def come_back(self, lanes: Iterable[Lane]) -> None:
        """Let lanes take turns again that stepped aside."""
        for lane in lanes:
            self._aside.discard(lane)
            self._mark(lane)

    def take_marks(self) -> None:
        """Bring the scheduler in line with what changed of lanes; close those that are left."""
        marked, self.marked = self.marked, {}
        self._changed |= marked
        for lane in marked:
            if lane in self._aside:
                continue
            if lane.retired or lane.is_left:
                if not lane.retired:
                    self.turns.rest(lane)
                if not lane.pending:
                    self._close(lane)
            elif lane.may_move:
                self.turns.ready(lane)
            else:
                self.turns.rest(lane)

    def chose(self, jobs: Sequence[Job]) -> None:
        """End a round of the loop, in which these were chosen."""
        changed, self._changed = self._changed, {}
        self._watch(jobs, changed)

    def _mark(self, lane: Lane) -> None:
        """Hear of a lane that something has changed which may let it move, or keep it from that."""
        if lane not in self.marked:
            self.marked[lane] = None
            self.awake.set()

    def retire(self, name: str) -> None:
        """Read no more of a lane, if this process does."""
        lane = self.by_name.pop(name, None)
        if lane is not None:
            self.turns.remove(lane)
            lane.retire()

    def leave(self, job: Job, error: UnknownFormat | TaskInDoubt, wait_s: float = _AGAIN_S) -> None:
        """Leave a job's lane alone, as this process can do nothing with the job now.

        Only a newer version can read it, or the registry does not know its task. It is not acked,
        so the broker gives it to another process when the readers close, once what is in flight of
        the lane is settled. After the wait the lane is tried again.
        """
        lane = job.lane
        doubted = isinstance(error, TaskInDoubt)
        why, action = (Why.DOUBT, "task_in_doubt") if doubted else (Why.FORMAT, "format_unknown")
        if not lane.again_at_s:
            log.warning("lane %s: %s", lane.name, error, extra={"action": action})
        lane.leave(why, self._clock_s() + wait_s)
        self._left.add(lane)

    def is_left(self, name: str) -> bool:
        """Tell whether the lane is left to others for now."""
        lane = self.by_name.get(name)
        return lane is not None and lane.is_left

    def take_left(self) -> list[Lane]:
        """Return the lanes that were left and are to be read again: others may have emptied them.

        They have to be opened.
        """
        self.take_marks()  # else one might be closed after its readers are open again
        now_s = self._clock_s()
        due = [lane for lane in self._left if lane.again_at_s <= now_s and not lane.pending]
        self._left.difference_update(due)
        again = [lane for lane in due if not lane.retired]
        for lane in again:
            lane.read_again()
        return again

    async def close(self) -> None:
        """Close every reader; what they hold goes to other processes."""
        self.take_marks()
        for lane in self.by_name.values():
            self._close(lane)
        self.by_name.clear()
        await asyncio.gather(*self._closing)

    def _close(self, lane: Lane) -> None:
        for reader in lane.let_go():
            closing = asyncio.create_task(_closed(reader))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _closed(reader: LaneReader) -> None:
    try:
        await reader.close()
    except PushlaneError as error:
        log.warning("lane %s could not be closed: %s", reader.lane, error)
