"""The story of a push step by step, and its words: attempts in order, whatever clocks say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pushlane.model.receipt import Event
from pushlane.model.waits import Cause
from pushlane.operations.looks import ReceiptView
from pushlane.operations.waits import label, took_text

SUBMITTED, WAIT, ATTEMPT, MISSING, END, EVENT = (
    "submitted",
    "wait",
    "attempt",
    "missing",
    "end",
    "event",
)
_EVENTS = frozenset(Event)
_BEFORE_DUE = (Cause.START, Cause.DELAY, Cause.QUIET)


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a push: `submitted`, `wait`, `attempt`, `missing`, `end` (unsent), or `event`.

    `took_ms` is the length of a wait for `cause` (a wait without one is not known), and the time
    from an attempt's dispatch at `at_ms` (Unix ms) to its answer. A `missing` step stands for all
    attempts up to `attempt` of which there is no receipt. `clock_off_ms` says that clocks differ,
    by so much at least: that of a submit is ahead of the dispatcher's, or, below 0, this one is
    behind that of the step before.
    """

    what: str
    at_ms: int | None = None
    took_ms: int | None = None
    cause: str = ""
    attempt: int = 0
    sink: str = ""
    outcome: str = ""
    reason: str = ""
    clock_off_ms: int = 0


def step_text(step: StepView) -> str:
    """Say what a step is, without its times."""
    match step.what:
        case "wait":
            if step.cause:
                return f"waited: {label(step.cause)}"
            return "waited; for what is not known: an older version wrote the receipt"
        case "attempt":
            return f"attempt {step.attempt} at {step.sink}: {_answer_text(step)}"
        case "missing":
            return f"receipts are missing here: there were attempts up to {step.attempt}"
        case "end":
            return _answer_text(step)
        case "event":
            return f"{step.outcome}, says the device"
    return step.what


def clock_text(step: StepView) -> str:
    """Say by how much clocks differ at a step; empty where they contradict nothing."""
    if not step.clock_off_ms:
        return ""
    off = took_text(abs(step.clock_off_ms))
    if step.what == SUBMITTED:
        return f"its clock is ahead of the dispatcher's, by {off} at least"
    return f"its clock is behind that of the step before, by {off} at least"


def _answer_text(step: StepView) -> str:
    return f"{step.outcome}, {step.reason}" if step.reason else step.outcome


def steps_of(receipts: Sequence[ReceiptView]) -> list[StepView]:
    """Return the steps that receipts of one push tell."""
    tries = sorted((row for row in receipts if row.outcome not in _EVENTS), key=_parent)
    events = [row for row in receipts if row.outcome in _EVENTS]
    if not tries:
        return [*_events(events, 0)]
    begun_ms, first = tries[0].submitted_at_ms, tries[0]
    off_ms = max(0, begun_ms - (first.dispatched_at_ms or first.responded_at_ms))
    steps = [StepView(what=SUBMITTED, at_ms=begun_ms, clock_off_ms=off_ms)] if begun_ms else []
    before: ReceiptView | None = None
    for row in tries:
        steps += _attempt(row, before)
        before = row
    return [*steps, *_events(events, tries[-1].dispatched_at_ms)]


def _parent(row: ReceiptView) -> tuple[int, int]:
    """Order by attempt; two have one number where an end was unsent, or dead ones sent again."""
    return row.attempt, row.responded_at_ms


def _attempt(row: ReceiptView, before: ReceiptView | None) -> Iterator[StepView]:
    known = before.attempt if before else 0
    is_missing = row.attempt > known + 1
    if is_missing:
        yield StepView(what=MISSING, attempt=row.attempt - 1)
    if row.waits is not None:
        yield from _waits(row.waits, before, with_tries=is_missing)
    elif row.dispatched_at_ms:
        yield StepView(what=WAIT)
    at_ms = row.dispatched_at_ms or row.responded_at_ms
    yield StepView(
        what=ATTEMPT if row.dispatched_at_ms else END,
        at_ms=at_ms,
        took_ms=row.responded_at_ms - at_ms if row.dispatched_at_ms else None,
        attempt=row.attempt,
        sink=row.sink,
        outcome=row.outcome,
        reason=row.reason,
        clock_off_ms=min(0, at_ms - before.responded_at_ms) if before else 0,
    )


def _waits(
    waits: Mapping[str, int], before: ReceiptView | None, *, with_tries: bool
) -> Iterator[StepView]:
    """Yield what a receipt adds to the waits that the one before has told.

    What is known comes in its order: the backoff, what passed until it was due; then the largest.
    """
    told = (before.waits if before else None) or {}
    parts = {cause: ms - told.get(cause, 0) for cause, ms in waits.items()}
    if not with_tries:
        parts.pop(Cause.TRIED, None)  # the attempts themselves are steps
    elif before and Cause.TRIED in parts:
        parts[Cause.TRIED] -= before.responded_at_ms - before.dispatched_at_ms
    first = [Cause.RETRY, *_BEFORE_DUE]
    rest = sorted((one for one in parts if one not in first), key=lambda one: -parts[one])
    for cause in (*first, *rest):
        if (ms := parts.get(cause, 0)) > 0:
            yield StepView(what=WAIT, took_ms=ms, cause=str(cause))


def _events(events: Iterable[ReceiptView], sent_ms: int) -> Iterator[StepView]:
    for row in events:
        yield StepView(
            what=EVENT,
            at_ms=row.responded_at_ms,
            outcome=row.outcome,
            clock_off_ms=min(0, row.responded_at_ms - sent_ms),
        )
