"""Until when a push has to wait: for a start, its retry, and its recipient's quiet hours.

A push whose wait is longer than one hop surfaces in between and is sent to wait again.

A broker may not tell what waits on a later lane. So whoever puts a push off notes it, by task and
reason and by the quarter of an hour in which it comes up again. A push waits for a day at most
before that, and is then noted anew: so a task has at most 97 quarters a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from pushlane.core.endings import Wait, WaitReason
from pushlane.core.push import Push
from pushlane.core.task import Task
from pushlane.model.times import parse_quiet, quiet_until_ms, zone_or_utc

QUARTER_MS = 900_000
_LATEST_MS = 253_370_764_800_000  # the year 9999: a push may name any number
KEPT_MS = 25 * 3_600_000
"""For how long a note is of use: a push comes up within a day."""


class PutOff(msgspec.Struct, frozen=True):
    """Pushes of one task that were put off for one reason and come up in the same quarter.

    `quarter` counts quarters of an hour since 1970. The first of the pushes may go at `first_ms`,
    the last at `last_ms` (Unix ms); `zone` is the first one's, empty where none matters. `reason`
    is a WaitReason, or one of a newer version.
    """

    task_id: str
    reason: str
    quarter: int
    pushes: int
    first_ms: int
    last_ms: int
    zone: str = ""

    def waits(self, now_ms: int) -> bool:
        """Return whether any of them may still wait."""
        return self.quarter >= now_ms // QUARTER_MS and self.last_ms > now_ms


class PutOffTally:
    """Collects what is put off until it is taken to be noted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], PutOff] = {}

    def add(self, task_id: str, wait: Wait, again_ms: int) -> None:
        """Note a push that comes up again at `again_ms` (Unix ms)."""
        key = (task_id, str(wait.reason), again_ms // QUARTER_MS)
        due_ms = min(wait.due_ms, _LATEST_MS)
        one = PutOff(*key, 1, due_ms, due_ms, wait.zone)
        known = self._found.get(key)
        self._found[key] = one if known is None else joined(known, one)

    def take(self) -> list[PutOff]:
        """Return all, and begin anew."""
        found, self._found = self._found, {}
        return list(found.values())


def joined(one: PutOff, other: PutOff) -> PutOff:
    """Return both as one, in the first one's quarter: they are of the same task and reason."""
    first = one if one.first_ms <= other.first_ms else other
    return PutOff(
        one.task_id,
        one.reason,
        one.quarter,
        one.pushes + other.pushes,
        first.first_ms,
        max(one.last_ms, other.last_ms),
        first.zone,
    )


class Waiting(NamedTuple):
    """All pushes of a task that wait for one reason: about so many, from the first to the last."""

    reason: str
    pushes: int
    first_ms: int
    last_ms: int
    zone: str


def waiting_of(put_off: Iterable[PutOff], now_ms: int) -> list[Waiting]:
    """Return what still waits, one for each reason: the first to come due is first."""
    by_reason: dict[str, PutOff] = {}
    for one in put_off:
        if one.waits(now_ms):
            known = by_reason.get(one.reason)
            by_reason[one.reason] = one if known is None else joined(known, one)
    found = [
        Waiting(reason, whole.pushes, max(now_ms, whole.first_ms), whole.last_ms, whole.zone)
        for reason, whole in by_reason.items()
    ]
    return sorted(found, key=lambda one: one.first_ms)


_HOP_S = 86_400.0


def due_ms(task: Task, push: Push, now_ms: int) -> int:
    """Return the first time from now on at which the push may go: `now_ms` if it may now.

    For one that waits for longer than a hop the quiet hours are looked up when it surfaces.
    """
    at_ms = max(now_ms, task.not_before_ms, push.not_before_ms, push.due_at_ms)
    if not task.quiet or hop_s(at_ms, now_ms) >= _HOP_S:
        return at_ms
    return quiet_until_ms(parse_quiet(task.quiet), zone_or_utc(push.zone or task.zone), at_ms)


def wait_of(task: Task, push: Push, due_ms: int, now_ms: int) -> Wait:
    """Return what a push waits for that may not go before `due_ms`."""
    start_ms = max(now_ms, task.not_before_ms, push.not_before_ms)
    if due_ms > max(start_ms, push.due_at_ms):
        reason = WaitReason.QUIET_HOURS
    else:
        reason = WaitReason.RETRY if push.due_at_ms > start_ms else WaitReason.START
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
