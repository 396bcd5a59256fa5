"""Gives the STATE and REASON of a task, the same wherever a task is shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushlane.core.task import Progress, State, Task
from pushlane.diagnosis.cause import clock, due_text
from pushlane.diagnosis.causes import stalled_advice
from pushlane.diagnosis.deaths import short_deaths_text
from pushlane.diagnosis.later import waits_text, what_text
from pushlane.model.due import PutOff, Waiting, waiting_of
from pushlane.model.load import quiet_until, sink_now
from pushlane.model.presence import Process, Resting

SCHEDULED = "scheduled"
STALLED = "stalled"
WAITING = "waiting"
RESTING = "resting"
FAILING = "failing"
SHOWN_STATES = (SCHEDULED, STALLED, WAITING, RESTING, FAILING)
"""The states in which people see a task that is stored as running."""

STORED_AS = {
    **dict.fromkeys(SHOWN_STATES, (State.RUNNING,)),
    STALLED: (State.SUBMITTED, State.RUNNING, State.PAUSED),
}
"""The states in which tasks are stored that are shown so."""

_FEW_DEAD = 20
_DAY_MS = 86_400_000


class TaskStatus(NamedTuple):
    """The state that a task is shown in, and why, empty where there is nothing to say."""

    state: str
    reason: str = ""


class TaskStatuses:
    """Says how tasks stand, by what these processes say of themselves; sinks are looked at once."""

    def __init__(self, processes: Sequence[Process], now_ms: int) -> None:
        self._processes = [one for one in processes if one.kind == "dispatcher"]
        self._now_ms = now_ms
        self._sinks: dict[str, TaskStatus | None] = {}

    def of(
        self,
        task: Task,
        progress: Progress,
        put_off: Sequence[PutOff],
        died_of: Mapping[str, int],
        *,
        is_stalled: bool,
    ) -> TaskStatus:
        """Return how a task stands: what its pushes died of is told first.

        `put_off` is what was noted of pushes that wait, `died_of` counts dead ones by reason.
        """
        stands = self._stands(task, progress, put_off, is_stalled=is_stalled)
        is_told = task.stopped and task.state is State.PAUSED
        deaths = "" if is_told else short_deaths_text(progress, died_of)
        return stands._replace(reason="; ".join(filter(None, (deaths, stands.reason))))

    def _stands(
        self, task: Task, progress: Progress, put_off: Sequence[PutOff], *, is_stalled: bool
    ) -> TaskStatus:
        if is_stalled:
            return TaskStatus(STALLED, ": ".join(stalled_advice(task)))
        if task.state is not State.RUNNING:
            return TaskStatus(task.state.value, task.reason)
        if task.is_scheduled(self._now_ms):
            return TaskStatus(SCHEDULED, f"starts {due_text(task.not_before_ms, self._now_ms)}")
        found = (
            self._at_sink(task),
            failing(task, progress),
            self._resting(task, progress, put_off),
        )
        return next(
            (one for one in found if one is not None), TaskStatus(State.RUNNING, task.reason)
        )

    def _at_sink(self, task: Task) -> TaskStatus | None:
        """Return why no push goes to its first sink, or fewer than there are; None when they go."""
        sink = task.chain[0]
        if sink not in self._sinks:
            self._sinks[sink] = self._sink_status(sink)
        return self._sinks[sink]

    def _sink_status(self, sink: str) -> TaskStatus | None:
        if not self._processes:
            return TaskStatus(WAITING, "no dispatcher runs: pushlane dispatch")
        stands = sink_now(self._processes, sink).stands
        if not stands:
            return TaskStatus(
                WAITING, f"nobody serves sink {sink}: pushlane dispatch --serve {sink}"
            )
        resting = [one.resting for one in stands if one.resting is not None]
        if len(resting) < len(stands):
            return None
        first = min(resting, key=lambda one: one.since_ms)
        if all(one.is_shut for one in resting):
            return TaskStatus(WAITING, f"sink {sink} rests: {_since(first, self._now_ms)}")
        return TaskStatus(
            State.RUNNING, f"sink {sink} gets fewer pushes: {_since(first, self._now_ms)}"
        )

    def _resting(
        self, task: Task, progress: Progress, notes: Sequence[PutOff]
    ) -> TaskStatus | None:
        """Return until when all of the task waits for its time; None while some of it may go."""
        waits = waiting_of(notes, self._now_ms)
        left = None if task.total is None else task.total - progress.finished
        if waits and left is not None and left <= sum(one.pushes for one in waits):
            return TaskStatus(RESTING, waits_line(waits, left, self._now_ms))
        if task.quiet and not task.has_own_times:
            until_ms = quiet_until(task, self._now_ms)
            if until_ms:
                until = due_text(until_ms, self._now_ms, task.zone)
                return TaskStatus(RESTING, f"quiet hours {task.quiet} end {until}")
        return None


def waits_line(waits: Sequence[Waiting], left: int, now_ms: int) -> str:
    """Return in one line what pushes wait for; of one reason no more than are left."""
    if len(waits) == 1:
        one = waits[0]._replace(pushes=min(left, waits[0].pushes))
        return waits_text(one, what_text(one.reason), now_ms)
    return "; ".join(waits_text(one, what_text(one.reason), now_ms) for one in waits)


def failing(task: Task, progress: Progress) -> TaskStatus | None:
    """Return that a task is failing: half of what ended or more is dead."""
    dead, ended = progress.dead, progress.finished
    if dead < _FEW_DEAD or 2 * dead < ended:
        return None
    return TaskStatus(FAILING, f"pushlane dead list --task {task.id}")


def _since(resting: Resting, now_ms: int) -> str:
    """Return why something rests, and since when."""
    is_today = now_ms - resting.since_ms < _DAY_MS
    text = due_text(resting.since_ms, now_ms) if is_today else clock(resting.since_ms)
    return f"{resting.why} since {text}"
