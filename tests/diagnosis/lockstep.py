"""What the real scheduler does with a load, push by push: one scheduler for each process.

Beside turns it keeps to what a dispatcher does: a push that its limit does not let go puts its lane
aside until there is room, of which a subject's limit has a little at a time for all processes; a
dispatcher's own queue says who goes on first. A lane of the pool has the pushes of its tasks one
behind the other, and no limit, as a limited task moves to a lane of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from pushlane.core.lane import Why
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates.budget_gate import AppQuotas
from pushlane.dispatcher.gates.leasing import BURST_S
from pushlane.dispatcher.gates.room_queue import RoomQueue
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

    def tokens(self, now_s: float) -> float:
        """Return the number of pushes that may go now."""
        return self._tokens if self.has(now_s) else 0.0

    def take(self) -> None:
        self._tokens -= 1

    def next_s(self) -> float:
        """When there is room again."""
        return self._at_s + (1 - self._tokens) / self._per_s


@dataclass(eq=False)
class Lane:
    """The pushes of its tasks, one behind the other: of a lane of its own, of one."""

    task: Task  # the first of them
    tasks: list[list]  # of [id, pushes left]
    rooms: list[Room]


@dataclass(eq=False)
class Seat:
    """A lane in one process, as the queues for room know it."""

    lane: Lane
    blocked: frozenset[Why] = frozenset()
    retired: bool = False

    @property
    def name(self) -> str:
        return self.lane.task.lane

    @property
    def level(self) -> Level:
        return self.lane.task.level

    @property
    def may_move(self) -> bool:
        return bool(self.lane.tasks) and not self.blocked


class Process:
    """The turns of a process, and its queues for the rooms."""

    def __init__(self, load: SinkLoad, rooms: Iterable[Room]) -> None:
        self.turns = _turns(load)
        self.queues = {room: RoomQueue(_turns(load)) for room in rooms}
        self.told: set[Room] = set()

    def sit(self, lane: Lane) -> Seat:
        seat, task = Seat(lane), lane.task
        app, quota = ("", 1) if task.pooled else (task.app, task.quota)
        self.turns.add(seat, task.level, quota, app)
        return seat

    def short(self, seat: Any, now_s: float) -> Room | None:
        """Return what has no room for a push, or none that is not for others first."""
        for room in seat.lane.rooms:
            if self.queues[room].keeps(seat) or not room.has(now_s):
                return room
        return None

    def wait(self, seat: Any, room: Room, now_s: float) -> None:
        self.turns.rest(seat)
        seat.blocked = frozenset({Why.BUDGET})
        self.queues[room].wait(seat, seat.lane.task, now_s)

    def let_on(self, room: Room, now_s: float) -> bool:
        """Let those on whose turn it is at this room; tell whether others wait."""
        queue: Any = self.queues[room]
        for seat in queue.let_on(room.tokens(now_s), self.turns.weights(), now_s):
            seat.blocked = frozenset()
            self.turns.ready(seat)
        return not queue.is_empty

    def sent(self, seat: Any, now_s: float) -> None:
        for room in seat.lane.rooms:
            room.take()
            self.queues[room].use(seat, now_s)


class Dispatchers:
    """Processes that share a sink of `per_s`; each takes turns by its own scheduler."""

    def __init__(self, load: SinkLoad, per_s: float, processes: int) -> None:
        self._per_s = per_s
        self._coming: list[tuple[float, int, Callable[[float], None]]] = []
        self._ticket = 0
        self.ends: dict[str, float] = {}
        self._left = len(load.standings)
        of_app = {app: _rooms(load.most_per_s("app", app)) for app in _apps(load)}
        lanes = [_lane(load, tasks, of_app) for tasks in _lanes(load.standings)]
        rooms = {room: None for lane in lanes for room in lane.rooms}
        self._processes = [Process(load, rooms) for _ in range(processes)]
        starts = {one.task.id: (one.starts_at_ms(NOW_MS) - NOW_MS) / 1000 for one in load.standings}
        for lane in lanes:
            for process in self._processes:
                seat = process.sit(lane)
                self._at(starts[lane.task.id], partial(_start, process, seat))

    def _at(self, at_s: float, do: Callable[[float], None]) -> None:
        self._ticket += 1
        heappush(self._coming, (round(at_s, 6), self._ticket, do))

    def run(self) -> Mapping[str, float]:
        """By task, when all of it has gone, a push each 1 / per_s; the processes in their turns."""
        slot = 0
        while self._left:
            now_s = slot / self._per_s
            while self._coming and self._coming[0][0] <= now_s + 1e-9:
                heappop(self._coming)[2](now_s)
            order = [(slot + n) % len(self._processes) for n in range(len(self._processes))]
            sent = any(self._send(self._processes[place], now_s) for place in order)
            slot += 1
            if not sent and self._coming:
                slot = max(slot, math.floor(self._coming[0][0] * self._per_s))
        return self.ends

    def _send(self, process: Process, now_s: float) -> bool:
        """Send the push whose turn it is there, if there is one that may go."""
        turns = process.turns
        while (seat := turns.pick()) is not None:
            if not seat.lane.tasks:  # another process has sent the last of it
                turns.rest(seat)
            elif (room := process.short(seat, now_s)) is not None:
                process.wait(seat, room, now_s)
                self._ask(process, room, now_s)
            else:
                turns.charge()
                process.sent(seat, now_s)
                self._sent(seat.lane, now_s)
                return True
        return False

    def _ask(self, process: Process, room: Room, now_s: float) -> None:
        """Have those who wait for room hear of it: once there is some, and no one asks already."""
        if room not in process.told:
            process.told.add(room)
            at_s = max(room.next_s(), now_s + 1 / self._per_s)
            self._at(at_s, partial(self._tell, process, room))

    def _tell(self, process: Process, room: Room, now_s: float) -> None:
        process.told.discard(room)
        if process.let_on(room, now_s):
            self._ask(process, room, now_s)

    def _sent(self, lane: Lane, now_s: float) -> None:
        head = lane.tasks[0]
        head[1] -= 1
        if not head[1]:
            self.ends[head[0]] = now_s
            self._left -= 1
            del lane.tasks[0]


def _start(process: Process, seat: Seat, now_s: float) -> None:
    process.turns.ready(seat)


def _turns(load: SinkLoad) -> Scheduler[Any]:
    turns: Scheduler[Any] = Scheduler(load.weights)
    AppQuotas(turns).on_limits(load.limits)
    return turns


def _apps(load: SinkLoad) -> set[str]:
    return {one.task.app for one in load.standings}


def _lane(load: SinkLoad, tasks: Sequence[Standing], of_app: Mapping[str, list[Room]]) -> Lane:
    first = tasks[0].task
    rooms = []
    if not first.pooled:
        rooms = [*_rooms(load.most_per_s("task", first.id)), *of_app[first.app]]
    return Lane(first, [[one.task.id, int(one.backlog)] for one in tasks], rooms)


def _lanes(standings: Sequence[Standing]) -> list[list[Standing]]:
    return [*shared_by_lane(standings).values()]


def _rooms(most_per_s: float) -> list[Room]:
    return [Room(most_per_s)] if most_per_s < math.inf else []


def dispatched(load: SinkLoad, per_s: float, processes: int = 1) -> Mapping[str, float]:
    """By task, when the real schedulers of so many processes have sent all of it."""
    return Dispatchers(load, per_s, processes).run()
