"""Counts the pushes that wait for their time, and moves the ETA accordingly. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pushlane.core.endings import WaitReason
from pushlane.diagnosis.cause import Cause, due_text
from pushlane.diagnosis.situation import Situation
from pushlane.model.due import Waiting
from pushlane.model.load import quiet_until

_WHAT = {
    WaitReason.QUIET_HOURS: ("quiet hours", "wait: they go by themselves once it is not quiet"),
    WaitReason.START: ("a start of their own", "wait: they go by themselves at that time"),
    WaitReason.RETRY: ("another attempt", "wait: they are tried again by themselves"),
}
_OTHERS = ("their time", "wait: they go by themselves at that time")
_SURE_MS = 23 * 3_600_000
"""Pushes that wait longer come up once a day, so a later time on a lane may not be their last."""

_LOOK_EVERY_MS = 900_000
_MOST_LOOKS = 200


def later_causes(now: Situation) -> Iterator[Cause]:
    """Yield what pushes of the task wait for on its later lane, each reason with its times."""
    for one in now.waits:
        what, do = _WHAT.get(WaitReason(one.reason), _OTHERS) if _is_known(one) else _OTHERS
        yield Cause(
            f"later_{one.reason}", waits_text(one, what, now.now_ms), do, final=now.all_wait
        )
    if others := now.later_unnoted:
        more = " more" if now.waits else ""
        waits = "waits" if others == 1 else "wait"
        until = _unnoted_until(now)
        detail = f"{others:,}{more} {waits} for {_OTHERS[0]}: {until}"
        yield Cause("later", detail, _OTHERS[1], final=now.all_wait)


def waits_text(one: Waiting, what: str, now_ms: int) -> str:
    """Return how many pushes wait for something, and when the first and the last may go."""
    first = due_text(one.first_ms, now_ms, one.zone)
    last = due_text(one.last_ms, now_ms)
    if one.pushes == 1:
        return f"1 waits for {what}: it may go {first}"
    if due_text(one.first_ms, now_ms) == last:
        return f"{one.pushes:,} wait for {what}: they may go {first}"
    return f"{one.pushes:,} wait for {what}: the next may go {first}, the last {last}"


def what_text(reason: str) -> str:
    """Return what pushes wait for in words."""
    known = (WaitReason.QUIET_HOURS, WaitReason.START, WaitReason.RETRY)
    return next((_WHAT[one][0] for one in known if one == reason), _OTHERS[0])


def _is_known(one: Waiting) -> bool:
    return one.reason in set(WaitReason)


def _unnoted_until(now: Situation) -> str:
    if now.delayed is None or not now.delayed.last_ms:
        return "when they may go is not known"
    first, last = (due_text(at, now.now_ms) for at in (now.delayed.first_ms, now.delayed.last_ms))
    if now.waits:
        return f"until {last} or earlier"
    return f"the next may go {first}, the last {last}"


def ends_in_s(now: Situation, goes_in_s: float | None, per_s: float | None) -> float | None:
    """Return in how many seconds the task is through, None when that cannot be told.

    What may go now has gone in `goes_in_s`; what waits for its time goes at `per_s` from then on.
    """
    if not now.later:
        return goes_in_s
    if not per_s or (goes_in_s is None and not now.all_wait):
        return None
    end_s = goes_in_s or 0.0
    for one in sorted(now.waiting_notes, key=lambda note: note.first_ms):
        end_s = max(end_s, (one.first_ms - now.now_ms) / 1000) + one.pushes / per_s
        end_s = max(end_s, (one.last_ms - now.now_ms) / 1000)
    if now.later_unnoted:
        if now.delayed is None or now.delayed.last_ms - now.now_ms > _SURE_MS:
            return None
        last_s = (now.delayed.last_ms - now.now_ms) / 1000
        end_s = max(end_s, last_s) + now.later_unnoted / per_s
    return end_s


def not_before(now: Situation) -> int:
    """Return before which time (Unix ms) the task cannot be through, 0 when none is known."""
    known = [one.last_ms for one in now.waits]
    if now.later_unnoted and now.delayed is not None:
        known.append(now.delayed.last_ms)
    return max(known, default=0)


def unforeseen(now: Situation, end_s: float) -> str:
    """Return why pushes that may go now may still have to wait for their time; empty if they won't.

    Whose clock a push goes by shows only when it comes up.
    """
    task = now.task
    if not now.knows_rows and now.may_go:
        if task.start_column or task.is_fed:
            return "pushes may have starts of their own"
        if task.quiet and task.zone_column:
            return "recipients in their quiet hours wait until those end"
    if task.quiet and (begins_ms := _quiet_from(now, end_s)):
        return f"its quiet hours begin before it is through, {due_text(begins_ms, now.now_ms)}"
    return ""


def _quiet_from(now: Situation, end_s: float) -> int:
    """Return about when it is quiet, by the task's zone, while pushes still go; 0 for never."""
    task = now.task
    start_ms = max(now.now_ms, task.not_before_ms)
    start_ms = max(start_ms, quiet_until(task, start_ms))
    end_ms = now.now_ms + round(end_s * 1000)
    for number in range(_MOST_LOOKS):
        at_ms = start_ms + number * _LOOK_EVERY_MS
        if at_ms > end_ms:
            return 0
        if quiet_until(task, at_ms):
            return at_ms // _LOOK_EVERY_MS * _LOOK_EVERY_MS
    return 0
