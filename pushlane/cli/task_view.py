"""Shows a task with its progress, as `tasks` and `task show` print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.cli.parsing import pushes_text, shown_state
from pushlane.cli.render import Column, age_text, soon_text, time_text
from pushlane.core.task import DeliveryMode, Progress, State, Task, now_ms
from pushlane.diagnosis.causes import FAILING, STALLED, TaskStatus, TaskStatuses
from pushlane.diagnosis.look import is_stalled, put_offs_of, reasons_of
from pushlane.diagnosis.pace import Pace, paces_of
from pushlane.diagnosis.situation import reasons_text
from pushlane.model.presence import Process
from pushlane.model.reasons import Reasons
from pushlane.model.stop_rule import OFF
from pushlane.model.task_changes import settled, settled_reasons

_WHOLE_PER_S = 10

COLUMNS: tuple[Column[TaskView], ...] = (
    Column("TASK", lambda view: view.task.id),
    Column("NAME", lambda view: view.task.name, elastic=True),
    Column("LEVEL", lambda view: view.task.level, spare=11),
    Column(
        "QUOTA",
        lambda view: "-" if view.task.pooled else str(view.task.quota),
        number=True,
        spare=1,
    ),
    Column("STATE", lambda view: view.status.state),
    Column(
        "TOTAL",
        lambda view: "-" if view.task.total is None else f"{view.task.total:,}",
        number=True,
        spare=5,
    ),
    Column("FINISHED", lambda view: f"{view.progress.finished:,}", number=True, spare=6),
    Column("DELIVERED", lambda view: f"{view.progress.delivered:,}", number=True, spare=4),
    Column("DEAD", lambda view: f"{view.progress.dead:,}", number=True, spare=9),
    Column("EXPIRED", lambda view: f"{view.progress.expired:,}", number=True, spare=2),
    Column("DROPPED", lambda view: f"{view.progress.dropped:,}", number=True, spare=3),
    Column("%", lambda view: view.percent_text, number=True),
    Column("RATE", lambda view: view.rate_text, number=True, spare=8),
    Column("ENDS", lambda view: view.ends_text, number=True, spare=10),
    Column("AGE", lambda view: age_text(view.task.created_at_ms, view.at_ms), number=True, spare=7),
    Column("REASON", lambda view: view.status.reason, elastic=True, least=24),
)


class TaskView(msgspec.Struct, frozen=True):
    """The two halves that the registry has of a task, the task and its progress, at one time.

    `status` is how it stands, for people, `pace` how it goes.
    """

    task: Task
    progress: Progress
    at_ms: int
    status: TaskStatus
    is_stalled: bool = False
    reasons: Reasons = Reasons("")
    pace: Pace = Pace()

    @property
    def state(self) -> str:
        """Its state for programs: the stored one, or that it is scheduled or stalled."""
        return STALLED if self.is_stalled else shown_state(self.task, self.at_ms)

    @property
    def left(self) -> int | None:
        """The pushes not finished; None while the total is not known."""
        return None if self.task.total is None else self.task.total - self.progress.finished

    @property
    def percent(self) -> float | None:
        """The percentage of the total that is finished; None while the total is not known."""
        if self.task.total is None:
            return None
        return 100 * self.progress.finished / self.task.total if self.task.total else 100.0

    def as_json(self) -> dict[str, Any]:
        """Return the task's fields and its counts."""
        counts = msgspec.to_builtins(self.progress)
        del counts["task_id"], counts["failed"]
        return {
            **task_fields(self.task),
            **counts,
            "state": self.state,
            "shown_state": self.status.state,
            "shown_reason": self.status.reason,
            "finished": self.progress.finished,
            "percent": None if self.percent is None else round(self.percent, 2),
            "died_of": self.reasons.dead,
            "expired_for": self.reasons.expired,
            "dropped_for": self.reasons.dropped,
            "rate_per_s": None if self.pace.per_s is None else round(self.pace.per_s, 2),
            "eta_s": None if self.pace.ends_in_s is None else round(self.pace.ends_in_s, 1),
        }

    def as_fields(self) -> list[tuple[str, str]]:
        """Return the names and values that `task show` prints, one pair a line."""
        task, progress = self.task, self.progress
        return [
            ("task", task.id),
            ("name", task.name or "-"),
            ("app", task.app),
            ("key", task.key or "-"),
            ("level", task.level),
            ("quota", "- (shares a pool lane)" if task.pooled else str(task.quota)),
            ("state", self.status.state),
            ("reason", self.status.reason or "-"),
            ("lane", task.lane),
            *([("sinks", ", then ".join(task.sinks))] if task.sinks else []),
            ("total", self._total_text()),
            ("finished", f"{progress.finished:,} ({self.percent_text} %)"),
            ("  delivered", f"{progress.delivered:,}"),
            ("  dead", _counted_text(progress.dead, self.reasons.dead)),
            ("  expired", _counted_text(progress.expired, self.reasons.expired)),
            ("  dropped", _counted_text(progress.dropped, self.reasons.dropped)),
            ("rate", self.rate_text),
            ("ends", self.ends_text),
            ("delivery", _delivery_text(task)),
            ("order", "by key" if task.ordered else "-"),
            ("dedupe", "recipient" if task.dedupe else "-"),
            ("stops if", stop_text(task)),
            ("attempts", f"at most {task.max_attempts} a push"),
            ("retention", f"{task.retention_s:g} s after its end"),
            ("created", time_text(task.created_at_ms)),
            *([("stalled", time_text(task.stalled_at_ms))] if task.stalled_at_ms else []),
            ("starts", time_text(task.not_before_ms)),
            ("expires", time_text(task.expires_at_ms)),
            ("quiet", _quiet_text(task)),
            ("ended", time_text(task.finished_at_ms)),
        ]

    def _total_text(self) -> str:
        if self.task.total is not None:
            return f"{self.task.total:,}"
        if self.task.state.is_terminal:
            return f"unknown (it was {self.task.state} before its submit was complete)"
        if self.task.left_with is not None:
            return "- (open: its producer is not running)"
        return "- (its producer goes on)" if self.task.is_fed else "- (still being submitted)"

    @property
    def percent_text(self) -> str:
        return "-" if self.percent is None else f"{int(self.percent)}"

    @property
    def rate_text(self) -> str:
        """Its rate, as `510/s`."""
        per_s = self.pace.per_s
        if per_s is None:
            return "-"
        return f"{per_s:,.0f}/s" if per_s >= _WHOLE_PER_S else f"{per_s:.2g}/s"

    @property
    def ends_text(self) -> str:
        """When it ends, as `in 4m`."""
        left_s = self.pace.ends_in_s
        return "-" if left_s is None else soon_text(left_s)


