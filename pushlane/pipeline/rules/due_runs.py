"""Notes in a rule's history which runs have come due, and which are skipped.

All functions are pure. Each due time is noted once, however often and by whomever this is called.
The rule's catch-up policy for missed times is applied here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.pipeline.rules.history import MOST_OPEN, History, Run, RunState, iso_utc
from pushlane.pipeline.rules.rule import Rule

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
        handled = handled.with_runs(_too_old(rule, first_ms, reach_ms, now_ms))
    times = [*rule.schedule.between(max(start_ms, reach_ms), now_ms)]
    if not times:
        return handled
    due, skipped, why = _choose(rule, handled, times, now_ms)
    return _skip(_add(handled, due, fence), skipped, why, now_ms)


def overdue(rule: Rule, run: Run, now_ms: int, fence: int) -> str:
    """Return why a due run that has not begun is too late to begin now; empty if it is not.

    A run of a rule with `catch_up` "skip" may still wait its turn behind others, as long as the
    same leader leads.
    """
    late_ms = now_ms - run.at_ms
    if run.asked or late_ms <= ON_TIME_MS:
        return ""
    if rule.catch_up == "skip" and run.fence != fence:
        return "whoever was to make it went away before it began"
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
        return times[-room:], times[:-room], "there were too many to make"
    if rule.catch_up == "latest":
        late = [run.at_ms for run in scheduled if not run.has_begun]
        return times[-1:], [*late, *times[:-1]], "a later run came due before it began"
    if scheduled:
        return [], times, f"the run of {iso_utc(scheduled[0].at_ms)} was still under way"
    missed = [at_ms for at_ms in times if at_ms < now_ms - ON_TIME_MS]
    if len(missed) < len(times):
        return times[-1:], times[:-1], "nobody was there to make it"
    return [], missed, "nobody was there to make it"


def _add(history: History, due: Sequence[int], fence: int) -> History:
    new = [at_ms for at_ms in due if history.find(at_ms) is None]
    return history.with_runs(*(Run(at_ms=at_ms, fence=fence) for at_ms in new))


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


def _too_old(rule: Rule, first_ms: int, reach_ms: int, now_ms: int) -> Run:
    why = (
        f"it and all that came due up to {iso_utc(reach_ms)} are longer ago than the "
        f"{rule.catch_up_s:g} s in which runs are caught up"
    )
    return Run(at_ms=first_ms).ended(RunState.SKIPPED, now_ms, why)
