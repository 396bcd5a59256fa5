"""Prints why anything waits: sinks, levels, limits that bind, and the tasks to look at first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from pushlane.cli.errors import note
from pushlane.cli.parsing import pushes_text
from pushlane.cli.render import Column, age_text, print_json, print_table
from pushlane.core.task import now_ms
from pushlane.diagnosis.overview import MOST_NAMED, LevelNow, Overview, SinkOverview, TaskNow

_COLUMNS: tuple[Column[TaskNow], ...] = (
    Column("TASK", lambda one: one.task.id),
    Column("NAME", lambda one: one.task.name, elastic=True, spare=3),
    Column("LEVEL", lambda one: one.task.level, spare=4),
    Column("SINK", lambda one: one.task.chain[0], spare=2),
    Column("STATE", lambda one: one.status.state),
    Column("LEFT", lambda one: "-" if one.left is None else f"{one.left:,}", number=True),
    Column("FOR", lambda one: age_text(one.since_ms, now_ms()), number=True, spare=1),
    Column("REASON", lambda one: one.status.reason, elastic=True, least=24),
)


def print_overview(found: Overview, *, as_json: bool, wide: bool) -> None:
    if as_json:
        print_json(_as_json(found))
        return
    for sink in found.sinks:
        typer.echo(f"sink {sink.name}: {_sink_text(sink)}")
        for level in sink.levels:
            typer.echo(f"  {level.level}: {_level_text(level)}")
    for limit in found.limits:
        typer.echo(f"limit {limit}")
    if found.worst:
        print_table(_COLUMNS, found.worst, wide=wide, more="--wide shows all")
    note(_count_text(found))


def _sink_text(sink: SinkOverview) -> str:
    return "; ".join(_sink_parts(sink))


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
        tasks = "1 task" if sink.in_doubt == 1 else f"{sink.in_doubt:,} tasks"
        yield f"pushes of {tasks} wait, as the registry does not have them now"
    yield _left_text(sink.left, sink.later)


def _left_text(left: int, later: int) -> str:
    return f"{pushes_text(left)} left" + (f", {later:,} of them wait for their time" * bool(later))


def _level_text(level: LevelNow) -> str:
    tasks = "1 task" if level.tasks == 1 else f"{level.tasks:,} tasks"
    shares = f"entitled to {100 * level.entitled:.3g} %, got {100 * level.observed:.3g} %"
    return f"{tasks}, {_left_text(level.left, level.later)}; {shares}"


def _count_text(found: Overview) -> str:
    if not found.states:
        return "no unfinished tasks"
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(found.states.items()))
    total = sum(found.states.values())
    first = f"; these {MOST_NAMED} come first" if total > MOST_NAMED else ""
    cut = "; only the newest were looked at" if found.is_cut else ""
    return f"tasks: {counts}{first}{cut}. More of one: pushlane why TASK"


def _as_json(found: Overview) -> dict[str, Any]:
    return {
        "sinks": [asdict(sink) for sink in found.sinks],
        "limits": found.limits,
        "tasks": [_task_as_json(one) for one in found.worst],
        "states": dict(found.states),
        "unread_limits": found.unread_limits,
        "is_cut": found.is_cut,
    }


def _task_as_json(one: TaskNow) -> dict[str, Any]:
    return {
        "task_id": one.task.id,
        "name": one.task.name,
        "level": one.task.level,
        "sink": one.task.chain[0],
        "shown_state": one.status.state,
        "shown_reason": one.status.reason,
        "left": one.left,
        "later": one.later,
        "since": one.since_ms,
    }
