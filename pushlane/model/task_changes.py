"""The transitions of a task's state, as pure functions from one task value to the next.

Each is used as an edit: `registry.change(task_id, task_transitions.pause("why"))`. Those that are
made on a push's way are in `core.task`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput, InvalidChange
from pushlane.core.names import is_pool, own_lane
from pushlane.core.task import MAX_QUOTA, Level, Progress, State, Task
from pushlane.core.task import Edit as Edit
from pushlane.core.task import now_ms as now_ms
from pushlane.core.task import seal as seal
from pushlane.core.task import start as start
from pushlane.model.names import another_key
from pushlane.model.reasons import Reasons
from pushlane.model.stop_rule import OFF, parse_stop_rule
from pushlane.model.times import check_expiry, check_order, check_start, find_zone, parse_quiet
from pushlane.util.conversion import text, whole, word

_RANK = {level: rank for rank, level in enumerate(Level)}


Check = Callable[[Task], None]
"""Raises where a task is not as whoever changes it has to have seen it."""


def checked(check: Check | None, edit: Edit) -> Edit:
    """Return an edit that is made only of a task that passes a check, in the same step."""
    if check is None:
        return edit

    def both(task: Task) -> Task:
        check(task)
        return edit(task)

    return both


def finish(state: State, reason: str = "") -> Edit:
    """End a task as done or expired. One that has ended otherwise meanwhile stays as it is."""

    def edit(task: Task) -> Task:
        if task.state.is_terminal:
            return task
        return replace(ended(task, state), reason=reason or task.reason)

    return edit


def later_opened(task: Task) -> Task:
    """Let dispatchers read the task's later lane. A task that has ended stays as it is."""
    return task if task.state.is_terminal else replace(task, has_later=True)


def reached(sink: str) -> Edit:
    """Let dispatchers of a later sink of its chain read its lane there, which is open."""

    def edit(task: Task) -> Task:
        if task.state.is_terminal or sink in task.reached:
            return task
        return replace(task, reached=(*task.reached, sink))

    return edit


def ended(task: Task, state: State) -> Task:
    """Return the task as it is once it has ended now."""
    return replace(task, state=state, finished_at_ms=now_ms())


PAUSED_AT_SUBMIT = "submitted paused"
"""The reason of a task that was submitted so."""


def pause(reason: str = "") -> Edit:
    """Hold a task back. Raises BadInput for a reason that is no text."""
    why = text("reason", reason)

    def edit(task: Task) -> Task:
        if task.state is State.PAUSED:
            return task
        _live(task, "paused")
        return replace(_on_own_lane(task), state=State.PAUSED, reason=why)

    return edit


def hold(reason: str) -> Edit:
    """Pause a task that was not started yet; any other stays as it is."""
    paused = pause(reason)
    return lambda task: paused(task) if task.state is State.SUBMITTED else task


def stop(reason: str) -> Edit:
    """Pause a task of which too many pushes died, unless it was for that before."""

    def edit(task: Task) -> Task:
        if task.state is not State.RUNNING or task.stopped or task.stop_if_dead == OFF:
            return task
        return replace(_on_own_lane(task), state=State.PAUSED, reason=reason, stopped=True)

    return edit


def set_stop_if_dead(rule: str, now: Progress) -> Edit:
    """Set the share of dead pushes that pauses it, though it may have been paused for that before.

    It is the share of those that end from `now` on. The rule that the task has already changes
    nothing, unless it has paused it. Raises BadInput for no such rule, see
    `model.stop_rule.parse_stop_rule`.
    """
    rule = str(parse_stop_rule(rule) or OFF)

    def edit(task: Task) -> Task:
        _live(task, "given a limit of dead pushes")
        if task.stop_if_dead == rule and not task.stopped:
            return task
        since = (now.finished, now.failed)
        return replace(task, stop_if_dead=rule, stopped=False, stop_since=since)

    return edit


def resume(task: Task) -> Task:
    if task.state is State.RUNNING:
        return task
    if task.state is not State.PAUSED:
        _live(task, "resumed")
        raise InvalidChange(f"task {task.id} is {task.state}: only a paused task can be resumed")
    return replace(task, state=State.RUNNING, reason="")


def cancel(task: Task) -> Task:
    if task.state is State.CANCELLED:
        return task
    if task.state.is_terminal:
        raise InvalidChange(
            f"task {task.id} is {task.state}: a finished task cannot be cancelled, and has nothing "
            f"left to send; its counts: pushlane task show {task.id}"
        )
    return ended(task, State.CANCELLED)


