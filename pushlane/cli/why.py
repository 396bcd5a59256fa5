"""`why` says what a task waits for now, or why anything waits, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, WideFlag, argument
from pushlane.cli.parsing import complete_task, pushes_text, rows_text
from pushlane.cli.render import Column, age_text, print_json, print_table, seconds_text
from pushlane.core.task import now_ms
from pushlane.diagnosis.overview import MOST_NAMED
from pushlane.diagnosis.situation import due_text
from pushlane.model.due import Waiting
from pushlane.model.states import OPEN
from pushlane.operations.looks import (
    GetOverview,
    Overview,
    SinkOverview,
    TaskOverview,
    WhyTask,
    WhyView,
)
from pushlane.operations.views import plain

_COLUMNS: tuple[Column[TaskOverview], ...] = (
    Column("TASK", lambda one: one.task_id),
    Column("NAME", lambda one: one.name, elastic=True, spare=3),
    Column("LEVEL", lambda one: one.level, spare=4),
    Column("SINK", lambda one: one.sink, spare=2),
    Column("STATE", lambda one: one.shown_state),
    Column("LEFT", lambda one: "-" if one.left is None else f"{one.left:,}", number=True),
    Column("FOR", lambda one: age_text(one.since, now_ms()), number=True, spare=1),
    Column("REASON", lambda one: one.shown_reason, elastic=True, least=24),
)


def print_overview(found: Overview, *, as_json: bool, wide: bool) -> None:
    if as_json:
        print_json(plain(found))
        return
    for sink in found.sinks:
        typer.echo(f"sink {sink.name}: {'; '.join(_sink_parts(sink))}")
        for level in sink.levels:
            tasks, left = rows_text(level.tasks, "task"), _left_text(level.left, level.later)
            shares = f"fair share {100 * level.entitled:.3g} %, got {100 * level.observed:.3g} %"
            typer.echo(f"  {level.level}: {tasks}, {left}; {shares}")
    for limit in found.limits:
        typer.echo(f"limit {limit}")
    if found.tasks:
        print_table(_COLUMNS, found.tasks, wide=wide, more="--wide shows all")
    note(_count_text(found))


def _sink_parts(sink: SinkOverview) -> Iterator[str]:
    if not sink.served_by:
        yield "nobody serves it"
    elif sink.resting:
        yield f"{'rests' if sink.rests else 'gets fewer pushes'}: {sink.resting}"
    if sink.served_by:
        processes = "1 process" if sink.served_by == 1 else f"{sink.served_by} processes"
        yield f"{processes}, {sink.in_flight:,} of {sink.slots:,} slots busy"
        yield f"{sink.per_s:,.4g} pushes/s"
    if sink.in_doubt:
        tasks = rows_text(sink.in_doubt, "task")
        yield f"pushes of {tasks} wait, as the registry does not have them now"
    yield _left_text(sink.left, sink.later)


def _left_text(left: int, later: int) -> str:
    waiting = f", {later:,} of them wait for their time" if later else ""
    return f"{pushes_text(left)} left{waiting}"


def _count_text(found: Overview) -> str:
    if not found.states:
        return "no unfinished tasks"
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(found.states.items()))
    total = sum(found.states.values())
    first = f"; these {MOST_NAMED} come first" if total > MOST_NAMED else ""
    cut = "; only the newest were looked at" if found.is_cut else ""
    return f"tasks: {counts}{first}{cut}. More of one: pushlane why TASK"


def why(
    flags: Flags,
    task: Annotated[
        str | None,
        argument(
            "[TASK]",
            "Its id, key or name; without it, all are looked at.",
            autocompletion=complete_task,
        ),
    ] = None,
    wide: WideFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what a task waits for now, most important first, and what to do about each.

    Without a task, say so of all: how sinks and levels stand, and which tasks to look at first.
    """
    settings = flags.settings()
    if task is None:
        found_all = done(settings, GetOverview())
        print_overview(found_all, as_json=as_json, wide=wide)
        if found_all.unread_limits and not as_json:
            note(unread_text(found_all.unread_limits))
        return
    found = done(settings, WhyTask(task=task))
    if as_json:
        print_json(plain(found))
        return
    for cause in found.causes:
        typer.echo(f"{cause.cause}: {cause.detail}")
        if cause.do:
            typer.echo(f"  do: {cause.do}")
    if not found.has_ended and found.shown_state != OPEN:
        note(pace_text(found, now_ms()))
    if found.so_far:
        note(found.so_far)
    if found.unread_limits:
        note(unread_text(found.unread_limits))


def unread_text(names: Sequence[str]) -> str:
    """Return a line that names the limits that are left out."""
    return f"left out, as they cannot be read (pushlane doctor): the limits of {', '.join(names)}"


def waits_as_json(one: Waiting) -> dict[str, Any]:
    """Return pushes that wait for their time, for programs; times are Unix ms."""
    return {
        "reason": one.reason,
        "pushes": one.pushes,
        "first_due_ms": one.first_ms,
        "last_due_ms": one.last_ms,
    }


def pace_text(found: WhyView, now_ms: int) -> str:
    """Return how much of a task is left, how fast it goes, and when it is through."""
    backlog = found.backlog
    left = "still being submitted" if backlog is None else f"{pushes_text(backlog)} left"
    later = f", {found.later:,} of them wait for their time" if found.later else ""
    share = found.entitled_share
    entitled = "" if share is None else f", its fair share is {100 * share:.3g} % of the sink"
    observed = "" if found.observed_per_s is None else f", {found.observed_per_s:,.4g} pushes/s now"
    return f"{left}{later}{entitled}{observed}; {_end_text(found, now_ms)}"


def _end_text(found: WhyView, now_ms: int) -> str:
    if found.eta_s is None:
        return f"ETA unknown{found.eta_note and ': '}{found.eta_note}"
    at = due_text(now_ms + round(found.eta_s) * 1000, now_ms)
    return f"ends in {seconds_text(found.eta_s)}" + (f", at {at}" if found.later else "")
