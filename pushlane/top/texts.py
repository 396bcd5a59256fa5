"""Short texts of figures and times, and the bar of what is got beside what is due.

Times are in the zone of who looks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime

from pushlane.operations.now import NowView
from pushlane.util.columns import soon_text

GOT, LACKING, MORE = "█", "░", "▒"
LEGEND = f"{GOT} observed  {LACKING} missing to its fair share  {MORE} above its fair share"
BAR = 14
_WHOLE_PER_S = 10


def rate_text(per_s: float | None) -> str:
    """Return a rate, as `510/s`; a dash where nobody knows it."""
    if per_s is None:
        return "-"
    return f"{per_s:,.0f}/s" if per_s >= _WHOLE_PER_S else f"{per_s:.2g}/s"


def count_text(count: int | None) -> str:
    """Return a number; a dash where nobody knows it."""
    return "-" if count is None else f"{count:,}"


def local_time(at_ms: int, now_ms: int) -> str:
    """Return a time in the zone of who looks, with its day unless that is today."""
    at, now = (datetime.fromtimestamp(one / 1000) for one in (at_ms, now_ms))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%b %d %H:%M}"


def ends_text(eta_ms: int | None, now_ms: int) -> str:
    """Return when something ends, as `in 4m`; a dash where nobody knows."""
    return "-" if eta_ms is None else soon_text(max(0.0, (eta_ms - now_ms) / 1000))


def bar(observed_per_s: float | None, entitled_per_s: float | None, most_per_s: float) -> str:
    """Return a bar of which the whole width is `most_per_s`."""
    if not most_per_s:
        return ""
    got, due = (
        min(BAR, round(BAR * (one or 0.0) / most_per_s)) for one in (observed_per_s, entitled_per_s)
    )
    rest = LACKING * (due - got) if due > got else MORE * (got - due)
    return GOT * min(got, due) + rest


def states_text(view: NowView) -> str:
    """Return how many tasks there are, in which states, and what dispatches."""
    total = sum(view.states.values())
    tasks = "1 task" if total == 1 else f"{total:,} tasks"
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(view.states.items()))
    processes = "1 process" if view.processes == 1 else f"{view.processes:,} processes"
    return f"{tasks}{counts and ': '}{counts}; {processes}"


_MOST_OF_VERDICT, _NARROWEST = 2, 20


def verdict_in(view: NowView, width: int) -> list[str]:
    """Return the same for a few lines of this width: the command is whole, so what is said is cut
    where it takes more than two lines.
    """
    said, *commands = verdict_lines(view)
    wrapped = textwrap.wrap(said, max(width, _NARROWEST))
    if not commands or len(wrapped) <= _MOST_OF_VERDICT:
        return [said, *commands]
    first, second = wrapped[:_MOST_OF_VERDICT]
    return [first, f"{second[: max(width, _NARROWEST) - 1]}…", *commands]


def verdict_lines(view: NowView) -> Iterator[str]:
    """Yield how it stands, and the command that shows or changes it."""
    yield " ".join(text for text in (view.verdict.text, view.verdict.would) if text)
    if view.verdict.command:
        yield f"do: {view.verdict.command}"