def set_quota(quota: int | str) -> Edit:
    """Let a task send so many pushes in its turn, on a lane of its own; its backlog follows.

    Raises BadInput for what is no quota.
    """
    pushes = whole("quota", quota, 1, MAX_QUOTA, hint="; to stop a task, pause it")

    def edit(task: Task) -> Task:
        return replace(_on_own_lane(_live(task, "given a quota")), quota=pushes)

    return edit


def promote(level: Level | str) -> Edit:
    """Move a task to another level, on a lane of its own; its backlog follows.

    Raises BadInput for what is no level.
    """
    to = word("level", level, Level)

    def edit(task: Task) -> Task:
        _live(task, "promoted")
        if _RANK[to] > _RANK[task.level]:
            raise InvalidChange(
                f"task {task.id} is {task.level}: {to} is below it; to move it down: "
                f"pushlane demote {task.id} --to {to}"
            )
        return replace(_on_own_lane(task), level=to)

    return edit


def isolate(task: Task) -> Task:
    """Move a task to a lane of its own, at its level; its backlog follows."""
    return _on_own_lane(_live(task, "moved"))


def demote(level: Level | str) -> Edit:
    """Move a task down, on the lane that it has. Raises BadInput for what is no level."""
    to = word("level", level, Level)

    def edit(task: Task) -> Task:
        _live(task, "demoted")
        if _RANK[to] < _RANK[task.level]:
            raise InvalidChange(
                f"task {task.id} is {task.level}: {to} is above it; to move it up: "
                f"pushlane promote {task.id} --to {to}"
            )
        return task if to is task.level else replace(task, level=to)

    return edit


class NewTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a task that are to be others from now on; what is None stays as it is.

    A start of 0 is now, an expiry of 0 never, and hours that are empty are none.
    """

    not_before_ms: int | None = None
    expires_at_ms: int | None = None
    quiet: str | None = None
    zone: str | None = None


def reschedule(times: NewTimes, at_ms: int) -> Edit:
    """Change when a task is sent, as of now, `at_ms`.

    One that is to wait has a lane of its own. When what waits may go earlier than it was put off
    for, that is noted for the leader. Raises BadInput for no such hours or zone, or a time that
    cannot be.
    """
    quiet = str(parse_quiet(times.quiet)) if times.quiet else times.quiet
    zone = times.zone if times.zone is None else find_zone(times.zone).key
    check_start(times.not_before_ms or 0, at_ms, "give `now` to start now")
    check_expiry(times.expires_at_ms or 0, at_ms)

    def edit(task: Task) -> Task:
        _live(task, "rescheduled")
        start_ms = _start_of(task, times, at_ms)
        expires_at_ms = _or(times.expires_at_ms, task.expires_at_ms)
        check_order(start_ms, expires_at_ms)
        new = replace(
            task,
            not_before_ms=start_ms,
            expires_at_ms=expires_at_ms,
            quiet=_or(quiet, task.quiet),
            zone=_or(zone, task.zone),
        )
        if zone is not None and not new.quiet:
            raise BadInput(_NO_HOURS)
        if expires_at_ms != task.expires_at_ms and task.first_expiry_ms is None:
            new = replace(new, first_expiry_ms=task.expires_at_ms)
        if _may_go_earlier(task, new, at_ms):
            new = replace(new, recall_ms=max(at_ms, task.recall_ms + 1))
        return _on_own_lane(new) if new.is_scheduled(at_ms) or new.quiet else new

    return edit


_NO_HOURS = (
    "a time zone has no effect without quiet hours; add --quiet 22:00-08:00, or leave the zone out"
)
T = TypeVar("T")


def _or(given: T | None, had: T) -> T:
    return had if given is None else given


def _start_of(task: Task, times: NewTimes, at_ms: int) -> int:
    """Return when the task starts; a start that has passed is one at once, and stays."""
    start_ms = _or(times.not_before_ms, task.not_before_ms)
    return task.not_before_ms if max(start_ms, task.not_before_ms) <= at_ms else start_ms


def _may_go_earlier(old: Task, new: Task, at_ms: int) -> bool:
    is_earlier = max(new.not_before_ms, at_ms) < old.not_before_ms
    return is_earlier or bool(old.quiet and (old.quiet, old.zone) != (new.quiet, new.zone))


def recalled(recall_ms: int) -> Edit:
    """Note that what waited was told of the times of then; those of a later change stand."""
    return lambda task: replace(task, recall_ms=0) if task.recall_ms == recall_ms else task


def expire(expires_at_ms: int) -> Edit:
    """End a task whose expiry is over, unless it has another one by now."""
    over = finish(State.EXPIRED)
    return lambda task: over(task) if task.expires_at_ms == expires_at_ms else task


def lane_reopened(task: Task) -> Task:
    if task.state.is_terminal:
        return task
    return replace(
        task,
        reason="its lane was missing: a new one was opened, and what was on the old one is lost",
    )


def stalled(at_ms: int) -> Edit:
    """Record since when the task's submitter is gone; 0 records that it is there again."""

    def edit(task: Task) -> Task:
        if not task.is_half_made or bool(task.stalled_at_ms) == bool(at_ms):
            return task
        return replace(task, stalled_at_ms=at_ms)

    return edit


