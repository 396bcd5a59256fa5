"""Dispatchers in simulated time, as far as limits go: the real gate, budgets, leases and turns.

Lanes have pushes, a sink takes its time for each, and rounds of leases come every 30 ms. Nothing
but the clock is made up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pushlane.backends.guard_ports import Limiter
from pushlane.backends.memory import MemoryBackend
from pushlane.core.lane import Why
from pushlane.core.task import Level
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates import budget_gate, leasing
from pushlane.dispatcher.gates.budget_gate import AppQuotas, BudgetGate
from pushlane.dispatcher.gates.budgets import Budgets
from pushlane.dispatcher.stats import Stats
from pushlane.model.limits import Limits
from tests.limits.test_budget_gate import HashableJob
from tests.limits.test_budgets import Clock

STEP_S = 0.005
LEASES_EVERY_S = 0.03
A_ROW = 32


class Lane:
    """A lane with so many pushes of a task, at its `attempt`."""

    def __init__(self, line: Line, task: Any, level: Level, pushes: int, attempt: int) -> None:
        self.line, self.task, self.level = line, task, level
        self.name = f"task-{task.id}"
        self.left, self.attempt = pushes, attempt
        self.returned: deque[Any] = deque()
        self.blocked: frozenset[Why] = frozenset()
        self.retired = False
        self.sent = 0

    @property
    def may_move(self) -> bool:
        return not self.blocked and bool(self.returned or self.left)

    def take(self) -> Any:
        if self.returned:
            return self.returned.popleft()
        self.left -= 1
        push = SimpleNamespace(attempt=self.attempt, address=lambda sink: sink)
        return HashableJob(lane=self, task=self.task, push=push, level=self.level)

    def give_back(self, job: Any) -> None:
        self.returned.append(job)
        self.line.marked[self] = None

    def block(self, why: Why) -> None:
        self.blocked |= {why}
        self.line.marked[self] = None

    def unblock(self, why: Why) -> None:
        self.blocked -= {why}
        self.line.marked[self] = None

    def add(self, pushes: int) -> None:
        self.left += pushes
        self.line.marked[self] = None

    def retire(self) -> None:
        """Have this process read it no more."""
        self.line.turns.remove(self)
        self.retired, self.left = True, 0
        self.returned.clear()

    def promote(self, level: Level) -> None:
        """Give its task another level, as a dispatcher hears of it."""
        self.line.turns.remove(self)
        self.level = level
        self.line.turns.add(self, level, self.task.quota, self.task.app)
        self.line.marked[self] = None
        self.line.gate.on_task(self.task)


class Line:
    """A sink that takes so long for a push."""

    def __init__(self, process: Process, sink: str, takes_s: float, slots: int) -> None:
        self.process, self.sink, self.takes_s, self.free = process, sink, takes_s, slots
        self.turns: Scheduler[Any] = Scheduler(slots=slots)
        self.marked: dict[Lane, None] = {}
        self.lanes: list[Lane] = []
        moves: Any = SimpleNamespace(ask=lambda task_id: None)
        self.gate = BudgetGate(sink, 1.0, process.budgets, moves, Stats(), self.turns.weights)
        self._landing: list[tuple[float, int, Any]] = []
        self._numbers = count()
        self.tries = 0
        process.budgets.add_listener(self.gate)
        for listener in (AppQuotas(self.turns), self.gate):
            listener.on_limits(process.limits)

    def lane(
        self,
        level: Level,
        pushes: int = 10**9,
        *,
        app: str = "shop",
        chain: Sequence[str] = (),
        attempt: int = 1,
    ) -> Lane:
        task = SimpleNamespace(
            id=f"{self.sink}-{len(self.lanes)}",
            app=app,
            quota=1,
            chain=chain or (self.sink,),
            pooled=False,
            state=SimpleNamespace(is_terminal=False),
        )
        lane = Lane(self, task, level, pushes, attempt)
        self.lanes.append(lane)
        self.turns.add(lane, level, 1, app)
        self.marked[lane] = None
        return lane

    def land(self, now_s: float) -> None:
        while self._landing and self._landing[0][0] <= now_s:
            job = heappop(self._landing)[2]
            self.free += 1
            self.turns.slots_freed(job.level, 1)
            batch: Any = SimpleNamespace(jobs=[job], sent=[job], spared=[])
            self.gate.landed(batch, now_s)

    def fill(self, now_s: float) -> None:
        """Take pushes as a dispatcher's loop does: one that is skipped often steps aside."""
        row, aside = 0, []
        while self.free:
            marked, self.marked = self.marked, {}
            for lane in marked:
                if lane not in aside and not lane.retired:
                    (self.turns.ready if lane.may_move else self.turns.rest)(lane)
            picked: Any = self.turns.pick()
            if picked is None:
                break
            if not picked.may_move:
                self.turns.rest(picked)
                continue
            job = picked.take()
            self.tries += 1
            if self.gate.lets(job, None):
                self.turns.charge()
                picked.sent += 1
                self.free -= 1
                self.process.world.sent_at_s.append(now_s)
                heappush(self._landing, (now_s + self.takes_s, next(self._numbers), job))
                row = 0
            elif (row := row + 1) >= A_ROW:
                row = 0
                aside.append(picked)
                self.turns.rest(picked)
        self.marked |= dict.fromkeys(aside)


