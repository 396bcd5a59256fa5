"""One sentence of who does not get what they are entitled to, what is in the way, what mends it.

Pure. It is about the tasks that it is given, so that it can be told to who sees no others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from shlex import quote

from msgspec.structs import replace as with_fields

from pushlane.core.task import State
from pushlane.diagnosis.expiring import expiring_text
from pushlane.diagnosis.overview import binding_limits
from pushlane.diagnosis.preview import EndMoved, Flows, compare
from pushlane.diagnosis.situation import resting_since
from pushlane.model.limits import Limit, Subject
from pushlane.model.states import FAILING, STALLED
from pushlane.model.task_changes import PAUSED_AT_SUBMIT
from pushlane.now.picture import Picture, SinkPicture, TaskPicture

UNSERVED, RESTS, LIMITED, SPENT, LATE = "unserved", "rests", "limited", "spent", "late"
_MOST_OF_A_KIND, _SHOWN_OF_A_KIND = 100, 5
_LITTLE = 0.8
_ENOUGH = 40.0  # pushes that were due while they were counted
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Held:
    """Something that keeps tasks from what they would get; `command` mends it, or shows more.

    `kind` says in which way: a state of a task, or one of those below. `subject` names it like a
    limit does: `sink/NAME`, `app/NAME`, `task/ID`; empty for all. `since_ms` is Unix ms, 0 where
    nobody knows. `limit` is whose rate it is, at `sink`, where one holds. What `is_wanted` was
    paused by somebody. `app` is whose task it is, empty where it is none. `reason` is `why`
    without what changes from look to look, empty where nothing does.
    """

    kind: str
    subject: str
    why: str
    command: str
    since_ms: int = 0
    limit: Subject | None = None
    sink: str = ""
    is_wanted: bool = False
    app: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the fields that are the same from look to look."""
        return self.kind, self.subject, self.sink


@dataclass(frozen=True)
class Verdict:
    """How it stands in one sentence, the command that shows more, and what holds most, if any."""

    text: str
    command: str = ""
    hold: Held | None = None


def held(now: Picture, tasks: Sequence[TaskPicture]) -> list[Held]:
    """Return what holds any of these tasks, what holds most of them first.

    Of tasks that expire too early, are stalled, fail or are paused, it has a hundred each.
    """
    sinks = {one.sink for one in tasks}
    seen = [one for one in now.sinks if one.name in sinks]
    found = {(one.key, one.why): one for one in (*_sinks(now, seen), *_limits(seen, tasks))}
    states: dict[str, list[TaskPicture]] = {STALLED: [], FAILING: [], State.PAUSED: []}
    for one in tasks:
        if one.status.state in states:
            states[one.status.state].append(one)
    held_tasks = (one for some in states.values() for one in _tasks(some))
    return [*found.values(), *islice(_late(tasks, now.at_ms), _MOST_OF_A_KIND), *held_tasks]


def to_show(holds: Sequence[Held]) -> list[Held]:
    """Return what is shown of all that holds tasks: of tasks themselves five of each kind."""
    counts: Counter[str] = Counter()
    found = []
    for one in holds:
        counts[one.kind] += one.kind in (LATE, STALLED, FAILING, State.PAUSED)
        if counts[one.kind] <= _SHOWN_OF_A_KIND:
            found.append(one)
    return found


def _sinks(now: Picture, sinks: Sequence[SinkPicture]) -> Iterator[Held]:
    has_work = [one for one in sinks if any(each.is_active() for each in one.standings)]
    if not any(one.kind == "dispatcher" for one in now.processes):
        if has_work:
            yield Held(UNSERVED, "", "no dispatcher runs", "pushlane dispatch")
        return
    for one in has_work:
        stands, name = one.load.sink.stands, f"sink/{one.name}"
        resting = [each.resting for each in stands if each.resting is not None]
        if not stands:
            yield Held(
                UNSERVED, name, "nobody serves it", f"pushlane dispatch --serve {quote(one.name)}"
            )
        elif resting:
            first = min(resting, key=lambda each: each.since_ms)
            where = f" in {len(resting)} of {len(stands)} processes"
            text = resting_since(first) + (where if len(resting) < len(stands) else "")
            command = f"pushlane sinks test {quote(one.name)}"
            yield Held(RESTS, name, text, command, first.since_ms, reason=first.why)


