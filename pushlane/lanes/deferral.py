"""Until when a push has to wait: for its task's start, its own, and its recipient's quiet hours.

Pure. A push whose wait is longer than one hop surfaces in between and is sent to wait again.
"""

from __future__ import annotations

from pushlane.core.endings import Wait, WaitReason
from pushlane.core.push import Push
from pushlane.core.task import Task
from pushlane.lanes.quiet import parse_quiet, quiet_until_ms
from pushlane.lanes.zones import zone_or_utc

_HOP_S = 86_400.0


def due_ms(task: Task, push: Push, now_ms: int) -> int:
    """Return the first time from now on at which the push may go: `now_ms` if it may now.

    For one that waits for longer than a hop the quiet hours are looked up when it surfaces.
    """
    at_ms = max(now_ms, task.not_before_ms, push.not_before_ms)
    if not task.quiet or hop_s(at_ms, now_ms) >= _HOP_S:
        return at_ms
    return quiet_until_ms(parse_quiet(task.quiet), zone_or_utc(push.zone or task.zone), at_ms)


def wait_of(task: Task, push: Push, due_ms: int, now_ms: int) -> Wait:
    """Return what a push waits for that may not go before `due_ms`."""
    is_quiet = due_ms > max(now_ms, task.not_before_ms, push.not_before_ms)
    reason = WaitReason.QUIET_HOURS if is_quiet else WaitReason.START
    return Wait(reason, due_ms, push.zone or task.zone)


def hop_s(due_ms: int, now_ms: int) -> float:
    """Return how long to wait now for that time."""
    return min(_HOP_S, (due_ms - now_ms) / 1000)


def eligible_ms(task: Task, push: Push) -> int:
    """Return when this attempt could first be sent: not early, and not in quiet hours."""
    at_ms = push.due_at_ms or push.submitted_at_ms
    if task.not_before_ms or push.not_before_ms or task.quiet:
        return due_ms(task, push, at_ms)
    return at_ms
