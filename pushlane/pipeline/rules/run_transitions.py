"""The transitions of a run, as pure changes of a history: it begins, and ends or waits for a retry.

A transition raises Superseded if another leader has begun the run since.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane.core.errors import BadInput, Superseded
from pushlane.pipeline.rules.due_runs import overdue
from pushlane.pipeline.rules.history import MOST_OPEN, History, Run, RunState
from pushlane.pipeline.rules.rule import Rule

MOST_FAILURES = 4
MOST_BEGUN = 20
_FIRST_PAUSE_MS = 30_000

Edit = Callable[[History], History]


def begin(rule: Rule, at_ms: int, fence: int, now_ms: int) -> Edit:
    """Begin the run for this leader with the rule as it is now, or resume it with the rule it had.

    The run ends at once if its rule is paused or has spent its budget.
    """

    def edit(history: History) -> History:
        run = history.find(at_ms)
        if run is None or not run.state.is_open:
            return history
        if run.has_begun:
            return _again(history, run, fence, now_ms)
        paused = "the rule is paused" if rule.paused and not run.asked else ""
        if why := paused or overdue(rule, run, now_ms, fence):
            return history.with_runs(run.ended(RunState.SKIPPED, now_ms, why))
        return history.with_runs(_first(rule, history, run, fence, now_ms))

    return edit


def end(
    at_ms: int,
    fence: int,
    now_ms: int,
    state: RunState,
    *,
    reason: str = "",
    task_id: str = "",
    total: int | None = None,
) -> Edit:
    """End the run; `total` is how many pushes it published, None if that is not known."""

    def edit(history: History) -> History:
        run = _ours(history, at_ms, fence)
        ended = run.ended(state, now_ms, reason, task_id=task_id, total=total)
        return _settled(history, run, ended)

    return edit


def retry_later(at_ms: int, fence: int, now_ms: int, reason: str) -> Edit:
    """Let a failed run wait for a retry: 30 s first, then four times as long each time."""

    def edit(history: History) -> History:
        run = _ours(history, at_ms, fence)
        pause_ms = _FIRST_PAUSE_MS * 4**run.failures
        waiting = run.changed(
            state=RunState.WAITING,
            failures=run.failures + 1,
            retry_at_ms=now_ms + pause_ms,
            reason=reason,
        )
        return history.with_runs(waiting)

    return edit


def request_run(at_ms: int) -> Edit:
    """Add a run that somebody wants, scheduled or not; one that is open or done stays as it is.

    The change raises BadInput if too many runs wait already.
    """

    def edit(history: History) -> History:
        run = history.find(at_ms)
        if run is not None and (run.state.is_open or run.state is RunState.DONE):
            return history
        if len(history.open) >= 2 * MOST_OPEN:
            raise BadInput(
                f"{len(history.open)} runs of this rule wait already; let them end first"
            )
        return history.with_runs(Run(at_ms=at_ms, asked=True))

    return edit


def withdraw_run(at_ms: int) -> Edit:
    """Remove a requested run that has not begun."""

    def edit(history: History) -> History:
        run = history.find(at_ms)
        if run is None or run.state is not RunState.DUE or not run.asked:
            return history
        kept = tuple(one for one in history.runs if one.at_ms != at_ms)
        return history.model_copy(update={"runs": kept})

    return edit


def _first(rule: Rule, history: History, run: Run, fence: int, now_ms: int) -> Run:
    spent = history.spent_on(rule.schedule.day(now_ms))
    left = None if rule.budget_day is None else rule.budget_day - spent
    if left is not None and left <= 0:
        why = f"the budget of the day is used up: {spent:,} of {rule.budget_day:,} pushes"
        return run.ended(RunState.REFUSED, now_ms, why, revision=rule.revision)
    bounds = [bound for bound in (rule.budget_run, left) if bound is not None]
    return run.changed(
        state=RunState.RUNNING,
        rule=rule,
        revision=rule.revision,
        most=min(bounds, default=None),
        fence=fence,
        begun=1,
        begun_at_ms=now_ms,
    )


def _again(history: History, run: Run, fence: int, now_ms: int) -> History:
    if run.begun < MOST_BEGUN:
        again = run.changed(state=RunState.RUNNING, fence=fence, begun=run.begun + 1)
        return history.with_runs(again)
    why = f"it was begun {run.begun} times, and whoever made it died each time"
    return _settled(history, run, run.ended(RunState.FAILED, now_ms, why))


def _settled(history: History, run: Run, ended: Run) -> History:
    """Add what the run may have published to the budget of the day on which it began."""
    spent = ended.total if ended.total is not None else run.most or 0
    history = history.with_runs(ended)
    if not spent or run.rule is None:
        return history
    return history.with_spent(run.rule.schedule.day(run.begun_at_ms), spent)


def _ours(history: History, at_ms: int, fence: int) -> Run:
    run = history.find(at_ms)
    if run is None or run.fence != fence or run.state is not RunState.RUNNING:
        raise Superseded("the run is another leader's now, or its rule was removed")
    return run
