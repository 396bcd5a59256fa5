"""What the real scheduler does with a load, push by push: one scheduler for each process.

Beside turns it keeps to what a dispatcher does: a push that its limit does not let go puts its lane
aside until there is room, of which a subject's limit has a little at a time for all processes; who
began their turn at it first go on first. A lane of the pool has the pushes of its tasks one behind
the other, and no limit, as a limited task moves to a lane of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates.leasing import BURST_S
from pushlane.model.load import SinkLoad, Standing, shared_by_lane
from tests.diagnosis.support import NOW_MS


class Room:
    """The tokens of a subject's rate for all processes: those of a burst are kept, one at least."""

    def __init__(self, most_per_s: float) -> None:
        self._per_s = most_per_s
        self._burst = max(1.0, most_per_s * BURST_S)
        self._tokens = self._burst
        self._at_s = 0.0

    def has(self, now_s: float) -> bool:
        self._tokens = min(self._burst, self._tokens + self._per_s * (now_s - self._at_s))
        self._at_s = now_s
        return self._tokens >= 1 - 1e-9

    def take(self) -> None:
        self._tokens -= 1

    def next_s(self) -> float:
        """When there is room again."""
        return self._at_s + (1 - self._tokens) / self._per_s


@dataclass(eq=False)
class Lane:
    """The pushes of its tasks, one behind the other: of a lane of its own, of one."""

    name: str
    tasks: list[list]  # of [id, pushes left]
    rooms: list[Room]
    quota: int
    place: int = 0
    used: int = 0

    def short(self, now_s: float) -> Room | None:
        """Return what has no room for a push, if anything."""
        return next((room for room in self.rooms if not room.has(now_s)), None)


class Dispatchers:
    """Processes that share a sink of `per_s`; each takes turns by its own scheduler."""

    def __init__(self, load: SinkLoad, per_s: float, processes: int) -> None:
        self._per_s = per_s
        self._turns: list[Scheduler[Lane]] = [Scheduler(load.weights) for _ in range(processes)]
        self._waiting: list[tuple[float, int, int, int, Lane]] = []
        self._ticket = 0
        self.ends: dict[str, float] = {}
        self._left = len(load.standings)
        for turns in self._turns:
            for subject, limit in load.limits.items():
                if subject.kind == "app":
                    turns.set_app_quota(subject.name, limit.quota)
                    turns.set_high_part(subject.name, limit.high_part)
        apps = {one.task.app for one in load.standings}
        of_app = {app: _rooms(load.most_per_s("app", app)) for app in apps}
        for tasks in _lanes(load.standings):
            self._add(load, tasks, of_app)

    def _add(
        self, load: SinkLoad, tasks: Sequence[Standing], of_app: Mapping[str, list[Room]]
    ) -> None:
        first = tasks[0].task
        left = [[one.task.id, int(one.backlog)] for one in tasks]
        rooms = []
        if not first.pooled:
            rooms = [*_rooms(load.most_per_s("task", first.id)), *of_app[first.app]]
        lane = Lane(first.lane, left, rooms, first.quota)
        start_s = (tasks[0].starts_at_ms(NOW_MS) - NOW_MS) / 1000
        for process, turns in enumerate(self._turns):
            app, quota = ("", 1) if first.pooled else (first.app, first.quota)
            turns.add(lane, first.level, quota, app)
            self._wake_at(start_s, process, lane)

    def _wake_at(self, at_s: float, process: int, lane: Lane) -> None:
        self._ticket += 1
        heappush(self._waiting, (round(at_s, 6), lane.place, self._ticket, process, lane))

    def run(self) -> Mapping[str, float]:
        """By task, when all of it has gone, a push each 1 / per_s; the processes in their turns."""
        slot = 0
        while self._left:
            now_s = slot / self._per_s
            while self._waiting and self._waiting[0][0] <= now_s + 1e-9:
                *_, process, lane = heappop(self._waiting)
                if lane.tasks:
                    self._turns[process].ready(lane)
            order = [(slot + n) % len(self._turns) for n in range(len(self._turns))]
            sent = any(self._send(process, now_s) for process in order)
            slot += 1
            if not sent and self._waiting:
                slot = max(slot, math.floor(self._waiting[0][0] * self._per_s))
        return self.ends

    def _send(self, process: int, now_s: float) -> bool:
        """Send the push whose turn it is there, if there is one that may go."""
        turns = self._turns[process]
        while (lane := turns.pick()) is not None:
            if not lane.tasks:  # another process has sent the last of it
                turns.rest(lane)
            elif (room := lane.short(now_s)) is not None:
                turns.rest(lane)
                self._wake_at(room.next_s(), process, lane)
            else:
                turns.charge()
                self._sent(lane, now_s)
                return True
        return False

    def _sent(self, lane: Lane, now_s: float) -> None:
        for room in lane.rooms:
            room.take()
        lane.used += 1
        if lane.used >= lane.quota:  # the turn is over that it has at the room of its subject
            self._ticket += 1
            lane.place, lane.used = self._ticket, 0
        head = lane.tasks[0]
        head[1] -= 1
        if not head[1]:
            self.ends[head[0]] = now_s
            self._left -= 1
            del lane.tasks[0]


def _lanes(standings: Sequence[Standing]) -> list[list[Standing]]:
    return [*shared_by_lane(standings).values()]


def _rooms(most_per_s: float) -> list[Room]:
    return [Room(most_per_s)] if most_per_s < math.inf else []


def dispatched(load: SinkLoad, per_s: float, processes: int = 1) -> Mapping[str, float]:
    """By task, when the real schedulers of so many processes have sent all of it."""
    return Dispatchers(load, per_s, processes).run()
