"""`report` shows from receipts what was sent, delivered, dead and opened, how late and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.cli import report_view
from pushlane.cli.completion import complete_task
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, add_commands, on_backend
from pushlane.cli.render import print_json
from pushlane.core.errors import BadInput, UnknownTask, Unreachable
from pushlane.core.task import Task, now_ms
from pushlane.model.times import parse_since
from pushlane.settings import Settings

if TYPE_CHECKING:
    from pushlane.pipeline.reports.counts import CountRows
    from pushlane.pipeline.reports.query import Query
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


@dataclass(frozen=True, kw_only=True)
class ReportFlags:
    """The question as it is written on the command line, and the form of the answer."""

    task: Annotated[
        str | None,
        typer.Argument(metavar="[TASK]", help="Its id, key or name.", autocompletion=complete_task),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="24h|TIME",
            help="From this long ago, or this ISO time, on: 24h; of a TASK, all there is.",
        ),
    ] = None
    until: Annotated[
        str | None, typer.Option(metavar="1h|TIME", help="Up to then; now unless given.")
    ] = None
    by: Annotated[
        str | None,
        typer.Option(
            metavar="DIMENSIONS",
            help="Break down by: level, outcome, sink, app, reason, task, minute, hour, day, "
            "attribute:NAME; several with commas.",
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITIONS",
            help='Only these: "outcome=dead,sink=webhook|fcm", "app!=shop" (repeatable).',
        ),
    ] = None
    rows: Annotated[bool, typer.Option("--rows", help="Single receipts, the last first.")] = False
    limit: Annotated[int | None, typer.Option(min=1, max=_MOST, help="The most rows to show.")] = (
        None
    )
    latency: Annotated[bool, typer.Option("--latency", help="Quantiles in each row.")] = False
    recipients: Annotated[
        bool, typer.Option("--recipients", help="Different recipients in each row.")
    ] = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead.")] = False
    as_json: JsonFlag = False
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one web page with plots.")
    ] = None
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one picture.")] = None

    @property
    def is_picture(self) -> bool:
        return bool(self.html or self.png)

    @property
    def is_table(self) -> bool:
        """Tell whether a table alone is shown: for a breakdown that was asked for, or CSV."""
        return not (self.is_picture or self.as_json) and (self.by is not None or self.as_csv)

    @property
    def is_for_people(self) -> bool:
        return not (self.is_picture or self.as_json or self.as_csv)

    def most(self, on_terminal: int) -> int:
        """Return how many rows are shown: few for people, unless they say."""
        return self.limit or (_MOST if self.as_csv or self.as_json else on_terminal)

    def check(self) -> None:
        """Raise BadInput for forms that exclude each other."""
        if self.as_csv and self.as_json:
            raise BadInput("--csv and --json exclude each other; give one of them")
        if self.rows and self.is_picture:
            raise BadInput("--rows are no picture: leave out --html and --png, or --rows")

    def query(self, known: Task | None) -> tuple[Query, int | None]:
        """Return the question, and the task's total where that is what was submitted."""
        from pushlane.pipeline.reports.conditions import Condition, parse_where
        from pushlane.pipeline.reports.dimensions import Dimension, parse_by
        from pushlane.pipeline.reports.query import Period, Query

        now = now_ms()
        since_ms = parse_since(self.since or _SINCE, now) if self.since or not self.task else 0
        until_ms = parse_since(self.until, now) if self.until else now
        by = self.by if self.by is not None else "outcome,reason" if self.task else "task,level"
        where = parse_where(self.where or ())
        query = Query(Period.of(since_ms, until_ms), parse_by(by), where)
        if not self.task:
            return query, None
        is_whole = not (self.since or self.until or self.where)
        only = Condition(Dimension("task"), (known.id if known else self.task,))
        return query.filtered(only), known.total if known and is_whole else None


def register(app: typer.Typer) -> None:
    add_commands(app, report)


def report(flags: Flags, asked: ReportFlags) -> None:
    """Report what became of a task's pushes, or of all in a period."""
    asked.check()
    settings = flags.settings()
    with pipeline_extra(), _registered(settings, asked.task or "") as known:
        query, submitted = asked.query(known)
        if asked.rows:
            _rows(settings, query, asked)
        else:
            _report(settings, query, submitted, asked)


@contextmanager
def _registered(settings: Settings, word: str) -> Iterator[Task | None]:
    """Give the task that is asked for, if the registry knows it.

    It may be known to the store alone, once the registry has forgotten it. Where that has no
    receipts of it either, an error says what to do.
    """
    task = unknown = None
    try:
        if word and not settings.is_store_missing:
            task = on_backend(settings, lambda backend: backend.registry.get(word))
    except UnknownTask as error:
        unknown = error
    except Unreachable:
        note("the registry does not answer: `submitted` is what has finished")
    try:
        yield task
    except UnknownTask as error:
        if unknown:
            raise UnknownTask(f"{unknown}, and {error}") from error
        if task:
            raise BadInput(f"no receipts of task {task.id} in this period; {_HOW}") from error
        raise


def _report(settings: Settings, query: Query, submitted: int | None, form: ReportFlags) -> None:
    """Print only the breakdown when it was asked for on a terminal or as CSV, else all of it."""
    from pushlane.pipeline.reports import query_runner
    from pushlane.pipeline.store import store_root

    root = store_root(settings)
    options = query_runner.AnswerOptions(form.most(_MOST_SHOWN), form.recipients, form.latency)
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


def _print_table(table: Table, form: ReportFlags) -> None:
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


def _write_pictures(made: Report, table: Table, form: ReportFlags) -> None:
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


def _rows(settings: Settings, query: Query, form: ReportFlags) -> None:
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
