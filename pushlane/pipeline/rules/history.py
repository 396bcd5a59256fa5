"""The history of a rule's runs: which have come due, which are open, and how the last ones ended.

Each rule has one document, so that a run, its budget and its end change together. It is bounded:
the oldest ended runs are dropped first. All functions are pure. Each due time is noted once,
however often and by whomever, by the rule's catch-up policy for missed times. A change of a run
raises Superseded if another leader has begun the run since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from pydantic import BaseModel, ConfigDict, ValidationError

from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.model.documents import MOST_BYTES, checked
from pushlane.pipeline.rules.rule import Rule
from pushlane.util.errors import Superseded

MOST_OPEN = 50
MOST_ENDED = 100
LONGEST_REASON = 300
_DAYS_KEPT = 3


class RunState(StrEnum):
    """The states of a run: due → running → done | failed | refused.

    A failed run that may be tried again is waiting first; a run that is left out is skipped.
    """

    DUE = "due"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"

    @property
    def is_open(self) -> bool:
        return self in (RunState.DUE, RunState.RUNNING, RunState.WAITING)


class Run(BaseModel):
    """One run of a rule, known by the time it was due or requested.

    `rule` is the rule as it was when the run began, kept until it ends, and `most` is what its
    budgets left it then. `fence` is the number of the leader that has the run. `times` is how many
    due times a skipped run stands for.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    at_ms: int
    state: RunState = RunState.DUE
    asked: bool = False
    reason: str = ""
    rule: Rule | None = None
    revision: int = 0
    most: int | None = None
    fence: int = 0
    begun: int = 0
    failures: int = 0
    begun_at_ms: int = 0
    retry_at_ms: int = 0
    ended_at_ms: int = 0
    task_id: str = ""
    total: int | None = None
    times: int = 1

    @property
    def has_begun(self) -> bool:
        """Return True if the run is under way, or waits to be tried again."""
        return self.state in (RunState.RUNNING, RunState.WAITING)

    def changed(self, **fields: object) -> Run:
        return self.model_copy(update=fields)

    def ended(self, state: RunState, now_ms: int, reason: str = "", **fields: object) -> Run:
        told = reason[:LONGEST_REASON]
        return self.changed(state=state, reason=told, rule=None, ended_at_ms=now_ms, **fields)


class History(BaseModel):
    """The runs of a rule, oldest first.

    All due times up to `handled_ms` are among them. `spent` counts the pushes that the ended runs
    of each day have published.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    handled_ms: int = 0
    runs: tuple[Run, ...] = ()
    spent: dict[str, int] = {}

    def find(self, at_ms: int) -> Run | None:
        return next((run for run in self.runs if run.at_ms == at_ms), None)

    @property
    def open(self) -> list[Run]:
        return [run for run in self.runs if run.state.is_open]

    def with_runs(self, *runs: Run) -> History:
        """Return the history with these runs in place of those for the same times."""
        by_time = {run.at_ms: run for run in (*self.runs, *runs)}
        return self.model_copy(update={"runs": tuple(by_time[at] for at in sorted(by_time))})

    def with_spent(self, day: str, pushes: int) -> History:
        spent = {**self.spent, day: self.spent.get(day, 0) + pushes}
        kept = sorted(spent)[-_DAYS_KEPT:]
        return self.model_copy(update={"spent": {day: spent[day] for day in kept}})

    def spent_on(self, day: str) -> int:
        """Return the pushes of a day, including what the runs under way may still publish."""
        begun = ((run, run.rule) for run in self.runs if run.has_begun)
        taken = (run for run, rule in begun if rule and rule.schedule.day(run.begun_at_ms) == day)
        return self.spent.get(day, 0) + sum(run.most or 0 for run in taken)

    def encode(self) -> bytes:
        """Encode the history, without the oldest ended runs if it is larger than a document."""
        ended = [run.at_ms for run in self.runs if not run.state.is_open]
        gone = set(ended[: max(0, len(ended) - MOST_ENDED)])
        while len(body := self._encoded(gone)) > MOST_BYTES and len(gone) < len(ended):
            gone.update(ended[len(gone) : len(gone) + 5])
        return checked("the history of a rule", lambda: body, partial(decode_history, ""))

    def _encoded(self, gone: set[int]) -> bytes:
        kept = tuple(run for run in self.runs if run.at_ms not in gone)
        shown = self.model_copy(update={"runs": kept})
        return shown.model_dump_json(exclude_defaults=True).encode()


def decode_history(name: str, body: bytes) -> History:
    """Decode a stored history; raises UnknownFormat if only a newer version understands it."""
    try:
        return History.model_validate_json(body)
    except ValidationError as error:
        raise UnknownFormat(0, f"the history of rule {name!r}") from error


def run_key(rule: str, at_ms: int) -> str:
    """Return the key of the run's task, which is the same however often the run is made."""
    return f"rule-{rule}-{iso_utc(at_ms)}"


