"""What is known of a task and of all that it shares its sink with, at one time: values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pushlane.core.task import Progress, Task, Weights
from pushlane.lanes.ports import Delayed
from pushlane.model.due import PutOff, Waiting, waiting_of
from pushlane.model.limits import Limits, Subject
from pushlane.model.load import SinkLoad, Standing, sink_now
from pushlane.model.presence import Process
from pushlane.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A task, and all that bears on when it goes.

    `others` are the other tasks that are not finished and go to its first sink. `unread_limits`
    names the limits that cannot be read. `spent` is what
    limits of all of these, of apps and of the sink count of totals, by subject and name.
    `observed_per_s` is how fast it went between two looks. `waiting` counts messages on its lane,
    `later` those on its later lane, where pushes wait for their time, `at_later` those that went on
    to sinks behind the first, by sink: of one that is not named some may have. `put_off` is what
    was noted of pushes that wait, `delayed` what the broker tells of them, if it does. `knows_rows`
    is set where no push can turn out to have a zone or a start that is not noted.
    `settings` are those of who asks. `is_suppressing` tells that recipients are suppressed that it
    may have had. `died_of` counts its dead pushes by reason.
    """

    task: Task
    progress: Progress
    others: Sequence[Standing]
    weights: Weights
    processes: Sequence[Process]
    now_ms: int
    limits: Limits = field(default_factory=dict)
    unread_limits: Sequence[str] = ()
    spent: Mapping[Subject, Mapping[str, float]] = field(default_factory=dict)
    observed_per_s: float | None = None
    is_stalled: bool = False
    waiting: int = 0
    later: int = 0
    at_later: Mapping[str, int] = field(default_factory=dict)
    put_off: Sequence[PutOff] = ()
    delayed: Delayed | None = None
    knows_rows: bool = False
    settings: Settings | None = None
    is_suppressing: bool = False
    died_of: Mapping[str, int] = field(default_factory=dict)

    @property
    def left(self) -> int | None:
        """Its pushes not finished; None while its total is not known."""
        return None if self.task.total is None else self.task.total - self.progress.finished

    @property
    def waiting_notes(self) -> list[PutOff]:
        """The notes of pushes whose time has not come yet."""
        return [one for one in self.put_off if one.waits(self.now_ms)]

    @property
    def waits(self) -> list[Waiting]:
        """The waiting pushes by reason; capped at how many wait in all, where that is known."""
        found = waiting_of(self.waiting_notes, self.now_ms)
        if len(found) != 1 or self.task.pooled or self.task.reached:
            return found
        pushes = min(found[0].pushes, self.later)
        return [found[0]._replace(pushes=pushes)] if pushes else []

    @property
    def later_unnoted(self) -> int:
        """The number of messages on its later lane whose reason to wait is not known."""
        return max(0, self.later - sum(one.pushes for one in self.waits))

    @property
    def may_go(self) -> int | None:
        """Its pushes that do not wait for their time; None while its total is not known."""
        return None if self.left is None else max(0, self.left - self.later)

    @property
    def all_wait(self) -> bool:
        """True when all that is left of it waits for its time."""
        if not self.later or self.has_moved_on:
            return False
        return self.may_go == 0 or not (self.waiting or self.task.pooled)

    @property
    def has_moved_on(self) -> bool:
        """True when all that is left of it waits at sinks behind its first."""
        is_elsewhere = self.task.total is not None and any(self.at_later.values())
        return is_elsewhere and not (self.task.pooled or self.waiting or self.later)

    @property
    def sinks_here(self) -> list[str]:
        """The sinks at which pushes of it are, or may be, in the order of its chain."""
        first = [] if self.has_moved_on else [self.task.chain[0]]
        reached = [name for name in self.task.reached if self.at_later.get(name, 1)]
        return list(dict.fromkeys((*first, *reached)))

    @property
    def lane_waits(self) -> list[str]:
        """List what processes say that its lanes wait for, each thing once."""
        lanes = {self.task.lane, *self.task.own_lanes()}
        waits = (one for process in self.processes for one in process.waiting)
        return list(dict.fromkeys(one.why for one in waits if one.lane in lanes))

    @property
    def has_uncharged(self) -> bool:
        """True when pushes of it may still have to be charged to totals: those that never went.

        Totals are charged when a push goes for the first time, so it is still on the first lane.
        """
        return self.left != 0 and ("budget" in self.lane_waits or self.waiting > 0)

    def is_later(self, sink: str) -> bool:
        """Return whether its pushes get to a sink only after its first one."""
        return sink != self.task.chain[0]

    @property
    def load(self) -> SinkLoad:
        """Return what its first sink has to do, the task itself included."""
        mine = Standing(self.task, self.left, self.has_moved_on, self.later)
        load = self._load_at(self.task.chain[0], [*self.others, mine])
        if not self.spent:
            return load
        may_go = [one for one in load.standings if not load.spent_totals(one.task)]
        is_mine_charged = mine in load.standings and mine not in may_go and not self.has_uncharged
        return replace(load, standings=[*may_go, mine] if is_mine_charged else may_go)

    def load_at(self, sink: str) -> SinkLoad:
        """Return what a sink of its chain has to do: of one behind the first no tasks are known."""
        return self._load_at(sink, []) if self.is_later(sink) else self.load

    def _load_at(self, sink: str, standings: Sequence[Standing]) -> SinkLoad:
        return SinkLoad(
            sink=sink_now(self.processes, sink),
            standings=[one for one in standings if one.is_active()],
            weights=self.weights,
            limits=self.limits,
            spent=self.spent,
            now_ms=self.now_ms,
        )


def unserved_sinks(task: Task, processes: Sequence[Process]) -> list[str]:
    """Return the sinks that pushes of the task wait at and that no process serves."""
    served = {name for process in processes for name in process.sink_names}
    here = dict.fromkeys((task.chain[0], *task.reached))
    return [name for name in here if name not in served]