def _counted_text(pushes: int, reasons: Mapping[str, int]) -> str:
    why = reasons_text(pushes, reasons)
    return f"{pushes:,}: {why}" if why else f"{pushes:,}"


def _delivery_text(task: Task) -> str:
    if task.delivery is DeliveryMode.ONCE:
        return f"{task.delivery} (on unknown: {task.on_unknown})"
    return task.delivery


def stop_text(task: Task) -> str:
    """Return how many dead pushes stop a task, for people."""
    if task.stop_if_dead == OFF:
        return "off"
    again = "; it did, and does not again" if task.stopped else ""
    return f"more than {task.stop_if_dead} are dead{again}"


def _quiet_text(task: Task) -> str:
    if not task.quiet:
        return "-"
    zone = task.zone or "UTC"
    if task.zone_column:
        return f"{task.quiet} (by column {task.zone_column}, else {zone})"
    may_differ = task.zone_column is None or task.is_fed
    return f"{task.quiet} ({zone}{' unless a push has its own zone' if may_differ else ''})"


def task_fields(task: Task) -> dict[str, Any]:
    """Return the task's fields for programs, without hashes of its content and unknown fields."""
    fields: dict[str, Any] = msgspec.to_builtins(replace(task, unknown=msgspec.UNSET))
    del fields["fingerprint"], fields["made_of"]
    return fields


def already_text(task: Task, progress: Progress | None) -> str:
    """Return what has become of the task that a key stands for, as a remark."""
    state, total = shown_state(task, now_ms()), pushes_text(task.total or 0)
    if progress is not None and task.total and not task.state.is_terminal:
        total = f"{100 * progress.finished // task.total} % of {total} ended"
    return f"already submitted as task {task.id} ({state}, {total})"


async def view_of(
    backend: Backend, task_id: str, processes: Sequence[Process] | None = None
) -> TaskView:
    """Return a task with its progress. Raises UnknownTask."""
    found = await backend.presence.list() if processes is None else processes
    [view] = await views_of(backend, [await backend.registry.get(task_id)], found)
    return view


async def with_paces(
    backend: Backend, views: Sequence[TaskView], processes: Sequence[Process]
) -> list[TaskView]:
    """Return the views with how fast the tasks go that run, and when they end."""
    going = [view for view in views if view.status.state in (State.RUNNING, FAILING)]
    paces = await paces_of(backend, [(view.task, view.progress) for view in going], processes)
    return [replace(view, pace=paces.get(view.task.id, view.pace)) for view in views]


async def views_of(
    backend: Backend, tasks: Sequence[Task], processes: Sequence[Process]
) -> list[TaskView]:
    """Return the tasks with their progress in the same order, as they stand by these processes."""
    progress = await backend.registry.progress([task.id for task in tasks])
    put_off = await put_offs_of(backend, tasks)
    at_ms = now_ms()
    reasons = await reasons_of(backend, progress)
    statuses = TaskStatuses(processes, at_ms)
    views = []
    for task, counts in zip(tasks, progress, strict=True):
        stalled = await is_stalled(backend, task, at_ms)
        notes = put_off.get(task.id, ())
        why = reasons[task.id]
        status = statuses.of(task, counts, notes, why.dead, is_stalled=stalled)
        why = settled_reasons(task, counts, why)
        views.append(TaskView(task, settled(task, counts), at_ms, status, stalled, why))
    return views
