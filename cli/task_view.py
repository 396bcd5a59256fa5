"""Shows a task with its progress, as `tasks` and `task show` print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from pushlane.cli.parsing import SCHEDULED, pushes_text, shown_state
from pushlane.cli.render import Column, age_text, time_text
from pushlane.cli.stop_if_dead import stop_text
from pushlane.diagnosis.causes import stalled_advice
from pushlane.diagnosis.deaths import reasons_text, short_deaths_text
from pushlane.diagnosis.look import is_stalled
from pushlane.lanes.backend import Backend
from pushlane.lanes.task import DeliveryMode, Progress, State, Task, settled
from pushlane.lanes.task_transitions import now_ms

COLUMNS: tuple[Column[TaskView], ...] = (
    Column("TASK", lambda view: view.task.id),
    Column("NAME", lambda view: view.task.name, elastic=True),
    Column("LEVEL", lambda view: view.task.level),
    Column("QUOTA", lambda view: "-" if view.task.pooled else str(view.task.quota), number=True),
    Column("STATE", lambda view: view.state),
    Column(
        "TOTAL",
        lambda view: "-" if view.task.total is None else f"{view.task.total:,}",
        number=True,
    ),
    Column("FINISHED", lambda view: f"{view.progress.finished:,}", number=True),
    Column("DELIVERED", lambda view: f"{view.progress.delivered:,}", number=True, from_width=100),
    Column("DEAD", lambda view: f"{view.progress.dead:,}", number=True),
    Column("EXPIRED", lambda view: f"{view.progress.expired:,}", number=True, from_width=120),
    Column("DROPPED", lambda view: f"{view.progress.dropped:,}", number=True, from_width=120),
    Column("%", lambda view: view.percent_text, number=True),
    Column("AGE", lambda view: age_text(view.task.created_at_ms, view.at_ms), number=True),
    Column("REASON", lambda view: view.reason or view.start_text, elastic=True, from_width=100),
)


class TaskView(msgspec.Struct, frozen=True):
    """The two halves that the registry has of a task, the task and its progress, at one time."""

    task: Task
    progress: Progress
    at_ms: int
    is_stalled: bool = False
    died_of: Mapping[str, int] = {}

    @property
    def state(self) -> str:
        return "stalled" if self.is_stalled else shown_state(self.task, self.at_ms)

    @property
    def reason(self) -> str:
        reason = ": ".join(stalled_advice(self.task)) if self.is_stalled else self.task.reason
        is_told = self.task.stopped and self.task.state is State.PAUSED
        deaths = "" if is_told else short_deaths_text(self.progress, self.died_of)
        return "; ".join(filter(None, (deaths, reason)))

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
        percent = None if self.percent is None else round(self.percent, 2)
        fields = task_fields(self.task)
        shown = {"state": self.state, "finished": self.progress.finished, "percent": percent}
        return {**fields, **counts, **shown, "died_of": self.died_of}

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
            ("state", self.state),
            ("reason", self.reason or "-"),
            ("lane", task.lane),
            *([("sinks", ", then ".join(task.sinks))] if task.sinks else []),
            ("total", self._total_text()),
            ("finished", f"{progress.finished:,} ({self.percent_text} %)"),
            ("  delivered", f"{progress.delivered:,}"),
            ("  dead", self._dead_text()),
            ("  expired", f"{progress.expired:,}"),
            ("  dropped", self._dropped_text()),
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
            ("quiet", f"{task.quiet} ({task.zone or 'UTC'} unless told)" if task.quiet else "-"),
            ("ended", time_text(task.finished_at_ms)),
        ]

    def _dead_text(self) -> str:
        reasons = reasons_text(self.progress, self.died_of)
        return f"{self.progress.dead:,}" + (f": {reasons}" if reasons else "")

    def _dropped_text(self) -> str:
        """Return how many were dropped; of those that guards dropped, where the reasons are."""
        dropped = self.progress.dropped
        has_reasons = dropped and self.task.state is not State.CANCELLED
        why = f" (why: pushlane report {self.task.id})" if has_reasons else ""
        return f"{dropped:,}{why}"

    def _total_text(self) -> str:
        if self.task.total is not None:
            return f"{self.task.total:,}"
        if self.task.state.is_terminal:
            return f"unknown (it was {self.task.state} before its submit was complete)"
        return "- (its producer goes on)" if self.task.is_fed else "- (still being submitted)"

    @property
    def start_text(self) -> str:
        return f"starts {time_text(self.task.not_before_ms)}" if self.state == SCHEDULED else ""

    @property
    def percent_text(self) -> str:
        return "-" if self.percent is None else f"{int(self.percent)}"


def _delivery_text(task: Task) -> str:
    if task.delivery is DeliveryMode.ONCE:
        return f"{task.delivery} (on unknown: {task.on_unknown})"
    return task.delivery


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


async def view_of(backend: Backend, task_id: str) -> TaskView:
    """Return a task with its progress. Raises UnknownTask."""
    [view] = await views_of(backend, [await backend.registry.get(task_id)])
    return view


async def views_of(backend: Backend, tasks: list[Task]) -> list[TaskView]:
    """Return the tasks with their progress, in the same order."""
    progress = await backend.registry.progress([task.id for task in tasks])
    at_ms = now_ms()
    dying = [counts.task_id for counts in progress if counts.dead]
    deaths = await backend.registry.deaths(dying) if dying else []
    died_of = {one.task_id: one.by_reason for one in deaths}
    return [
        TaskView(
            task,
            settled(task, counts),
            at_ms,
            await is_stalled(backend, task, at_ms),
            died_of.get(task.id, {}),
        )
        for task, counts in zip(tasks, progress, strict=True)
    ]
