"""Says who goes on next of the lanes that wait for room in a limit: as at the sink's slots.

Of a limit there is often room for a push or two at a time. Were all let on that wait, the level
that is picked first would have it each time, and the others none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pushlane.core.lane import Lane, Why
from pushlane.core.names import is_pool
from pushlane.core.task import Level, Task, Weights
from pushlane.core.turns import Scheduler

_ROOM_ALONE = frozenset({Why.BUDGET})
_KEPT_S = 0.1
_MOST_AT_ONCE = 10_000
_ROUNDING = 1e-6


class _Leave:
    """The leave of a lane: it may send so many `pushes`.

    `since_s` is when it was given or last used (monotonic s).
    """

    __slots__ = ("pushes", "since_s")

    def __init__(self, since_s: float) -> None:
        self.pushes = 0
        self.since_s = since_s


class RoomQueue:
    """The lanes that want room of one subject: those that wait, and those with leave to send.

    Room is given out push by push, by weights and quotas. As long as anybody waits or has leave,
    nobody sends without: `keeps` says so. Leave that is not used goes to others: at once if its
    lane has nothing to send any more, else after 0.1 s. A lane that waits in another queue
    meanwhile is `elsewhere`, and keeps its leave here unless that is dropped.
    """

    def __init__(self, turns: Scheduler[Lane]) -> None:
        self._turns = turns
        self._places: dict[Lane, tuple[Level, str, str]] = {}
        self._waiting: dict[Lane, float] = {}
        self._leave: dict[Lane, _Leave] = {}
        self._given = 0
        self._first: set[Lane] = set()  # those that wait with a push that counts in totals
        self._resting: dict[Lane, None] = {}  # those of them for which totals have no room
        self._by_task: dict[str, Lane] = {}  # those that no other task has

    def wait(self, lane: Lane, task: Task, now_s: float, *, is_first: bool = True) -> None:
        """Note that a lane waits for room, for a push of this task.

        `is_first` tells that the push counts in totals.
        """
        if is_first:
            self._first.add(lane)
        else:
            self._first.discard(lane)
        self._place(lane, task)
        self._resting.pop(lane, None)
        self._turns.ready(lane)
        self._waiting.setdefault(lane, now_s)

    def update(self, task: Task) -> None:
        """Hear of a change of a task: it stands at its level from now on."""
        lane = self._by_task.get(task.id)
        if lane is not None and self._places[lane][0] is not lane.level:
            self._place(lane, task)
            if lane in self._waiting and lane not in self._resting:
                self._turns.ready(lane)

    def drop(self, lane: Lane) -> None:
        """Take back the leave of a lane that waits for room elsewhere."""
        if leave := self._leave.pop(lane, None):
            self._given -= leave.pushes

    def _place(self, lane: Lane, task: Task) -> None:
        app, quota = ("", 1) if is_pool(lane.name) else (task.app, task.quota)
        place = (lane.level, app, task.id if app else "")
        if self._places.get(lane) != place:
            if lane in self._places:
                self._turns.remove(lane)
            self._turns.add(lane, lane.level, quota, app)
            self._places[lane] = place
        if app:
            self._by_task[task.id] = lane
        self._turns.set_quota(lane, quota)

    @property
    def is_empty(self) -> bool:
        """Tell whether nobody waits."""
        return not self._waiting

    @property
    def is_used_up(self) -> bool:
        """Tell whether nobody has leave."""
        return not self._given

    def keeps(self, lane: Lane) -> bool:
        """Tell whether a lane has to wait, whatever room there is, as others come first."""
        leave = self._leave.get(lane)
        if leave is not None and leave.pushes:
            return False
        if not self._waiting and self._given:
            self._weed()
        return bool(self._waiting or self._given)

    def _weed(self) -> None:
        """Take leave back at once from lanes that have nothing to send any more."""
        for lane in [lane for lane in self._leave if lane.retired or not lane.may_move]:
            if not self._is_elsewhere(lane):
                self.drop(lane)

    def use(self, lane: Lane, now_s: float) -> None:
        """Hear that a lane has sent a push."""
        leave = self._leave.get(lane)
        if leave is not None and leave.pushes:
            leave.pushes -= 1
            leave.since_s = now_s
            self._given -= 1

    @property
    def given(self) -> int:
        """Return for how many pushes there is leave that can be used at once."""
        return sum(one.pushes for lane, one in self._leave.items() if not self._is_elsewhere(lane))

    def let_on(
        self, room: float, weights: Mapping[Level, int], now_s: float, first: float = math.inf
    ) -> dict[Lane, float]:
        """Give leave for so many pushes in all; return who goes on, and since when each waited.

        `first` is the room for those that count in totals.
        """
        has_first = first >= 1 - _ROUNDING
        self._take_back(now_s, has_first=has_first)
        if weights != self._turns.weights():
            self._turns.set_weights(Weights(**{level.value: n for level, n in weights.items()}))
        if has_first and self._resting:
            for one in self._resting:
                self._turns.ready(one)
            self._resting.clear()
        on: dict[Lane, float] = {}
        left = int(min(room, _MOST_AT_ONCE) + _ROUNDING) - self._given
        while left > 0 and (lane := self._turns.pick()) is not None:
            since_s = self._waiting.get(lane)
            if self._is_elsewhere(lane):
                self._turns.rest(lane)
            elif lane.retired or not (
                lane.may_move if since_s is None else lane.blocked == _ROOM_ALONE
            ):
                if since_s is not None:
                    on[lane] = since_s
                self._forget(lane)
            elif since_s is not None and not has_first and lane in self._first:
                self._turns.rest(lane)
                self._resting[lane] = None
            else:
                self._turns.charge()
                self._leave.setdefault(lane, _Leave(now_s)).pushes += 1
                self._given += 1
                left -= 1
        for one in self._leave:
            if one in self._waiting:
                on[one] = self._waiting.pop(one)
        return on

    def let_all(self) -> dict[Lane, float]:
        """Have all that wait try; return them, each since when. Their turns stay as they are."""
        waiting, self._waiting = self._waiting, {}
        self._leave.clear()
        self._given = 0
        for lane in [lane for lane in self._places if lane not in waiting and not lane.may_move]:
            self._forget(lane)
        return waiting

    def _is_elsewhere(self, lane: Lane) -> bool:
        """Tell whether a lane with leave waits for room in another queue alone."""
        return (
            lane in self._leave
            and lane not in self._waiting
            and lane.blocked == _ROOM_ALONE
            and not lane.retired
        )

    def _take_back(self, now_s: float, *, has_first: bool) -> None:
        """Take leave back from those that do not use it."""
        for lane, leave in [*self._leave.items()]:
            if self._is_elsewhere(lane):
                leave.since_s = now_s
                continue
            waits = lane in self._waiting
            is_gone = lane.retired or not (lane.blocked == _ROOM_ALONE if waits else lane.may_move)
            is_short = waits and not has_first and lane in self._first
            if is_gone or is_short or now_s > leave.since_s + _KEPT_S or not leave.pushes:
                self.drop(lane)

    def _forget(self, lane: Lane) -> None:
        self._by_task.pop(self._places.pop(lane)[2], None)
        self._waiting.pop(lane, None)
        self._first.discard(lane)
        self._resting.pop(lane, None)
        self._turns.remove(lane)
        self.drop(lane)
