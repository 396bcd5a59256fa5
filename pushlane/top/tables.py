"""The tables of what is shown: their rows, their columns, and by what they can be sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pushlane.model.presence import Process
from pushlane.operations.finding import FoundPage
from pushlane.operations.now import HeldView, NowView, ShareNowView, SinkNowView, TaskShareView
from pushlane.operations.task_views import TaskNow
from pushlane.top.texts import bar, count_text, ends_text, local_time, rate_text
from pushlane.util.columns import Column, age_text

T = TypeVar("T")


@dataclass(frozen=True)
class Order(Generic[T]):
    """By what rows can be sorted. Those of which `by` is None come last.

    `word` is what a search calls it, unless that is its name.
    """

    name: str
    by: Callable[[T], Any]
    largest_first: bool = True
    word: str = ""

    def sorted(self, rows: Sequence[T], *, is_reversed: bool = False) -> list[T]:
        known = [row for row in rows if self.by(row) is not None]
        unknown = [row for row in rows if self.by(row) is None]
        return [*sorted(known, key=self.by, reverse=self.largest_first != is_reversed), *unknown]


@dataclass(frozen=True)
class Seen:
    """A view of now, and what was asked beside it: the live processes, or a search for tasks."""

    view: NowView
    processes: Sequence[Process] = ()
    found: FoundPage | None = None


@dataclass(frozen=True)
class Table(Generic[T]):
    """One kind of rows. `key` tells a row from others, `detail` says what its columns may cut."""

    title: str
    rows: Callable[[Seen], Sequence[T]]
    columns: Callable[[Seen], tuple[Column[T], ...]]
    key: Callable[[T], str]
    detail: Callable[[T, Seen], str]
    orders: tuple[Order[T], ...] = ()
    nothing: str = "nothing"

    def chosen(
        self,
        seen: Seen,
        order: Order[T] | None = None,
        *,
        is_reversed: bool = False,
        find: str = "",
    ) -> list[T]:
        """Return the rows that hold a text in any column, in an order."""
        rows = [*self.rows(seen)]
        if find:
            cells = [column.cell for column in self.columns(seen)]
            rows = [
                row
                for row in rows
                if any(
                    find.lower() in text.lower() for text in (self.key(row), *_texts(cells, row))
                )
            ]
        return order.sorted(rows, is_reversed=is_reversed) if order else rows


def _texts(cells: Sequence[Callable[[T], str]], row: T) -> list[str]:
    return [cell(row) for cell in cells]


def _share_columns(seen: Seen) -> tuple[Column[ShareNowView], ...]:
    most: dict[str, float] = {}
    for one in seen.view.shares:
        largest = max(one.observed_per_s or 0.0, one.entitled_per_s or 0.0)
        most[one.sink] = max(most.get(one.sink, 0.0), largest)
    return (
        Column("SINK", lambda one: one.sink, elastic=True, spare=2),
        Column("LEVEL", lambda one: one.level),
        Column("APP", lambda one: one.app or "(all)", elastic=True),
        Column("TASKS", lambda one: f"{one.tasks:,}", number=True, spare=1),
        Column("LEFT", lambda one: f"{one.left:,}", number=True),
        Column("SHARE", lambda one: bar(one.observed_per_s, one.entitled_per_s, most[one.sink])),
        Column("OBSERVED", lambda one: rate_text(one.observed_per_s), number=True),
        Column("ENTITLED", lambda one: rate_text(one.entitled_per_s), number=True),
    )


def _task_columns(seen: Seen) -> tuple[Column[TaskShareView], ...]:
    at_ms = seen.view.at_ms
    return (
        Column("NAME", lambda one: one.name or one.task, elastic=True, least=12),
        Column("APP", lambda one: one.app, elastic=True, spare=4),
        Column("LEVEL", lambda one: one.level, spare=6),
        Column("SINK", lambda one: one.sink, elastic=True, spare=2),
        Column("QUOTA", lambda one: f"{one.quota:,}", number=True, spare=3),
        Column("STATE", lambda one: one.state),
        Column("LEFT", lambda one: count_text(one.left), number=True),
        Column("OBSERVED", lambda one: rate_text(one.observed_per_s), number=True),
        Column("ENTITLED", lambda one: rate_text(one.entitled_per_s), number=True),
        Column("SLOTS", lambda one: count_text(one.slots), number=True, spare=5),
        Column("ENDS", lambda one: ends_text(one.eta_ms, at_ms), number=True),
        Column("REASON", lambda one: one.reason, elastic=True, least=24, spare=1),
    )


def _sink_columns(seen: Seen) -> tuple[Column[SinkNowView], ...]:
    return (
        Column("SINK", lambda one: one.name, elastic=True),
        Column("PROCESSES", lambda one: f"{one.served_by:,}", number=True),
        Column("BUSY", lambda one: count_text(one.in_flight), number=True),
        Column("SLOTS", lambda one: count_text(one.slots), number=True),
        Column("RATE", lambda one: rate_text(one.per_s), number=True),
        Column("RESTING", lambda one: one.resting or "-", elastic=True, least=20),
    )


def _held_columns(seen: Seen) -> tuple[Column[HeldView], ...]:
    return (
        Column("WHAT", _what, elastic=True, least=12),
        Column("SINCE", lambda one: _since(one, seen)),
        Column("WHY", lambda one: one.why, elastic=True, least=20),
        Column("COMMAND", lambda one: one.command, elastic=True, least=20),
    )


def _what(one: HeldView) -> str:
    return f"{one.what} at {one.sink}" if one.sink else one.what or "all"


def _since(one: HeldView, seen: Seen) -> str:
    if one.since_ms is None:
        return "-"
    return ("≤" if one.may_begin_sooner else "") + local_time(one.since_ms, seen.view.at_ms)


def _process_columns(seen: Seen) -> tuple[Column[Process], ...]:
    at_ms = seen.view.at_ms
    return (
        Column("PROCESS", lambda one: one.id, elastic=True, least=16),
        Column("KIND", lambda one: one.kind, spare=2),
        Column("VERSION", lambda one: one.version, spare=1),
        Column("SINKS", lambda one: ", ".join(one.sink_names) or "-", elastic=True),
        Column("LANES", lambda one: f"{one.lanes:,}", number=True, spare=3),
        Column("UP", lambda one: age_text(one.started_at_ms, at_ms), number=True),
        Column("RESTING", lambda one: _resting(one) or "-", elastic=True, least=16),
    )


def _resting(one: Process) -> str:
    return "; ".join(f"{each.stands}: {each.why}" for each in one.resting)


def _task_detail(one: TaskShareView, seen: Seen) -> str:
    ends = "" if one.eta_ms is None else f"; ends {local_time(one.eta_ms, seen.view.at_ms)}"
    reason = f": {one.reason}" if one.reason else ""
    slots = "" if one.slots is None else f"; slots {one.slots:,}, 5 s old"
    return f"{one.name or one.task} ({one.task}) of {one.app}, {one.state}{reason}{ends}{slots}"


def _tasks(seen: Seen) -> Sequence[TaskShareView]:
    if seen.found is None:
        return seen.view.tasks
    return [_found_row(one, seen.found.at_ms) for one in seen.found.tasks]


def _found_row(one: TaskNow, at_ms: int) -> TaskShareView:
    return TaskShareView(
        task=one.id,
        name=one.name,
        app=one.app,
        level=one.level,
        sink=one.chain[0],
        quota=one.quota,
        state=one.shown_state,
        reason=one.shown_reason,
        left=one.left,
        observed_per_s=one.rate_per_s,
        entitled_per_s=one.entitled_per_s,
        eta_ms=None if one.eta_s is None else at_ms + round(one.eta_s * 1000),
        slots=one.slots,
    )


SHARES: Table[ShareNowView] = Table(
    "Shares",
    lambda seen: seen.view.shares,
    _share_columns,
    lambda one: f"{one.sink}/{one.level}/{one.app or ''}",
    lambda one, _: f"{one.app or 'all apps'} at {one.level} of sink {one.sink}",
    (
        Order("observed", lambda one: one.observed_per_s),
        Order("entitled", lambda one: one.entitled_per_s),
        Order("left", lambda one: one.left),
    ),
    "nobody has anything to send",
)
TASKS: Table[TaskShareView] = Table(
    "Tasks",
    _tasks,
    _task_columns,
    lambda one: one.task,
    _task_detail,
    (
        Order("left", lambda one: one.left),
        Order("observed", lambda one: one.observed_per_s, word="rate"),
        Order("entitled", lambda one: one.entitled_per_s),
        Order("slots", lambda one: one.slots),
        Order("end", lambda one: one.eta_ms, largest_first=False),
        Order("name", lambda one: one.name or one.task, largest_first=False),
        Order("state", lambda one: one.state, largest_first=False),
    ),
    "no task that is not finished",
)
SINKS: Table[SinkNowView] = Table(
    "Sinks",
    lambda seen: seen.view.sinks,
    _sink_columns,
    lambda one: one.name,
    lambda one, _: f"sink {one.name}{one.resting and ' rests: '}{one.resting}",
    (Order("rate", lambda one: one.per_s), Order("busy", lambda one: one.in_flight)),
    "no sink is served or waited for",
)
HELD: Table[HeldView] = Table(
    "Held",
    lambda seen: seen.view.held,
    _held_columns,
    lambda one: f"{_what(one)} {one.command}",
    lambda one, _: f"do: {one.command}\n{_what(one)}: {one.why}",
    (),
    "nothing holds any task",
)
PROCESSES: Table[Process] = Table(
    "Processes",
    lambda seen: seen.processes,
    _process_columns,
    lambda one: one.id,
    lambda one, _: f"{one.id}, pid {one.pid}, serves {', '.join(one.sink_names)} {_resting(one)}",
    (Order("age", lambda one: one.started_at_ms, largest_first=False),),
    "no process dispatches",
)
TABLES: tuple[Table[Any], ...] = (SHARES, TASKS, SINKS, HELD, PROCESSES)
"""What is shown, in the order of its keys."""
