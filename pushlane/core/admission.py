"""Tells whether a push may go out now: asked at the last moment, when a slot is free for it.

What may not is taken care of here, or by a gate: ended, moved, kept for later, or left to a process
that can read it. Gates and guards are chosen once for a task: for most none has anything to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pushlane.core.errors import UnknownFormat
from pushlane.core.lane import Job, Why
from pushlane.core.lanes import Lanes
from pushlane.core.ports import Counts
from pushlane.core.push import EXPIRED, Kind, Outcome, Push
from pushlane.core.settle import Settler
from pushlane.core.task import State, Task, now_ms

_MOST_CHOICES = 20_000


class Option(Protocol):
    """Something that concerns some tasks only. It is asked which, once for each, and never blocks.

    When the answer may be another one from now on, it calls `changed`, which is set for it.
    """

    changed: Callable[[], None]

    def concerns(self, task: Task) -> bool:
        """Tell whether it has a say about the pushes of a task."""

    def concerns_push(self, push: Push) -> bool:
        """Tell whether it has a say about a push for what that says itself, whatever its task."""


class Gate(Option, Protocol):
    """Keeps some pushes back before they take a slot, so that they cost their lane no turn."""

    def lets(self, job: Job, end: Outcome | None) -> bool:
        """Tell whether a push may go on; one that may not is put off, parked or given back here.

        With an `end` it is not sent: once all gates let it go on, it ends so. A gate that keeps an
        order has it wait for its turn all the same; others have nothing to keep it for.
        """

    def took_back(self, jobs: Sequence[Job]) -> None:
        """Hear of pushes that went to no sink after all, of which some may be this gate's."""


class Guard(Option, Protocol):
    """Keeps some pushes from their delivery while they hold a slot, a batch at a time.

    What it remembers of those it let go is its own.
    """

    async def admit(self, jobs: Sequence[Job]) -> list[Job]:
        """Return those that may go now, in their order, and take care of the others."""

    async def conclude(self, jobs: Sequence[Job], outcomes: Sequence[Outcome | None]) -> None:
        """Learn what is to be settled of pushes that were admitted, None for those not sent."""

    async def run(self) -> None:
        """Answer who asks, until cancelled."""


_Choice = tuple[Task | None, tuple[Gate, ...], tuple[Guard, ...]]
_NOTHING: _Choice = (None, (), ())


class Options:
    """The gates and guards of a line, in the order in which they are asked."""

    def __init__(self, gates: Sequence[Gate], guards: Sequence[Guard]) -> None:
        self.gates = tuple(gates)
        self.guards = tuple(guards)
        self._chosen: dict[str, _Choice] = {}  # for a task as it was then, and its pushes with keys
        for option in (*self.gates, *self.guards):
            option.changed = self._chosen.clear

    def of(self, task: Task, push: Push) -> tuple[tuple[Gate, ...], tuple[Guard, ...]]:
        """Return those that have a say about a push: for most neither has any."""
        place = task.id + "~key" if push.key else task.id
        known, gates, guards = self._chosen.get(place, _NOTHING)
        if known is not task:
            _, gates, guards = self._chosen[place] = self._choose(task, push.key)
        if push.not_before_ms or push.due_at_ms or push.collapse or push.strikes:
            gates = tuple(one for one in self.gates if one in gates or one.concerns_push(push))
            guards = tuple(one for one in self.guards if one in guards or one.concerns_push(push))
        return gates, guards

    def _choose(self, task: Task, key: str) -> _Choice:
        if len(self._chosen) >= _MOST_CHOICES:
            self._chosen.clear()
        push = Push(task.id, 1, "", key=key)
        gates = tuple(one for one in self.gates if one.concerns(task) or one.concerns_push(push))
        guards = tuple(one for one in self.guards if one.concerns(task) or one.concerns_push(push))
        return task, gates, guards