def _limits(sinks: Sequence[SinkPicture], tasks: Sequence[TaskPicture]) -> Iterator[Held]:
    has_limits = any(one.load.limits for one in sinks)  # without, only a sink can have one
    apps = {one.task.id: one.task.app for one in (tasks if has_limits else ())}
    names = {"task": apps.keys(), "app": {*apps.values()}}
    for sink in sinks:
        for one in sink.standings if sink.load.spent else ():
            for spent in sink.load.spent_totals(one.task):
                if one.task.id in apps:
                    name = str(spent.subject)
                    why = f"held: its {spent.name.replace('_', ' ')} of {spent.most:,g} is spent"
                    yield Held(SPENT, name, why, f"pushlane limit {name}", app=one.task.app)
        if sink.load.sink.rests:  # and no limit is in the way
            continue
        for subject, most_per_s in binding_limits(sink.load, sink.heads, sink.rates):
            name = str(subject)
            if subject.kind == "sink" or subject.name in names[subject.kind]:
                why = f"held by its limit of {most_per_s:,.4g}/s"
                command = f"pushlane limit {quote(name)} --none --preview"
                app = apps[subject.name] if subject.kind == "task" else ""
                yield Held(LIMITED, name, why, command, 0, subject, sink.name, app=app)


def _late(tasks: Sequence[TaskPicture], at_ms: int) -> Iterator[Held]:
    """Yield the tasks that expire before they are through."""
    for one in tasks:
        if one.task.expires_at_ms:
            text = expiring_text(one.task, one.left, one.ends_at_ms, at_ms)
            if text is not None:
                name, command = f"task/{one.task.id}", f"pushlane why {one.task.id}"
                reason = "late: it expires before its end"
                yield Held(LATE, name, f"late: {text}", command, app=one.task.app, reason=reason)


def _tasks(tasks: Sequence[TaskPicture]) -> Iterator[Held]:
    for one in tasks[:_MOST_OF_A_KIND]:
        task, reason = one.task, one.status.reason
        why = f"{one.status.state}: {reason}" if reason else str(one.status.state)
        paused = one.status.state == State.PAUSED
        command = f"pushlane {'resume' if paused else 'why'} {task.id}"
        since_ms = task.stalled_at_ms
        if paused and task.reason == PAUSED_AT_SUBMIT:
            since_ms = task.created_at_ms
        yield Held(
            str(one.status.state),
            f"task/{task.id}",
            why,
            command,
            since_ms,
            is_wanted=paused and not task.stopped,
            app=task.app,
        )


def verdict(now: Picture, tasks: Sequence[TaskPicture], holds: Sequence[Held]) -> Verdict:
    """Say how these tasks stand; what would change it is told by `without`."""
    running = [one for one in tasks if one.task.state is State.RUNNING]
    first = next((one for one in holds if not one.is_wanted), None)
    if first is not None:
        return Verdict(_said(first, running, tasks), first.command, first)
    if not running:
        return _none_runs(tasks)
    for each in running:
        got, due = each.observed_per_s, each.entitled_per_s or 0.0
        is_sure = due * each.counted_s >= _ENOUGH and (each.left or 0) > due
        if got is not None and is_sure and got < _LITTLE * due:
            text = f"{_named(each)} gets {got:,.3g}/s of its fair share of {due:,.3g}/s."
            return Verdict(text, f"pushlane why {each.task.id}")
    return Verdict(_all_well(running, now.at_ms))