def iso_utc(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return at.isoformat(timespec=precision).replace("+00:00", "Z")


ON_TIME_MS = 60_000
"""A due time that is noticed later than this was missed."""


def note_due(rule: Rule, history: History, now_ms: int, fence: int) -> History:
    """Return the history with all that came due up to now, as noted by the leader of this fence."""
    start_ms = max(history.handled_ms, rule.since_ms)
    first_ms = rule.schedule.first_after(start_ms)
    if first_ms is None or first_ms > now_ms:
        return history
    handled = history.model_copy(update={"handled_ms": now_ms})
    if rule.paused:
        return handled
    window_ms = max(round(rule.catch_up_s * 1000), ON_TIME_MS)
    reach_ms = now_ms - window_ms
    if first_ms <= reach_ms and not history.find(first_ms):
        why = (
            f"it and all that came due up to {iso_utc(reach_ms)} are longer ago than the "
            f"{rule.catch_up_s:g} s in which runs are caught up"
        )
        handled = handled.with_runs(Run(at_ms=first_ms).ended(RunState.SKIPPED, now_ms, why))
    times = [*rule.schedule.between(max(start_ms, reach_ms), now_ms)]
    if not times:
        return handled
    due, skipped, why = _choose(rule, handled, times, now_ms)
    new = [Run(at_ms=at_ms, fence=fence) for at_ms in due if not handled.find(at_ms)]
    return _skip(handled.with_runs(*new), skipped, why, now_ms)


def overdue(rule: Rule, run: Run, now_ms: int, fence: int) -> str:
    """Return why a due run that has not begun is too late to begin now; empty if it is not.

    A run of a rule with `catch_up` "skip" may still wait its turn behind others, as long as the
    same leader leads.
    """
    late_ms = now_ms - run.at_ms
    if run.asked or late_ms <= ON_TIME_MS:
        return ""
    if rule.catch_up == "skip" and run.fence != fence:
        return "the process that was to make it stopped before it began"
    if late_ms > rule.catch_up_s * 1000:
        return f"it is longer ago than the {rule.catch_up_s:g} s in which runs are caught up"
    return ""


def next_due_ms(rule: Rule, history: History) -> int | None:
    """Return when the rule comes due next; None if it does not."""
    if rule.paused:
        return None
    return rule.schedule.first_after(max(history.handled_ms, rule.since_ms))


def _choose(
    rule: Rule, history: History, times: Sequence[int], now_ms: int
) -> tuple[Sequence[int], Sequence[int], str]:
    """Return the times to run, the times to skip, and why those are skipped."""
    scheduled = [run for run in history.open if not run.asked]
    if rule.catch_up == "all":
        room = max(1, MOST_OPEN - len(scheduled))
        return times[-room:], times[:-room], "too many runs were missed"
    if rule.catch_up == "latest":
        late = [run.at_ms for run in scheduled if not run.has_begun]
        return times[-1:], [*late, *times[:-1]], "a later run came due before it began"
    if scheduled:
        return [], times, f"the run of {iso_utc(scheduled[0].at_ms)} was still under way"
    on_time = [at_ms for at_ms in times[-1:] if at_ms >= now_ms - ON_TIME_MS]
    missed = times[:-1] if on_time else times
    return on_time, missed, "no process made runs at that time"


def _skip(history: History, skipped: Sequence[int], why: str, now_ms: int) -> History:
    """Return the history with these times skipped: noted runs one by one, all others as one run.

    Runs that were requested by hand stay.
    """
    known = [run for at_ms in skipped if (run := history.find(at_ms)) and not run.asked]
    ended = [run.ended(RunState.SKIPPED, now_ms, why) for run in known if run.state.is_open]
    new = [at_ms for at_ms in skipped if history.find(at_ms) is None]
    if new:
        ended.append(Run(at_ms=new[-1], times=len(new)).ended(RunState.SKIPPED, now_ms, why))
    return history.with_runs(*ended)


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
        waiting = run.changed(
            state=RunState.WAITING,
            failures=run.failures + 1,
            retry_at_ms=now_ms + _FIRST_PAUSE_MS * 4**run.failures,
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
        if (count := len(history.open)) >= 2 * MOST_OPEN:
            raise BadInput(f"{count} runs of this rule wait already; let them end first")
        return history.with_runs(Run(at_ms=at_ms, asked=True))

    return edit


def requests(history: History) -> list[Run]:
    """Return the runs that somebody wants and that have not begun, the oldest first."""
    return [run for run in history.open if run.asked and not run.has_begun]


def withdraw_run(at_ms: int) -> Edit:
    """Remove a requested run that has not begun."""
    return lambda history: _without(
        history, [run for run in requests(history) if run.at_ms == at_ms]
    )


def withdraw_runs(history: History) -> History:
    """Remove all requested runs that have not begun."""
    return _without(history, requests(history))


def _without(history: History, gone: Sequence[Run]) -> History:
    kept = tuple(run for run in history.runs if run not in gone)
    return history.model_copy(update={"runs": kept})


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
    why = f"it was begun {run.begun} times, and its process died each time"
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
        raise Superseded("another process has taken over the run, or its rule was removed")
    return run