def left_open(pushes: int) -> Edit:
    """Record that the task's producer ended well, with so many pushes on their lane."""

    def edit(task: Task) -> Task:
        return replace(task, left_with=pushes, stalled_at_ms=0) if task.is_half_made else task

    return edit


def has_nothing_left(task: Task, progress: Progress) -> bool:
    """Tell whether a task that its producer left open has had all of its pushes ended."""
    is_open = task.left_with is not None and task.total is None and not task.state.is_terminal
    return is_open and progress.finished >= (task.left_with or 0)


def abandon(stalled_at_ms: int, reason: str) -> Edit:
    """End a task that is half-made since then. One that somebody has gone on with stays."""

    def edit(task: Task) -> Task:
        if not task.is_half_made or task.stalled_at_ms != stalled_at_ms:
            return task
        return replace(ended(task, State.EXPIRED), reason=reason)

    return edit


def check_forgettable(task: Task) -> None:
    """Raise InvalidChange for a task that has not ended."""
    if not task.state.is_terminal:
        raise not_ended(task.id, task.state)


def not_ended(task_id: str, state: str) -> InvalidChange:
    """Return why a task cannot be forgotten that has not ended."""
    return InvalidChange(
        f"task {task_id} is {state}: only a task that has ended can be forgotten; end it first: "
        f"pushlane cancel {task_id}"
    )


def lane_dropped(task: Task) -> Task:
    return replace(task, lane_dropped=True)


def _on_own_lane(task: Task) -> Task:
    """Move a task to a lane of its own, unless it has one, and note where its pushes began.

    What has left that first lane is dropped when it comes off it again: taken for the first, the
    new lane would lose all that is forwarded to it.
    """
    lane = own_lane(task.id)
    if task.lane == lane:
        return task
    return replace(task, lane=lane, first_lane=task.first_lane or task.lane)


def _live(task: Task, verb: str) -> Task:
    if task.state.is_terminal:
        clone = f"pushlane clone {task.id}, or " if is_lane_kept(task) else ""
        raise InvalidChange(
            f"task {task.id} is {task.state}: a finished task cannot be {verb}; to send it again: "
            f"{clone}{submit_again(task)}"
        )
    return task


def is_lane_kept(task: Task) -> bool:
    """Tell whether pushes of a task that has ended may still be sent again from its lane.

    That of a cancelled one goes at once, and those of the pool keep nothing.
    """
    is_gone = task.state is State.CANCELLED or task.lane_dropped
    return not (is_gone or is_pool(task.first_lane or task.lane))


def submit_again(task: Task) -> str:
    """Return the advice to submit the file of a task again that has used up its key, if any."""
    key = f" under another key, such as {another_key(task.key)}" if task.key else ""
    return f"submit the file again{key}"


def settled(task: Task, progress: Progress) -> Progress:
    """Return the progress of an ended task, counting the pushes that were never taken.

    They went with its lane, and so count as dropped when it was cancelled, as expired when its time
    was over. So delivered + dead + expired + dropped is the total. A task that ended before its
    submit was complete has no total: only the pushes that were taken are counted.
    """
    untaken = _untaken(task, progress)
    if task.state is State.CANCELLED:
        return replace(progress, dropped=progress.dropped + untaken)
    if task.state is State.EXPIRED:
        return replace(progress, expired=progress.expired + untaken)
    return progress


def settled_reasons(task: Task, progress: Progress, reasons: Reasons) -> Reasons:
    """Return why its pushes were not delivered, with those that were never taken, as `settled`."""
    untaken = Counter({f"task {task.state}": _untaken(task, progress)})
    if task.state is State.CANCELLED:
        return replace(reasons, dropped=Counter(reasons.dropped) + untaken)
    if task.state is State.EXPIRED:
        return replace(reasons, expired=Counter(reasons.expired) + untaken)
    return reasons


def _untaken(task: Task, progress: Progress) -> int:
    return max(0, (task.total or 0) - progress.finished)
