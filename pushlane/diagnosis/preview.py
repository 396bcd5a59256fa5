"""Compares all ends and shares before and after a change of shares, limits or a task. Pure.

Both are told by the fluid model (`fluid`), from one look at the backlog. Nobody can tell the ends
of tasks whose total is open, of those with pushes that wait for their time or went on to a later
sink, of those whose quiet hours begin first, and of any at a sink of which nothing is known: these
are counted, and not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pushlane.core.task import Level, State, Task
from pushlane.diagnosis.fluid import Flow, flow
from pushlane.diagnosis.situation import quiet_from, waits_by_push
from pushlane.model.load import SinkLoad, Standing

_SAME_S = 1.0
_SAME_PART = 0.001

Parts = Mapping[tuple[Level, str], float]
"""Parts of a sink, from 0 to 1, by level and app."""

Flows = dict[str, tuple[SinkLoad, Flow]]
"""By sink how tasks flow, and the load, without them, by which that was told."""


class EndMoved(NamedTuple):
    """A task's end in seconds from now, before and after; None where it has none, as while paused.

    An end that nobody can tell is in neither. A task that `is_new` has none before, and moves not.
    `task` is as it is after the change.
    """

    task: Task
    before_s: float | None
    after_s: float | None
    is_new: bool = False

    def misses(self, now_ms: int) -> tuple[bool, bool]:
        """Tell whether it is through only after its expiry, before and after the change.

        One that the change ends misses nothing by it.
        """
        expires_ms = self.task.expires_at_ms
        if not expires_ms or self.task.state.is_terminal:
            return False, False
        by_s = (expires_ms - now_ms) / 1000
        before, after = (end_s is None or end_s > by_s for end_s in (self.before_s, self.after_s))
        return before and not self.is_new, after

    @property
    def is_moved(self) -> bool:
        if self.is_new:
            return False
        if self.before_s is None or self.after_s is None:
            return self.before_s is not self.after_s
        return abs(self.after_s - self.before_s) > _SAME_S

    @property
    def is_stopped(self) -> bool:
        """True when the change itself ends or pauses it."""
        return self.task.state is not State.RUNNING

    @property
    def later_s(self) -> float:
        """By how much later it ends; without end when it no longer does."""
        if self.before_s is None or self.after_s is None:
            return 0.0 if self.before_s is self.after_s else _sign(self.after_s is None)
        return self.after_s - self.before_s


def _sign(is_later: bool) -> float:
    return float("inf") if is_later else float("-inf")


@dataclass(frozen=True)
class PartMoved:
    """The part of a sink, from 0 to 1, that a level or an app of it is entitled to now."""

    sink: str
    level: str
    app: str
    before: float
    after: float


@dataclass(frozen=True)
class Moved:
    """The ends and parts of one sink that a change moves; `untold` counts ends nobody can tell.

    `per_s` is what the sink takes in all, None when nobody knows.
    """

    sink: str
    per_s: float | None
    ends: Sequence[EndMoved]
    parts: Sequence[PartMoved]
    untold: int


def compare(
    before: SinkLoad,
    standings: Sequence[Standing],
    change: Callable[[SinkLoad], SinkLoad],
    flows: Flows,
    new: Sequence[Standing] = (),
) -> Moved:
    """Tell what a change does to a sink with these tasks, those that are paused included.

    `new` are tasks that come with the change.
    `flows` keeps how they flow before the change, for other changes of the same tasks.
    """
    now = replace(before, standings=_active(before, standings))
    then = change(replace(before, standings=[*standings, *new] if new else standings))
    tasks = {one.task.id: one.task for one in then.standings}  # with those that it stops
    then = replace(then, standings=_active(then, then.standings))
    told = {one.task.id: one for one in (*standings, *new) if _is_told(one)}
    pace_per_s = now.pace_per_s(settled=True)
    per_s, then_per_s = now.limited_per_s(pace_per_s), then.limited_per_s(pace_per_s)
    name = before.sink.name
    if name not in flows or flows[name][0] != before:
        flows[name] = before, _flow(now, told, per_s)
    first, second = flows[name][1], _flow(then, told, then_per_s)
    goes = [*dict.fromkeys(one.task.id for load in (now, then) for one in load.standings)]
    ends, come = [], {one.task.id for one in new}
    for task_id in goes if per_s is not None else ():
        if task_id in told:
            a, b = first.ends.get(task_id), second.ends.get(task_id)
            task = tasks[task_id]
            last_s = max(a.ends_in_s if a else 0.0, b.ends_in_s if b else 0.0)
            if not (task.quiet and quiet_from(task, before.now_ms, last_s)):
                two = a and a.ends_in_s, b and b.ends_in_s
                ends.append(EndMoved(task, *two, is_new=task_id in come))
    parts = _parts(name, _of(first, per_s), _of(second, then_per_s))
    return Moved(name, per_s, ends, parts, len(goes) - len(ends))


def _flow(load: SinkLoad, told: Collection[str], per_s: float | None) -> Flow:
    """Return ends and rates; of a sink of which nothing is known the rates are parts."""
    return flow(load, told, per_s or 1.0)


def _active(load: SinkLoad, standings: Sequence[Standing]) -> list[Standing]:
    found = [one for one in standings if one.is_active()]
    return [one for one in found if not load.spent_totals(one.task)] if load.spent else found


def _is_told(one: Standing) -> bool:
    is_whole = one.left is not None and not one.later and not one.task.reached
    return is_whole and not waits_by_push(one.task)


def _of(flow: Flow, per_s: float | None) -> Parts:
    """Return the part of the sink that each app gets at a level."""
    return {name: rate / (per_s or 1.0) for name, rate in flow.rates.items()}


def _parts(sink: str, before: Parts, after: Parts) -> list[PartMoved]:
    """Return the parts that move: of levels, then of apps at a level."""
    found: dict[tuple[str, str], list[float]] = {}
    for place, of_app in enumerate((before, after)):
        for (level, app), part in of_app.items():
            for name in (level.value, ""), (level.value, app):
                found.setdefault(name, [0.0, 0.0])[place] += part
    moved = [
        PartMoved(sink, level, app, *parts)
        for (level, app), parts in found.items()
        if abs(parts[0] - parts[1]) > _SAME_PART
    ]
    return sorted(moved, key=lambda one: (bool(one.app), -abs(one.after - one.before)))
