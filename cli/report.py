"""`report` shows from receipts what was sent, delivered, dead and opened, how late and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.cli import report_view
from pushlane.cli.backend_run import on_backend
from pushlane.cli.completion import complete_task
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, add_commands
from pushlane.cli.render import print_json
from pushlane.lanes.errors import BadInput, UnknownTask, Unreachable
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.times import parse_since

if TYPE_CHECKING:
    from pushlane.pipeline.reports.counts import CountRows
    from pushlane.pipeline.reports.query import Query
    from pushlane.pipeline.reports.query_runner import AnswerOptions
    from pushlane.pipeline.reports.report import Report
    from pushlane.pipeline.reports.table import Table

_SINCE = "24h"
_HOW = (
    "what `pushlane dispatch` has sent with the setting receipts=on (or required) is in reports "
    "once `pushlane pipeline run` has read it"
)
_MOST_SHOWN = 40
_MOST_SHOWN_ROWS = 100
_MOST = 1_000_000

_Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITIONS",
        help='Only these: "outcome=dead,sink=webhook|fcm", "app!=shop" (repeatable).',
    ),
]
_By = Annotated[
    str | None,
    typer.Option(
        metavar="DIMENSIONS",
        help="Break down by: level, outcome, sink, app, reason, task, minute, hour, day, "
        "attribute:NAME; several with commas.",
    ),
]


def register(app: typer.Typer) -> None:
    add_commands(app, report)


def report(
    flags: Flags,
    task: Annotated[
        str | None,
        typer.Argument(metavar="[TASK]", help="Its id, key or name.", autocompletion=complete_task),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="24h|TIME",
            help="From this long ago, or this ISO time, on: 24h; of a TASK, all there is.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="1h|TIME", help="Up to then; now unless given.")
    ] = None,
    by: _By = None,
    where: _Where = None,
    rows: Annotated[bool, typer.Option("--rows", help="Single receipts, the last first.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, max=_MOST, help="The most rows to show.")
    ] = None,
    latency: Annotated[bool, typer.Option("--latency", help="Quantiles in each row.")] = False,
    recipients: Annotated[
        bool, typer.Option("--recipients", help="Different recipients in each row.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead.")] = False,
    as_json: JsonFlag = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one web page with plots.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one picture.")] = None,
) -> None:
    """Report what became of a task's pushes, or of all in a period."""
    if as_csv and as_json:
        raise BadInput("--csv and --json exclude each other; give one of them")
    if rows and (html or png):
        raise BadInput("--rows are no picture: leave out --html and --png, or --rows")
    form = _Form(as_csv, as_json, by is not None, limit, latency, recipients, html, png)
    asked = _ReportRequest(task or "", since or "", until or "", by, tuple(where or ()))
    settings = flags.settings()
    with pipeline_extra():
        answer = _rows if rows else _report
        registered = _registered(settings, asked.task)
        with registered.explained():
            query, submitted = asked.query(registered.task)
            answer(settings, query, submitted, form)


@dataclass(frozen=True)
class _Form:
    """The form in which the answer is shown."""

    as_csv: bool
    as_json: bool
    by_alone: bool
    limit: int | None
    latency: bool
    recipients: bool
    html: Path | None
    png: Path | None

    @property
    def is_picture(self) -> bool:
        return bool(self.html or self.png)

    @property
    def is_table(self) -> bool:
        """Tell whether a table alone is shown: for a breakdown that was asked for, or CSV."""
        return not (self.is_picture or self.as_json) and (self.by_alone or self.as_csv)

    @property
    def is_for_people(self) -> bool:
        return not (self.is_picture or self.as_json or self.as_csv)

    def most(self, on_terminal: int) -> int:
        """Return how many rows are shown: few for people, unless they say."""
        return self.limit or (_MOST if self.as_csv or self.as_json else on_terminal)

    def answer_options(self) -> AnswerOptions:
        from pushlane.pipeline.reports.query_runner import AnswerOptions

        return AnswerOptions(self.most(_MOST_SHOWN), self.recipients, self.latency)


