"""The last hour: what went, what held it, and the changes in it, of all or of one task.

It is what somebody saw of this process while they looked, and is lost with the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.turns import EVERY_APP
from pushlane.model.audit import entries
from pushlane.model.times import HOUR_MS as HOUR_MS
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.session import Session
from pushlane.operations.tasks import TaskWord

if TYPE_CHECKING:
    from pushlane.core.task import Task
    from pushlane.now.picture import Picture
    from pushlane.now.ring import Point
    from pushlane.now.spans import Span
    from pushlane.now.verdict import Held
    from pushlane.now.view import View

_MARKS, _SPANS, _LOOKED_AT = 200, 200, 2_000


class By(StrEnum):
    """The groups that the last hour is shown by."""

    LEVEL = "level"
    APP = "app"


class PointView(msgspec.Struct, frozen=True):
    """The pushes a second at a moment (Unix ms), by level."""

    at_ms: int
    per_s: Mapping[str, float]


class MarkView(msgspec.Struct, frozen=True):
    """A change that somebody made: of what, from what to what, and when (Unix ms)."""

    at_ms: int
    who: str
    operation: str
    subject: str
    after: Mapping[str, Any]
    before: Mapping[str, Any] = {}


class SpanView(msgspec.Struct, frozen=True):
    """A time (Unix ms) during which something held tasks: `what`, `why` and `kind` as of what is.

    `until_ms` is absent while it holds. It `may_begin_sooner` or `may_end_later` where nobody
    looked before or after. `sink` is where a rate holds.
    """

    what: str
    sink: str
    kind: str
    why: str
    from_ms: int
    until_ms: int | None
    may_begin_sooner: bool
    may_end_later: bool


class HourView(msgspec.Struct, frozen=True):
    """The last hour, as far as somebody looked at this process: since `since_ms` (Unix ms).

    `marks` are the newest changes in it: they are told to operators, as the audit is. `spans` are
    when anything held tasks, the newest of them.
    """

    since_ms: int | None
    points: Sequence[PointView]
    marks: Sequence[MarkView]
    spans: Sequence[SpanView] = ()


class GetHour(Operation[HourView], frozen=True, kw_only=True):
    """Show what went in the last hour by level or app, what held it, and the changes in it.

    It is kept while somebody looks at this process, and is lost with it.
    """

    method, path, role, of = "GET", "/now/hour", Role.VIEWER, Of.APPS

    by: Annotated[By, Meta(description="Names of the lines.")] = By.LEVEL

    async def run(self, at: Session) -> HourView:
        from pushlane.now.view import view_of

        view = view_of(at.backend)
        now = await view.picture(at.backend)
        points = view.hour.since(now.at_ms)
        return HourView(
            since_ms=points[0].at_ms if points else None,
            points=[PointView(one.at_ms, _by(one, self.by, at)) for one in points],
            marks=await _marks(view, now, at),
            spans=_spans(view, now, at),
        )


class TaskPointView(msgspec.Struct, frozen=True):
    """The rate of a task at a moment (Unix ms) beside its entitled one, in pushes a second.

    Absent is what nobody knew.
    """

    at_ms: int
    observed_per_s: float | None
    entitled_per_s: float | None


class FirstEnd(msgspec.Struct, frozen=True):
    """The first push of a task ended after one time and before another (Unix ms)."""

    after_ms: int
    before_ms: int


class TaskHourView(msgspec.Struct, frozen=True):
    """The share of a task in the last hour, at `at_ms` (Unix ms).

    It is kept of the fifty tasks with most, and of those that somebody asks for: `points` are the
    moments of which it is. This process was looked at since `since_ms`, with gaps. `spans` are when
    the task, its app or its sinks were held, and `marks` the changes of these and of levels, for
    operators. `first_end` is absent unless somebody looked just then.
    """

    task: str
    at_ms: int
    since_ms: int | None
    points: Sequence[TaskPointView]
    spans: Sequence[SpanView]
    marks: Sequence[MarkView]
    first_end: FirstEnd | None


class GetTaskHour(Operation[TaskHourView], frozen=True, kw_only=True):
    """Show what a task got in the last hour beside what it was entitled to, and what held it.

    It is kept while somebody looks at this process, and is lost with it.
    """

    method, path, role, of = "GET", "/tasks/{task}/hour", Role.VIEWER, Of.TASK

    task: TaskWord

    async def run(self, at: Session) -> TaskHourView:
        from pushlane.now.view import view_of

        task = await at.task(self.task)
        view = view_of(at.backend)
        view.hour.ask(task.id)
        now = await view.picture(at.backend)
        looked = view.hour.since(now.at_ms)
        rates = ((point.at_ms, point.tasks.get(task.id)) for point in looked)
        subjects = _subjects(task)
        first = view.first_ends.get(task.id)
        return TaskHourView(
            task=task.id,
            at_ms=now.at_ms,
            since_ms=looked[0].at_ms if looked else None,
            points=[TaskPointView(at_ms, *found) for at_ms, found in rates if found is not None],
            spans=_spans(view, now, at, subjects),
            marks=await _marks(view, now, at, subjects),
            first_end=None if first is None else FirstEnd(*first),
        )


def _subjects(task: Task) -> frozenset[str]:
    """Return what bears on how a task goes: itself, its app, its sinks, how levels share."""
    apps = (f"app/{task.app}", f"app/{EVERY_APP}")
    return frozenset(
        (f"task/{task.id}", *apps, "levels", "", *(f"sink/{one}" for one in task.chain))
    )


async def _marks(
    view: View, now: Picture, at: Session, subjects: frozenset[str] | None = None
) -> list[MarkView]:
    """Return the newest changes of the last hour, of these subjects alone if there are any."""
    if not at.caller.access.role.may(Role.OPERATOR):
        return []
    found = await view.once("audit", lambda: entries(at.backend.documents))
    return [
        MarkView(one.at_ms, one.who, one.operation, one.subject, one.after, one.before)
        for _, one in found[:_LOOKED_AT]
        if at.sees(one.app) and one.at_ms > now.at_ms - HOUR_MS and not one.is_look
        if subjects is None or one.subject in subjects
    ][:_MARKS]


def _spans(
    view: View, now: Picture, at: Session, subjects: frozenset[str] | None = None
) -> list[SpanView]:
    """Return those of the last hour that the caller may see, of many the newest, by their begin.

    Of these subjects alone if there are any.
    """
    apps = at.apps
    mine = (one for one in now.tasks if apps is not None and one.task.app in apps)
    sinks = {f"sink/{one.sink}" for one in mine}

    def sees(held: Held) -> bool:
        kind, _, name = held.subject.partition("/")
        if subjects is not None and held.subject not in subjects:
            return False
        if apps is None or not kind:
            return True
        return held.subject in sinks if kind == "sink" else at.sees(held.app or name)

    found = [one for one in view.spans.since(now.at_ms - HOUR_MS) if sees(one.held)]
    return [_span_view(one) for one in sorted(found[-_SPANS:], key=lambda one: one.from_ms)]


def _span_view(one: Span) -> SpanView:
    return SpanView(
        what=one.held.subject,
        sink=one.held.sink,
        kind=one.held.kind,
        why=one.held.reason or one.held.why,
        from_ms=one.from_ms,
        until_ms=None if one.is_open else one.until_ms,
        may_begin_sooner=one.may_begin_sooner,
        may_end_later=one.may_end_later,
    )


def _by(point: Point, by: By, at: Session) -> dict[str, float]:
    found: dict[str, float] = {}
    for (_, level, app), per_s in point.per_s.items():
        if at.sees(app):
            name = level if by is By.LEVEL else app
            found[name] = round(found.get(name, 0.0) + per_s, 2)
    return found
