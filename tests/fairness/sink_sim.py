"""A sink on a clock of its own: scheduler and shares as the dispatcher uses them, nothing else."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pushlane.core.task import Level, Weights
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.slow import OccupiedSlots, Shares

BEGIN_S = 1_000.0
HIGH, MEDIUM, LOW = Level.HIGH, Level.MEDIUM, Level.LOW
Times = Callable[[random.Random, float], float]
"""Gives the seconds that a delivery takes, by when it begins."""


def fixed(mean_s: float) -> Times:
    return lambda rolls, now_s: mean_s


def random_about(mean_s: float) -> Times:
    return lambda rolls, now_s: rolls.expovariate(1 / mean_s)


@dataclass(eq=False)
class Lane:
    level: Level
    times: Times
    quota: int = 1
    waits: Callable[[float], bool] | None = None
    """Tells if it has something at a time; it always has, if this is not given."""
    landed_at: list[float] = field(default_factory=list)
    in_flight: int = 0
    held_s: float = 0.0

    def rate(self, start_s: float, end_s: float) -> float:
        return sum(start_s <= at < end_s for at in self.landed_at) / (end_s - start_s)


class Sim:
    """`batch`: how many pushes share a call, of one lane alone unless it `mixes` them."""

    def __init__(
        self,
        lanes: Iterable[Lane],
        slots: int,
        *,
        batch: int = 1,
        mixes: bool = False,
        seed: int = 1,
        weights: Weights | None = None,
    ) -> None:
        self.lanes = list(lanes)
        self.slots = self.free = slots
        self.scheduler: Scheduler[Lane] = Scheduler(weights, slots)
        self.shares: Shares[Lane] = Shares(self.scheduler, slots, ran_s=lambda: 0.0)
        self.picks: list[Lane] = []
        self.picked_at: list[float] = []
        self.ever_slow: set[Lane] = set()
        self.most_held = dict.fromkeys(Level, 0)
        self._batch = batch
        self._mixes = mixes
        self._rolls = random.Random(seed)
        self._now_s = self._next_look_s = BEGIN_S
        self._flying: dict[Lane, None] = {}
        self._levels_held = dict.fromkeys(Level, 0)
        self._landings: list[tuple[float, int, list[Lane], OccupiedSlots]] = []
        self._order = itertools.count()
        for lane in self.lanes:
            self.scheduler.add(lane, lane.level, lane.quota)
            if lane.waits is None:
                self.scheduler.ready(lane)

    def run(self, until_s: float, count_from_s: float = 0.0) -> Sim:
        """Until then since its begin; what is held counts from `count_from_s` on."""
        end_s = BEGIN_S + until_s
        while True:
            passed_s = self._now_s - BEGIN_S
            for lane in self.lanes:
                if lane.waits is not None:
                    (self.scheduler.ready if lane.waits(passed_s) else self.scheduler.rest)(lane)
            self.shares.look(self._now_s)
            if self._now_s >= self._next_look_s:
                self._next_look_s = self._now_s + 0.25
                self.ever_slow |= {slow.lane for slow in self.shares.slow()}
            self._fill(passed_s)
            if self._now_s >= end_s:
                return self
            soonest_s = self._landings[0][0] if self._landings else end_s
            following_s = min(soonest_s, self._now_s + 0.25, end_s)
            if passed_s >= count_from_s:
                for lane in self._flying:
                    lane.held_s += lane.in_flight * (following_s - self._now_s)
            self._now_s = following_s
            while self._landings and self._landings[0][0] <= self._now_s:
                self._land(*heapq.heappop(self._landings)[2:])

    def sleep(self, seconds: float) -> None:
        """This process is stopped for so long, and the sink with it."""
        self._now_s += seconds
        self._landings = [(at_s + seconds, *rest) for at_s, *rest in self._landings]

    def _land(self, jobs: list[Lane], hold: OccupiedSlots) -> None:
        self.shares.gave(self._now_s, hold)
        for level, count in Counter(lane.level for lane in jobs).items():
            self.scheduler.slots_freed(level, count)
        self.free += len(jobs)
        for lane in jobs:
            lane.in_flight -= 1
            self._levels_held[lane.level] -= 1
            if not lane.in_flight:
                del self._flying[lane]
            lane.landed_at.append(self._now_s - BEGIN_S)

    def _fill(self, passed_s: float) -> None:
        jobs: list[Lane] = []
        while self.free > len(jobs) and (lane := self.scheduler.pick()) is not None:
            self.scheduler.charge()
            jobs.append(lane)
        self.free -= len(jobs)
        self.picks += jobs
        self.picked_at += [passed_s] * len(jobs)
        for lane in jobs:
            lane.in_flight += 1
            self._flying[lane] = None
            self._levels_held[lane.level] += 1
            most = max(self.most_held[lane.level], self._levels_held[lane.level])
            self.most_held[lane.level] = most
        if self._mixes:
            groups = [jobs] if jobs else []
        else:
            groups = [[lane] * count for lane, count in Counter(jobs).items()]
        for group in groups:
            for start in range(0, len(group), self._batch):
                self._launch(group[start : start + self._batch])

    def _launch(self, jobs: list[Lane]) -> None:
        hold = self.shares.took(self._now_s, jobs)
        takes_s = max(lane.times(self._rolls, self._now_s - BEGIN_S) for lane in jobs)
        heapq.heappush(self._landings, (self._now_s + takes_s, next(self._order), jobs, hold))

    def held(self, level: Level, seconds: float) -> float:
        """Slots that the level held, on average over so many seconds."""
        return sum(lane.held_s for lane in self.lanes if lane.level is level) / seconds

    def rate(self, level: Level, start_s: float, end_s: float) -> float:
        return sum(lane.rate(start_s, end_s) for lane in self.lanes if lane.level is level)

    def share_error(self) -> int:
        """In any window of 100 picks, from the entitled count of 6:3:1."""
        levels = [lane.level for lane in self.picks]
        entitled = {HIGH: 60, MEDIUM: 30, LOW: 10}
        counts = Counter(levels[:100])
        worst = max(abs(counts[level] - entitled[level]) for level in Level)
        for old, new in zip(levels, levels[100:], strict=False):
            counts[old] -= 1
            counts[new] += 1
            worst = max(worst, *(abs(counts[level] - entitled[level]) for level in Level))
        return worst


def five_each(times: Times, **others: Times) -> list[Lane]:
    """Five lanes a level; `others` by level's name, or by name and number."""
    return [
        Lane(level, others.get(f"{level.value}{number}", others.get(level.value, times)))
        for level in Level
        for number in range(5)
    ]
