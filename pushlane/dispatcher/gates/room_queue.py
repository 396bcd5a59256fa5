"""Says who goes on next of the lanes that wait for room in a limit: as at the sink's slots.

Of a limit there is often room for a push or two at a time. Were all let on that wait, the level
that is picked first would have it each time, and the others none.
"""

from __future__ import annotations

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
    """How many pushes a lane may send, and since when (monotonic s) it has sent none of them."""

    __slots__ = ("pushes", "since_s")

    def __init__(self, since_s: float) -> None:
        self.pushes = 0
        self.since_s = since_s


class RoomQueue:
    """The lanes that want room of one subject: those that wait, and those with leave to send.

    Room is given out push by push, by weights and quotas. As long as anybody waits or has leave,
    nobody sends without: `keeps` says so. Leave that is not used goes to others: at once if its
    lane has nothing to send any more, else after 0.1 s.
    """

    def __init__(self, turns: Scheduler[Lane]) -> None:
        self._turns = turns
        self._places: dict[Lane, tuple[Level, str]] = {}
        self._waiting: dict[Lane, float] = {}
        self._leave: dict[Lane, _Leave] = {}
        self._given = 0

    def wait(self, lane: Lane, task: Task, now_s: float) -> None:
        """Note that a lane waits for room, for a push of this task."""
        app, quota = ("", 1) if is_pool(lane.name) else (task.app, task.quota)
        place = (lane.level, app)
        if self._places.get(lane) != place:
            if lane in self._places:
                self._turns.remove(lane)
            self._turns.add(lane, lane.level, quota, app)
            self._places[lane] = place
        self._turns.set_quota(lane, quota)
        self._turns.ready(lane)
        self._waiting.setdefault(lane, now_s)

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
        return not (leave is not None and leave.pushes) and bool(self._waiting or self._given)

    def use(self, lane: Lane, now_s: float) -> None:
        """Hear that a lane has sent a push."""
        leave = self._leave.get(lane)
        if leave is not None and leave.pushes:
            leave.pushes -= 1
            leave.since_s = now_s
            self._given -= 1

    def let_on(self, room: float, weights: Mapping[Level, int], now_s: float) -> dict[Lane, float]:
        """Give leave for so many pushes in all; return who goes on, and since when each waited."""
        on = self._take_back(now_s)
        if weights != self._turns.weights():
            self._turns.set_weights(Weights(**{level.value: n for level, n in weights.items()}))
        for _ in range(min(int(room + _ROUNDING) - self._given, _MOST_AT_ONCE)):
            lane = self._turns.pick()
            if lane is None:
                break
            self._turns.charge()
            self._leave.setdefault(lane, _Leave(now_s)).pushes += 1
            self._given += 1
        with_leave = [lane for lane in self._waiting if lane in self._leave]
        return on | {lane: self._waiting.pop(lane) for lane in with_leave}

    def let_all(self) -> dict[Lane, float]:
        """Forget all; return those that wait, each since when."""
        waiting = self._waiting
        self._waiting = {}
        for lane in [*self._places]:
            self._forget(lane)
        return waiting

    def _take_back(self, now_s: float) -> dict[Lane, float]:
        """Take leave back from those that do not use it, and forget those that want no room now.

        Return those of them that waited: more than room keeps them.
        """
        on = {}
        for lane in [*self._places]:
            since_s = self._waiting.get(lane)
            if since_s is not None and (lane.retired or lane.blocked != _ROOM_ALONE):
                on[lane] = since_s
            elif since_s is not None or lane.may_move:
                continue
            self._forget(lane)
        for lane, leave in [*self._leave.items()]:
            if now_s > leave.since_s + _KEPT_S or not leave.pushes:
                self._given -= leave.pushes
                del self._leave[lane]
        return on

    def _forget(self, lane: Lane) -> None:
        del self._places[lane]
        self._waiting.pop(lane, None)
        self._turns.remove(lane)
        if leave := self._leave.pop(lane, None):
            self._given -= leave.pushes