class Admission:
    """Lets pushes go, and takes care of those that may not.

    `find` gives this process's view of a task; `look_up` takes a push of a task that it has not
    heard of, parks it and gives it back when it has. `clock_ms` tells the time in Unix ms.
    """

    def __init__(
        self,
        find: Callable[[str], Task | None],
        look_up: Callable[[Job], None],
        options: Options,
        lanes: Lanes,
        settler: Settler,
        counts: Counts,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._find = find
        self._look_up = look_up
        self._options = options
        self._lanes = lanes
        self._settler = settler
        self._counts = counts
        self._clock_ms = clock_ms

    def admits(self, job: Job) -> bool:
        """Tell whether a push is to be sent now; else it is taken care of."""
        if job.error is not None:
            self._set_aside(job, job.error)
            return False
        push = job.push
        task = self._find(push.task_id)
        if task is None:
            self._look_up(job)
            return False
        job.task = task
        is_plain = (
            task.state is State.RUNNING and task.lane == job.lane.name and not task.expires_at_ms
        )
        if not (is_plain or self._may_move(job, task)):
            return False
        gates, job.guards = self._options.of(task, push)
        is_usual = not push.expires_at_ms and push.addresses is None
        end = None if is_usual else self._end_of(task.dated(push))
        for gate in gates:
            if not gate.lets(job, end):
                return False
        if end is not None:
            self._end(job, end)
            return False
        return True

    def took_back(self, jobs: Sequence[Job]) -> None:
        """Hear of pushes that were admitted and did not go after all."""
        for gate in self._options.gates:
            gate.took_back(jobs)

    def _end_of(self, push: Push) -> Outcome | None:
        """Return how a push ends in its turn, without being sent; None when it goes."""
        if push.expires_at_ms != 0 and self._is_past(push.expires_at_ms):
            return EXPIRED
        if push.addresses is not None and not push.address(self._settler.sink):
            return Outcome.dead(f"no address for sink {self._settler.sink}")
        return None

    def _end(self, job: Job, end: Outcome) -> None:
        if end.kind is Kind.EXPIRED:
            self._settler.end(job, Kind.EXPIRED, end.reason)
        else:
            self._settler.settle(job, self._settler.passed_on(job, end))

    def _set_aside(self, job: Job, error: Exception) -> None:
        """Bury a push that cannot be read, unless it is only this version that cannot."""
        if isinstance(error, UnknownFormat):
            self._counts.unknown_format += 1
            self._lanes.leave(job, error)
            return
        task_id = job.message.task_id
        task = self._find(task_id)
        if task_id and task is None:
            self._look_up(job)
            return
        if task is not None:
            job.task = task
            if task.state.is_terminal:
                self._settler.end(job, Kind.DROPPED, f"task {task.state}")
                return
        self._counts.malformed += 1
        if task is None or 0 < task.highest_seq < job.push.seq:
            self._settler.bury_unknown(job)
        else:
            self._settler.bury_malformed(job)

    def _may_move(self, job: Job, task: Task) -> bool:
        """Tell whether the task's state, expiry and lane let the push go; if not, take care of it.

        Asked only of a task with which something is the matter, as most pushes are of none.
        """
        if task.state.is_terminal:
            kind = Kind.EXPIRED if task.state is State.EXPIRED else Kind.DROPPED
            self._settler.end(job, kind, f"task {task.state}")
        elif self._is_past(task.expires_at_ms):
            self._settler.end(job, Kind.EXPIRED, EXPIRED.reason)
        elif (lane := task.lane_at(self._settler.sink)) != job.lane.name:
            self._counts.forwarded += 1
            self._settler.move(job, lane)
        elif task.state is State.PAUSED:
            job.lane.give_back(job)
            job.lane.block(Why.HELD)
        else:
            return True
        return False

    def _is_past(self, at_ms: int) -> bool:
        return at_ms != 0 and at_ms <= self._clock_ms()
