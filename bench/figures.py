"""A benchmark's figures beside their goals: as a table in the terminal, and as one in the docs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Figure(NamedTuple):
    """One line of a benchmark's table; `met` is None where there is no goal."""

    name: str
    measured: str
    goal: str = ""
    met: bool | None = None

    def shown(self) -> str:
        return f"{self.measured} (missed)" if self.met is False else self.measured


def at_most(name: str, value: float, goal: float, form: str = "{:g}") -> Figure:
    return Figure(name, form.format(value), f"≤ {form.format(goal)}", value <= goal)


def at_least(name: str, value: float, goal: float, form: str = "{:g}") -> Figure:
    return Figure(name, form.format(value), f"≥ {form.format(goal)}", value >= goal)


def exactly(name: str, value: float, goal: float) -> Figure:
    return Figure(name, f"{value:g}", f"{goal:g}", value == goal)


def say(step: str) -> None:
    """Progress, apart from what the benchmark prints as its result."""
    print(step, file=sys.stderr, flush=True)


def show(title: str, figures: Sequence[Figure]) -> None:
    table = Table("figure", "measured", "goal", title=title)
    for figure in figures:
        table.add_row(figure.name, figure.shown(), figure.goal)
    Console().print(table)


def markdown(columns: Mapping[str, Sequence[Figure]]) -> str:
    """A table with a column of figures for each run; rows are matched by their names.

    Where the goals of runs differ each is there, in the order of the columns.
    """
    names = list(dict.fromkeys(figure.name for run in columns.values() for figure in run))
    by_name = [{figure.name: figure for figure in run} for run in columns.values()]
    goals = {name: _goal(name, by_name) for name in names}
    with_goal = any(goals.values())
    head = ["", *columns, *(["goal"] if with_goal else [])]
    lines = [_line(head), _line(["---"] * len(head))]
    for name in names:
        cells = [run[name].shown() if name in run else "" for run in by_name]
        lines.append(_line([name, *cells, *([goals[name]] if with_goal else [])]))
    return "\n".join(lines)


def _goal(name: str, runs: Sequence[Mapping[str, Figure]]) -> str:
    goals = [run[name].goal for run in runs if name in run and run[name].goal]
    return "; ".join(dict.fromkeys(goals))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