def _none_runs(tasks: Sequence[TaskPicture]) -> Verdict:
    """Say what paused tasks hold, of tasks none of which runs."""
    paused = [one for one in tasks if one.task.state is State.PAUSED]
    left = sum(one.left or 0 for one in paused)
    least = "at least " if any(one.left is None for one in paused) else ""
    if not (left or least):
        return Verdict("Nothing waits: no task runs.")
    are = "1 is" if len(paused) == 1 else f"{len(paused):,} are"
    pushes = "1 push" if left == 1 else f"{left:,} pushes"
    text = f"No task runs: {are} paused, with {least}{pushes} left."
    return Verdict(text, "pushlane tasks --state paused")


def _said(one: Held, running: Sequence[TaskPicture], tasks: Sequence[TaskPicture]) -> str:
    """Say what holds tasks, in one sentence."""
    kind, _, name = one.subject.partition("/")
    if not kind:
        waiting = sum(each.left or 0 for each in running)
        return f"{waiting:,} pushes of {_tasks_text(len(running))} wait: {one.why}."
    if kind == "sink":
        left = sum(each.left or 0 for each in running if each.sink == name)
        return f"{left:,} pushes wait at sink {name}: {one.why}."
    return f"{_name(one.subject, tasks)} is {one.why}."


def _all_well(running: Sequence[TaskPicture], at_ms: int) -> str:
    if all(one.observed_per_s is None for one in running):
        return f"How fast {_tasks_text(len(running))} go is known from the second look on."
    if any(one.entitled_per_s is None for one in running):
        return f"{_tasks_text(len(running))}: what their sinks take is unknown yet."
    per_s = sum(one.observed_per_s or 0 for one in running)
    text = f"All get their fair share: {_tasks_text(len(running))}, {per_s:,.0f} pushes/s"
    ends = [one.ends_at_ms for one in running if one.ends_at_ms is not None]
    if len(ends) < len(running):
        return f"{text}."
    return f"{text}; the last ends in {length((max(ends) - at_ms) / 1000)}."


def without(sink: SinkPicture, subject: Subject, seen: Collection[str], flows: Flows) -> str:
    """Say what lifting the rate of a subject at a sink would do, by the model of previews.

    Of the tasks only those of these ids are named.
    """
    limit = sink.load.limits.get(subject, Limit())
    free = replace(
        sink.load,
        limits={**sink.load.limits, subject: _without_rate(limit)},
    )
    before = replace(sink.load, standings=())
    moved = compare(
        before, sink.standings, lambda load: replace(free, standings=load.standings), flows
    )
    ends = [one for one in moved.ends if -one.later_s >= 1]
    sooner = [one for one in ends if one.task.id in seen]
    if not sooner:
        return "Without it no task would end sooner."
    most = min(sooner, key=lambda one: one.later_s)
    others = sum(one.later_s >= 1 for one in moved.ends)
    later = f"{_tasks_text(others)} later" if others else "nobody later"
    return f"Without it {_called(most)} {_sooner(most)}, {later}."


def _sooner(one: EndMoved) -> str:
    if one.later_s == -math.inf:
        return "would end"
    return f"ends {length(-one.later_s)} sooner"


def _without_rate(limit: Limit) -> Limit:
    return with_fields(limit, rate_per_s=None, in_flight=None)


def _called(one: EndMoved) -> str:
    return one.task.name or one.task.id


def _named(one: TaskPicture) -> str:
    return one.task.name or one.task.id


def _name(subject: str, tasks: Sequence[TaskPicture]) -> str:
    """Return what people call a subject: a task by its name."""
    kind, _, name = subject.partition("/")
    if kind != "task":
        return name
    return next((_named(one) for one in tasks if one.task.id == name), name)


def _tasks_text(count: int) -> str:
    return f"{count:,} task{'s' if count != 1 else ''}"


def length(seconds: float) -> str:
    """Return a duration in the largest unit of which it is at least two, as `14 minutes`."""
    for unit, unit_s in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.0f} {unit}s"
    return "1 second"