@dataclass(frozen=True)
class _ReportRequest:
    """The question as it is written on the command line."""

    task: str
    since: str
    until: str
    by: str | None
    where: tuple[str, ...]

    def query(self, known: Task | None) -> tuple[Query, int | None]:
        """Return the question, and the task's total where that is what was submitted."""
        from pushlane.pipeline.reports.conditions import Condition, parse_where
        from pushlane.pipeline.reports.dimensions import Dimension, parse_by
        from pushlane.pipeline.reports.query import Period, Query

        now = now_ms()
        since_ms = parse_since(self.since or _SINCE, now) if self.since or not self.task else 0
        until_ms = parse_since(self.until, now) if self.until else now
        query = Query(
            Period.of(since_ms, until_ms), parse_by(self._words()), parse_where(self.where)
        )
        if not self.task:
            return query, None
        is_whole = not (self.since or self.until or self.where)
        only = Condition(Dimension("task"), (known.id if known else self.task,))
        return query.filtered(only), known.total if known and is_whole else None

    def _words(self) -> str:
        if self.by is not None:
            return self.by
        return "outcome,reason" if self.task else "task,level"


@dataclass(frozen=True)
class _Registered:
    """The registry's answer on the task that is asked for; nothing when it was not asked.

    A task may be known to the store alone, once the registry has forgotten it.
    """

    task: Task | None = None
    unknown: UnknownTask | None = None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise, for a task without receipts, an error that says what to do."""
        try:
            yield
        except UnknownTask as error:
            if self.unknown:
                raise UnknownTask(f"{self.unknown}, and {error}") from error
            if self.task:
                raise BadInput(
                    f"no receipts of task {self.task.id} in this period; {_HOW}"
                ) from error
            raise


def _registered(settings: Settings, word: str) -> _Registered:
    if not word or settings.is_store_missing:
        return _Registered()
    try:
        return _Registered(on_backend(settings, lambda backend: backend.registry.get(word)))
    except UnknownTask as error:
        return _Registered(unknown=error)
    except Unreachable:
        note("the registry does not answer: `submitted` is what has finished")
        return _Registered()


def _report(settings: Settings, query: Query, submitted: int | None, form: _Form) -> None:
    """Print only the breakdown when it was asked for on a terminal or as CSV, else all of it."""
    from pushlane.pipeline.reports import query_runner
    from pushlane.pipeline.store import store_root

    root, options = store_root(settings), form.answer_options()
    if not form.is_table:
        made, table = query_runner.report_of(root, query, options, submitted)
        notes, counts = made.notes, made.counts
        _write_pictures(made, table, form)
        if form.as_json:
            print_json(report_view.as_json(made, table))
        elif form.is_for_people and counts.rows:
            report_view.print_summary(made)
    else:
        answer = query_runner.counts_of(root, query, options)
        table, notes, counts = answer.table, answer.notes, answer.counts
    _print_table(table, form)
    _remark(counts, notes)


def _print_table(table: Table, form: _Form) -> None:
    if form.as_csv:
        report_view.print_csv(table.headings, table.rows)
    elif form.is_for_people and table.rows:
        report_view.print_counts(table)


def _remark(counts: CountRows, notes: list[str]) -> None:
    """Say on stderr what is not in the table."""
    more = counts.rows_in_all - len(counts.rows)
    if not counts.rows:
        note(f"no receipts of this kind in this period; {_HOW}")
    if more > 0:
        note(f"and {more:,} more rows: give a larger --limit")
    if counts.is_estimate:
        note("estimated from a sample, each within its plus_minus in 95 of 100 cases")
    for line in notes:
        note(line)


def _write_pictures(made: Report, table: Table, form: _Form) -> None:
    if form.html:
        from pushlane.pipeline.reports.html import write_html

        with _writing(form.html):
            write_html(made, table, form.html)
    if form.png:
        from pushlane.pipeline.reports.plots import write_png

        with _writing(form.png):
            write_png(made, form.png)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
    note(f"wrote {path}")


def _rows(settings: Settings, query: Query, _submitted: int | None, form: _Form) -> None:
    from pushlane.pipeline.reports import query_runner
    from pushlane.pipeline.store import store_root

    found = query_runner.rows_of(store_root(settings), query, form.most(_MOST_SHOWN_ROWS))
    if form.as_json:
        print_json(found.rows)
    elif form.as_csv:
        report_view.print_csv_rows(found.rows)
    elif found.rows:
        report_view.print_rows(found.rows)
    if not found.rows:
        note(f"no receipts of this kind in this period; {_HOW}")
    if found.is_sampled:
        note("some rows are a sample: each stands for its sample_weight of its kind")
