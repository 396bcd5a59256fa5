"""Says of what the pushes of a task died. Pure.

`died_of` are the counts by reason of `lanes.death_reasons.Deaths`. What an older version has
counted has no reason, and is told as such.
"""

from __future__ import annotations

from collections.abc import Mapping

from pushlane.core.task import Progress, Task
from pushlane.diagnosis.cause import Cause
from pushlane.lanes.death_reasons import DEAD_ADDRESS

_MOST_NAMED = 5
_MANY = 100
_SHARE = 0.01


def matter(progress: Progress, died_of: Mapping[str, int]) -> bool:
    """Tell whether a hundred pushes died, or one in a hundred: dead addresses are none of them."""
    died = progress.dead - died_of.get(DEAD_ADDRESS, 0)
    return died > 0 and (died >= _MANY or died >= _SHARE * progress.finished)


def reasons_text(progress: Progress, died_of: Mapping[str, int]) -> str:
    """Return the reasons as `HTTP 404 (4,990), no answer (8)`, or `HTTP 404` when it is the only.

    Empty when none is known.
    """
    unknown = progress.dead - sum(died_of.values())
    known = {**died_of, "unknown reason": unknown} if unknown > 0 and died_of else died_of
    if len(known) == 1:
        return next(iter(known))
    named = [f"{reason} ({count:,})" for reason, count in list(known.items())[:_MOST_NAMED]]
    if len(known) > _MOST_NAMED:
        named.append(f"{len(known) - _MOST_NAMED} more reasons")
    return ", ".join(named)


def deaths_text(progress: Progress, died_of: Mapping[str, int]) -> str:
    """Return `4,998 of 5,000 died: HTTP 404 (4,990), no answer (8)`."""
    reasons = reasons_text(progress, died_of)
    return f"{progress.dead:,} of {progress.finished:,} died" + (f": {reasons}" if reasons else "")


def short_deaths_text(progress: Progress, died_of: Mapping[str, int]) -> str:
    """Return the same for a column, with the commonest reason; empty when they do not matter."""
    if not matter(progress, died_of):
        return ""
    commonest = next((one for one in died_of if one != DEAD_ADDRESS), "")
    others = ", most often " if len(died_of) > 1 else ": "
    return f"{progress.dead:,} died" + (f"{others}{commonest}" if commonest else "")


def with_deaths(
    task: Task, progress: Progress, died_of: Mapping[str, int], found: list[Cause]
) -> list[Cause]:
    """Return the causes with what died of a task that goes on: first if it matters, else last."""
    if not progress.dead or task.state.is_terminal:
        return found
    do = (
        f"look at them: pushlane dead list --task {task.id}; when that is mended: "
        f"pushlane dead retry --task {task.id}"
    )
    cause = Cause("deaths", deaths_text(progress, died_of), do)
    return [cause, *found] if matter(progress, died_of) else [*found, cause]
