"""Tell whether a push may go out now: asked at the last moment, when it has a slot.

What may not is taken care of here: buried, counted, forwarded, kept for later, or left to a process
that can read it.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane.dispatcher.budgets.budget_gate import BudgetGate
from pushlane.dispatcher.guards.key_order import KeyOrder
from pushlane.dispatcher.job import Job
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.settlement.outcomes import Outcomes
from pushlane.dispatcher.settlement.settler import Settler, dead_push
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.task_lookups import TaskLookups
from pushlane.lanes.deferral import due_ms, hop_s, wait_of
from pushlane.lanes.errors import UnknownFormat
from pushlane.lanes.push import Kind, Outcome, Push
from pushlane.lanes.task import State, Task
from pushlane.lanes.task_transitions import now_ms


class Admission:
    """Lets pushes go, and takes care of those that may not."""

    def __init__(
        self,
        sink: str,
        tasks: KnownTasks,
        lookups: TaskLookups,
        ring: LaneRing,
        settler: Settler,
        outcomes: Outcomes,
        key_order: KeyOrder,
        gate: BudgetGate,
        stats: Stats,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._sink = sink
        self._outcomes = outcomes
        self._tasks = tasks
        self._lookups = lookups
        self._ring = ring
        self._settler = settler
        self._key_order = key_order
        self._gate = gate
        self._budgets = gate.budgets
        self._stats = stats
        self._clock_ms = clock_ms

    def admit(self, lane: OpenLane, taken: Held) -> Job | None:
        """Return the push as a job, or None when it is not to be sent now and is taken care of."""
        push = taken.push
        if push is None:
            self._set_aside(lane, taken)
            return None
        task = self._tasks.find(push.task_id)
        if task is None:
            self._lookups.ask(push.task_id, lane, taken)
            return None
        is_plain = task.state is State.RUNNING and task.lane == lane.name and not task.expires_at_ms
        if not (is_plain or self._may_move(lane, taken, push, task)):
            return None
        is_over = push.expires_at_ms != 0 and self._is_past(push.expires_at_ms)
        if not is_over and (task.not_before_ms or push.not_before_ms or task.quiet):
            now = self._clock_ms()
            if (due := due_ms(task, push, now)) > now:
                self._stats.deferred += 1
                wait = wait_of(task, push, due, now)
                self._settler.later(lane, taken, push, taken.body, hop_s(due, now), wait=wait)
                return None
        if task.ordered and not self._key_order.may_go(lane, taken, push, task):
            return None
        if is_over:  # in its turn: what comes after it waits for that, too
            self._finish(Job(lane, taken, push, task), Kind.EXPIRED)
            return None
        job = Job(lane, taken, push, task)
        if push.addresses is not None and not push.address(self._sink):
            lacking = Outcome.dead(f"no address for sink {self._sink}")
            self._outcomes.settle(job, self._outcomes.passed_on(job, lacking))
            return None
        if self._budgets.is_limited and not self._gate.may_go(job):
            return None
        return job

    def _set_aside(self, lane: OpenLane, taken: Held) -> None:
        """Bury a push that cannot be read, unless it is only this version that cannot."""
        if isinstance(taken.error, UnknownFormat):
            self._stats.unknown_format += 1
            self._ring.leave(lane, taken.error)
            return
        raw, reason = taken.message.raw(taken.place), f"malformed: {taken.error}"
        task_id = taken.message.task_id
        task = self._tasks.find(task_id)
        if task_id and task is None:
            self._lookups.ask(task_id, lane, taken)
            return
        if task is not None and task.state.is_terminal:
            self._finish(Job(lane, taken, Push(task_id, taken.seq, ""), task), Kind.DROPPED)
            return
        self._stats.malformed += 1
        if task is None or (task.total is not None and taken.seq > task.total):
            self._settler.bury(lane, taken, dead_push("", 0, 0, reason, raw))
            return
        job = Job(lane, taken, Push(task_id, taken.seq, ""), task)
        self._outcomes.malformed(job, dead_push(task_id, taken.seq, 0, reason, raw))

    def _may_move(self, lane: OpenLane, taken: Held, push: Push, task: Task) -> bool:
        """Tell whether the task's state, expiry and lane let the push go; if not, take care of it.

        Asked only of a task with which something is the matter, as most pushes are of none.
        """
        if task.state.is_terminal:
            kind = Kind.EXPIRED if task.state is State.EXPIRED else Kind.DROPPED
            reason = "" if kind is Kind.EXPIRED else f"task {task.state}"
            self._finish(Job(lane, taken, push, task), kind, reason)
        elif self._is_past(task.expires_at_ms):
            self._finish(Job(lane, taken, push, task), Kind.EXPIRED)
        elif task.lane_at(self._sink) != lane.name:
            self._stats.forwarded += 1
            self._settler.move(lane, taken, push, task.lane_at(self._sink), taken.body)
        elif task.state is State.PAUSED:
            self._ring.hold(lane, taken)
        else:
            return True
        return False

    def _finish(self, job: Job, kind: Kind, reason: str = "") -> None:
        self._stats.outcomes[job.lane.level, kind] += 1
        self._settler.finish(job, kind, reason)

    def _is_past(self, at_ms: int) -> bool:
        return at_ms != 0 and at_ms <= self._clock_ms()