class Process:
    """A dispatcher with some lines."""

    def __init__(self, world: World, limiter: Limiter, limits: Limits) -> None:
        self.world, self.limits = world, limits
        self.budgets = Budgets(limiter, clock_s=world.clock.s, clock_ms=world.clock.ms)
        self.lines: list[Line] = []
        self._leases_at_s = 0.0
        self.budgets.on_limits(limits)

    def line(self, sink: str = "fcm", *, takes_s: float = 0.02, slots: int = 64) -> Line:
        self.lines.append(Line(self, sink, takes_s, slots))
        return self.lines[-1]

    async def step(self, now_s: float) -> None:
        for line in self.lines:
            line.land(now_s)
        for line in self.lines:
            line.fill(now_s)
        if now_s >= self._leases_at_s:
            self._leases_at_s = now_s + LEASES_EVERY_S
            await self.budgets.leasing.round()
            for line in self.lines:
                line.fill(now_s)


class World:
    """Processes that share a store of limits, and the clock."""

    def __init__(self, limiter: Limiter, clock: Clock) -> None:
        self._limiter = limiter
        self.clock = clock
        self.processes: list[Process] = []
        self.sent_at_s: list[float] = []

    def process(self, limits: Limits) -> Process:
        self.processes.append(Process(self, self._limiter, limits))
        return self.processes[-1]

    def lines(self) -> list[Line]:
        return [line for process in self.processes for line in process.lines]

    def by_level(self) -> list[int]:
        """Return the number of pushes sent, by level."""
        lanes = [lane for line in self.lines() for lane in line.lanes]
        return [sum(lane.sent for lane in lanes if lane.level is level) for level in Level]

    async def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Let time pass, no more than so long; return how long it was."""
        for step in range(round(seconds / STEP_S)):
            if until():
                return step * STEP_S
            for process in self.processes:
                await process.step(self.clock.now_s)
            self.clock.now_s += STEP_S
        return seconds


@asynccontextmanager
async def world_in_time(patch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world in which the gate goes by the clock, too, and chance is the same each time."""
    clock = Clock()
    patch.setattr(budget_gate, "time", SimpleNamespace(monotonic=clock.s))
    patch.setattr(leasing, "random", random.Random(1))
    async with MemoryBackend(clock.ms).connect() as backend:
        yield World(backend.limiter, clock)


async def lanes_of(
    world: World, limits: Limits, each: int = 1, processes: int = 1, **line: Any
) -> Mapping[Level, list[Lane]]:
    """Lanes of each level that always have more, in each of the processes."""
    found: dict[Level, list[Lane]] = {level: [] for level in Level}
    for _ in range(processes):
        one = world.process(limits).line(**line)
        for level in Level:
            found[level] += [one.lane(level) for _ in range(each)]
    return found
