"""How tasks are shown: what was asked for, how much of it has ended, how it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import fields, replace

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import DeliveryMode, Level, OnUnknown, Progress, State, Task, now_ms
from pushlane.model.presence import Process
from pushlane.model.reasons import Reasons
from pushlane.model.states import FAILING, STALLED, shown_state
from pushlane.model.task_changes import settled, settled_reasons
from pushlane.operations.session import Session

if TYPE_CHECKING:
    from pushlane.diagnosis.causes import TaskStatuses
    from pushlane.diagnosis.pace import Pace


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task. Times are Unix milliseconds; 0 means unset.

    `state` is the stored one, or `scheduled` or `stalled`. While `recall_ms` is set, what waited
    for a time that is another now is asked anew. It sends up to `quota` pushes in its
    turn, unless it is `pooled`: then it shares a lane with other low tasks. `total` is absent until
    its submit is complete. Once `lane_dropped` nothing of it is kept for a replay. `version` grows
    with every change.
    """

    id: str
    level: Level
    name: str
    key: str
    app: str
    quota: int
    pooled: bool
    state: str
    reason: str
    total: int | None
    max_attempts: int
    delivery: DeliveryMode
    on_unknown: OnUnknown
    not_before_ms: int
    expires_at_ms: int
    quiet: str
    zone: str
    zone_column: str | None
    start_column: str | None
    ordered: bool
    dedupe: bool
    is_fed: bool
    left_with: int | None
    retention_s: float
    sinks: tuple[str, ...]
    stop_if_dead: str
    stopped: bool
    created_at_ms: int
    stalled_at_ms: int
    recall_ms: int
    finished_at_ms: int
    lane_dropped: bool
    version: int

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    def waits_for_start(self, at_ms: int) -> bool:
        """Tell whether its start is still to come."""
        return self.not_before_ms > at_ms

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of its sinks, in the order in which its pushes try them."""
        return self.sinks or (DEFAULT_SINK,)


class ChangedTask(TaskView, frozen=True, kw_only=True):
    """A task that was changed just now. `changed` names the fields that are others than before."""

    changed: Sequence[str]


class SlowAt(msgspec.Struct, frozen=True):
    """A process in which a task is slow: its deliveries hold a slot so many times as long."""

    process: str
    since_ms: int
    times: float


class TaskNow(TaskView, frozen=True, kw_only=True):
    """A task with how many of its pushes have ended, each in which way, and how it goes.

    `shown_state` and `shown_reason` say how it stands, for people. `died_of`, `expired_for` and
    `dropped_for` count by reason. `rate_per_s` and `eta_s` are absent where nobody knows them. So
    are `entitled_per_s`, its fair share now, and `slots`, those that it holds, as processes
    reported up to 5 s ago. Of a running task `unserved` are sinks that its pushes wait at and no
    live process serves. `slow` are processes in which its deliveries hold slots so long that its
    turns come less often.
    """

    delivered: int
    dead: int
    expired: int
    dropped: int
    finished: int
    percent: float | None
    shown_state: str
    shown_reason: str
    died_of: Mapping[str, int]
    expired_for: Mapping[str, int]
    dropped_for: Mapping[str, int]
    unserved: Sequence[str] = ()
    slow: Sequence[SlowAt] = ()
    rate_per_s: float | None = None
    eta_s: float | None = None
    entitled_per_s: float | None = None
    slots: int | None = None

    @property
    def left(self) -> int | None:
        """The pushes not finished; None while the total is not known."""
        return None if self.total is None else self.total - self.finished


_ENDED = frozenset(state for state in State if state.is_terminal)
_SET = (
    *("level", "quota", "not_before_ms", "expires_at_ms"),
    *("quiet", "zone", "stop_if_dead"),
)
_SET_STATES = (State.PAUSED, State.CANCELLED)
_COPIED = tuple(one.name for one in fields(TaskView) if one.name not in ("state", "pooled"))


def view_of(task: Task) -> TaskView:
    """Return a task as it was made just now."""
    return TaskView(**_fields(task, shown_state(task, now_ms())))


def changed_view(at: Session, before: Task, after: Task) -> ChangedTask:
    """Return a task as it is now, and note for the audit what it was."""
    was, now = _noted(before), _noted(after)
    at.changed(f"task/{after.id}", was, now, after.app)
    names = [name for name in now if was[name] != now[name]]
    return ChangedTask(**_fields(after, shown_state(after, now_ms())), changed=names)


def forgotten_view(at: Session, task: Task) -> TaskView:
    """Return a task that is forgotten, and note so for the audit."""
    at.changed(f"task/{task.id}", _noted(task), {}, task.app)
    return view_of(task)


def set_of(task: Task) -> dict[str, Any]:
    """Return what operators set of a task: no change that processes make on their own alters it.

    Its state is part of it while it is paused or cancelled.
    """
    found = {name: getattr(task, name) for name in _SET}
    return {**found, "state": task.state} if task.state in _SET_STATES else found


def _noted(task: Task) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(view_of(task))
    del shown["version"]
    return shown


async def look_at(
    backend: Backend,
    tasks: Sequence[Task],
    processes: Sequence[Process],
    paces: Mapping[str, Pace] | None = None,
    *,
    asks_broker: bool = False,
) -> list[TaskNow]:
    """Return the tasks as they stand by these processes, in the same order.

    `paces` are those that are known, by id; without them they are worked out. With `asks_broker`,
    a task whose pushes have all gone on is shown as it stands at its later sinks.
    """
    from pushlane.diagnosis.causes import TaskStatuses
    from pushlane.diagnosis.look import LaneSlots, is_receiving, is_stalled, put_offs_of, reasons_of
    from pushlane.diagnosis.pace import paces_of
    from pushlane.diagnosis.situation import unserved_sinks

    progress = await backend.registry.progress([task.id for task in tasks])
    put_off, at_ms = await put_offs_of(backend, tasks), now_ms()
    reasons = await reasons_of(backend, progress)
    statuses, slots = TaskStatuses(processes, at_ms), LaneSlots(processes)
    views, going = [], []
    for task, counts in zip(tasks, progress, strict=True):
        stalled = await is_stalled(backend, task, at_ms)
        status = statuses.of(
            task,
            counts,
            put_off.get(task.id, ()),
            reasons[task.id].dead,
            is_stalled=stalled,
            is_receiving=not stalled and await is_receiving(backend, task),
            moved_to=await _moved_to(backend, task, statuses) if asks_broker else (),
        )
        ended = settled(task, counts)
        runs = task.state is State.RUNNING
        going += [(task, ended)] if status.state in (State.RUNNING, FAILING) else []
        views.append(
            TaskNow(
                **_fields(task, STALLED if stalled else shown_state(task, at_ms)),
                **_counted(task, ended, settled_reasons(task, counts, reasons[task.id])),
                shown_state=status.state,
                shown_reason=status.reason,
                unserved=unserved_sinks(task, processes) if runs and processes else (),
                slow=_slow(task, processes),
                slots=slots.of(task) if runs else None,
            )
        )
    known = await paces_of(backend, going, processes) if paces is None else paces
    return [_with_pace(view, known[view.id]) if view.id in known else view for view in views]


def too_late(task: TaskNow, at_ms: int) -> int | None:
    """Return about how many pushes of a task expire before their turn; None if it ends in time."""
    from pushlane.diagnosis.expiring import expiring_pushes

    if task.has_ended or not (task.left and task.eta_s and task.expires_at_ms):
        return None
    ends_ms = at_ms + 1000 * task.eta_s
    return expiring_pushes(task.left, task.expires_at_ms, task.not_before_ms, ends_ms, at_ms)


async def _moved_to(backend: Backend, task: Task, statuses: TaskStatuses) -> Sequence[str]:
    """Return where all waits that is left of a task, if that bears on how it stands."""
    from pushlane.diagnosis.look import moved_to

    if not task.reached or task.state is not State.RUNNING:
        return ()
    if not statuses.is_held_anywhere(task):
        return ()
    try:
        return await moved_to(backend, task)
    except Unreachable:  # the registry says all the rest
        return ()


def _counted(task: Task, ended: Progress, why: Reasons) -> dict[str, Any]:
    return {
        "delivered": ended.delivered,
        "dead": ended.dead,
        "expired": ended.expired,
        "dropped": ended.dropped,
        "finished": ended.finished,
        "percent": _percent(ended.finished, task.total),
        "died_of": why.dead,
        "expired_for": why.expired,
        "dropped_for": why.dropped,
    }


def _slow(task: Task, processes: Sequence[Process]) -> list[SlowAt]:
    """Return the processes in which the task's lane counts as slow."""
    return [
        SlowAt(process.id, one.since_ms, one.times)
        for process in processes
        for one in process.slow
        if one.lane == task.lane
    ]


def _with_pace(view: TaskNow, pace: Pace) -> TaskNow:
    return replace(
        view,
        rate_per_s=_rounded(pace.per_s, 2),
        eta_s=_rounded(pace.ends_in_s, 1),
        entitled_per_s=_rounded(pace.entitled_per_s, 2),
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _percent(finished: int, total: int | None) -> float | None:
    if total is None:
        return None
    return round(100 * finished / total, 2) if total else 100.0


def _fields(task: Task, state: str) -> dict[str, Any]:
    copied = {name: getattr(task, name) for name in _COPIED}
    return {**copied, "state": state, "pooled": task.pooled}
