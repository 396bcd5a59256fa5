"""`report` shows from receipts what was sent, delivered, dead and opened, how late and why.

It prints on a terminal, as CSV, as JSON and as pictures. Recipients are masked at their source.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, argument, on_backend, option, switch
from pushlane.cli.main import give_way
from pushlane.cli.parsing import complete_task
from pushlane.cli.render import Column, picked, print_fields, print_json, print_table
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import Task, now_ms
from pushlane.model.times import parse_since
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask

if TYPE_CHECKING:
    from pushlane.pipeline.reports.answers import (
        Answer,
        AnswerOptions,
        CountRows,
        Lateness,
        ReceiptRows,
        Report,
        Table,
    )
    from pushlane.pipeline.reports.query import Query

_MINUTE_MS = 60_000
_STAGES = ("wait", "delivery", "total")
_LATENCY_COLUMNS: tuple[Column[Lateness], ...] = (
    Column("LEVEL", lambda each: each.key[0]),
    Column("DELIVERED AFTER", lambda each: each.stage),
    Column("MIN", lambda each: duration_text(each.times_ms[0]), number=True, spare=2),
    Column("P50", lambda each: duration_text(each.times_ms[1]), number=True),
    Column("P90", lambda each: duration_text(each.times_ms[2]), number=True),
    Column("P95", lambda each: duration_text(each.times_ms[3]), number=True),
    Column("P99", lambda each: duration_text(each.times_ms[4]), number=True),
    Column("P99.9", lambda each: duration_text(each.times_ms[5]), number=True),
    Column("MAX", lambda each: duration_text(each.times_ms[6]), number=True),
)
_ROW_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("AT", lambda row: _at(row)),
    Column("PUSH", lambda row: f"{row['task_id']}-{row['seq']}"),
    Column("TASK", lambda row: row["task_name"] or "", elastic=True, spare=4),
    Column("LEVEL", lambda row: row["level"] or "", spare=5),
    Column("SINK", lambda row: row["sink"] or "", spare=4),
    Column("OUTCOME", lambda row: row["outcome"] or ""),
    Column("REASON", lambda row: row["reason"] or "", elastic=True),
    Column("TRY", lambda row: str(row["attempt"] or ""), number=True, spare=5),
    Column("RECIPIENT", lambda row: row["recipient"] or "", elastic=True),
    Column("WAIT MS", lambda row: _between(row, "eligible", "dispatched"), number=True, spare=2),
    Column(
        "DELIVERY MS", lambda row: _between(row, "dispatched", "responded"), number=True, spare=2
    ),
    Column("ATTRIBUTES", lambda row: _attributes_text(row["attributes"]), elastic=True, spare=1),
)


def print_counts(table: Table) -> None:
    """Print the table on a terminal: labels, then numbers."""
    columns = [_column(table, place) for place in range(len(table.headings))]
    print_table(columns, table.rows)


def _column(table: Table, place: int) -> Column[Sequence[Any]]:
    heading = table.headings[place]
    if place < table.labels:
        return Column(heading.upper(), lambda row: str(row[place]) or "(none)", elastic=True)
    shown = heading.upper().replace("_", " ")
    return Column(shown, lambda row: _number(heading, row[place]), number=True)


def print_csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the table as CSV with a heading; what is not known is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)


def print_csv_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print single receipts as CSV, their attributes as one text."""
    from pushlane.pipeline.reports.answers import COLUMNS

    texts = ({**row, "attributes": _attributes_text(row["attributes"])} for row in rows)
    print_csv(COLUMNS, [[row[name] for name in COLUMNS] for row in texts])


def print_summary(report: Report) -> None:
    """Print the figures above the table."""
    whole = report.funnel.submitted
    steps = [
        (name, f"{n:,} ({n / whole:.1%})" if whole else f"{n:,}")
        for name, n in report.funnel.steps()
    ]
    others = [
        (name, f"{report.total.by_outcome[name]:,}")
        for name in ("dead", "expired", "dropped", "retry")
        if name in report.total.by_outcome
    ]
    print_fields([*steps, *others, ("recipients", f"about {report.recipients:,}")])
    typer.echo()
    if report.latency:
        stages = sorted(report.latency, key=lambda each: (each.key, _STAGES.index(each.stage)))
        print_table(_LATENCY_COLUMNS, stages)
        typer.echo()


def as_json(report: Report, table: Table) -> dict[str, Any]:
    """Return all of a report except what only a picture shows."""
    period = report.query.period
    return {
        "title": report.title,
        **picked(period, "since_ms", "until_ms"),
        "by": [dimension.heading for dimension in report.query.by],
        "where": [str(condition) for condition in report.query.where],
        "rows": [dict(zip(table.headings, row, strict=True)) for row in table.rows],
        **picked(report.counts, "rows_in_all", "is_estimate"),
        "total": {"n": report.total.n, **report.total.by_outcome},
        "funnel": dict(report.funnel.steps()),
        "recipients": report.recipients,
        "latency": [_latency_json(each) for each in report.latency],
        "deaths": {row.key[0]: row.n for row in report.deaths},
        "notes": report.notes,
    }


def _number(heading: str, value: float | None) -> str:
    if value is None:
        return "-"
    if heading == "failure_rate":
        return f"{value:.2%}"
    return f"{value:,.0f}"


def duration_text(ms: float) -> str:
    """Return a duration as exact as a quantile of buckets is."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < _MINUTE_MS else f"{ms / _MINUTE_MS:.1f} min"


def _latency_json(each: Lateness) -> dict[str, Any]:
    from pushlane.pipeline.reports.answers import TIMES

    times = {f"{name}_ms": round(ms, 1) for name, ms in zip(TIMES, each.times_ms, strict=True)}
    return {"level": each.key[0], "stage": each.stage, "n": each.n, **times}


def _at(row: dict[str, Any]) -> str:
    from pushlane.pipeline.reports.answers import second_text

    return second_text(row["at_ms"])


def _attributes_text(attributes: dict[str, str] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted((attributes or {}).items()))


def _between(row: dict[str, Any], start: str, end: str) -> str:
    start_ms, end_ms = row[f"{start}_at_ms"], row[f"{end}_at_ms"]
    return f"{end_ms - start_ms:,}" if start_ms and end_ms else "-"


_SINCE = "24h"
_HOW = (
    "what `pushlane dispatch` has sent with the setting receipts=on (or required) is in reports; "
    "where there is a store of them, once `pushlane pipeline run` has read it"
)
_MOST_SHOWN = 40
_MOST_SHOWN_ROWS = 100
_MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ReportFlags:
    """The question as it is written on the command line, and the form of the answer."""

    task: Annotated[
        str | None, argument("[TASK]", "Its id, key or name.", autocompletion=complete_task)
    ] = None
    since: Annotated[
        str | None,
        option(
            "24h|TIME", "From this long ago, or this ISO time, on: 24h; of a TASK, all there is."
        ),
    ] = None
    until: Annotated[str | None, option("1h|TIME", "Up to then; now unless given.")] = None
    by: Annotated[
        str | None,
        option(
            "DIMENSIONS",
            "Break down by: level, outcome, sink, app, reason, task, minute, hour, day, "
            "attribute:NAME; several with commas.",
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        option(
            "CONDITIONS", 'Only these: "outcome=dead,sink=webhook|fcm", "app!=shop" (repeatable).'
        ),
    ] = None
    rows: Annotated[bool, switch("--rows", "Single receipts, the last first.")] = False
    limit: Annotated[int | None, typer.Option(min=1, max=_MOST, help="The most rows to show.")] = (
        None
    )
    latency: Annotated[bool, switch("--latency", "Quantiles in each row.")] = False
    recipients: Annotated[bool, switch("--recipients", "Different recipients in each row.")] = False
    as_csv: Annotated[bool, switch("--csv", "Print CSV instead.")] = False
    as_json: JsonFlag = False
    html: Annotated[Path | None, option("FILE", "Write one web page with plots.")] = None
    png: Annotated[Path | None, option("FILE", "Write one picture.")] = None

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
        from pushlane.pipeline.reports.query import (
            Condition,
            Dimension,
            Period,
            Query,
            parse_by,
            parse_where,
        )

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


class _Source(NamedTuple):
    """The functions that answer: of the store of reports, or of the log itself."""

    counts_of: Callable[[Query, AnswerOptions], Answer]
    report_of: Callable[[Query, AnswerOptions, int | None], tuple[Report, Table]]
    rows_of: Callable[[Query, int], ReceiptRows]


def _source(settings: Settings, form: ReportFlags) -> _Source:
    """Return what answers. Raises BadInput for pictures where there is no store."""
    root = settings.reports_root
    if settings.has_reports:
        from pushlane.pipeline.reports import query_runner

        return _Source(
            partial(query_runner.counts_of, root),
            partial(query_runner.report_of, root),
            partial(query_runner.rows_of, root),
        )
    if form.is_picture:
        raise BadInput(
            f"pictures are made of a store of reports, and {root} holds none yet: `pushlane "
            "pipeline run` reads it from the log; without one there are tables, --csv and --json"
        )
    from pushlane.pipeline.reports import from_log

    give_way()

    def ask(work: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        return lambda *of: on_backend(settings, lambda backend: work(backend.receipts, *of))

    return _Source(ask(from_log.counts_of), ask(from_log.report_of), ask(from_log.rows_of))


def _report(settings: Settings, query: Query, submitted: int | None, form: ReportFlags) -> None:
    """Print only the breakdown when it was asked for on a terminal or as CSV, else all of it."""
    from pushlane.pipeline.reports.answers import AnswerOptions

    source = _source(settings, form)
    options = AnswerOptions(form.most(_MOST_SHOWN), form.recipients, form.latency)
    if not form.is_table:
        made, table = source.report_of(query, options, submitted)
        notes, counts = made.notes, made.counts
        _write_pictures(made, table, form)
        if form.as_json:
            print_json(as_json(made, table))
        elif form.is_for_people and counts.rows:
            print_summary(made)
    else:
        answer = source.counts_of(query, options)
        table, notes, counts = answer.table, answer.notes, answer.counts
    if form.as_csv:
        print_csv(table.headings, table.rows)
    elif form.is_for_people and table.rows:
        print_counts(table)
    _remark(counts, notes)


def _remark(counts: CountRows, notes: list[str]) -> None:
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
    found = _source(settings, form).rows_of(query, form.most(_MOST_SHOWN_ROWS))
    if form.as_json:
        print_json(found.rows)
    elif form.as_csv:
        print_csv_rows(found.rows)
    elif found.rows:
        print_table(_ROW_COLUMNS, found.rows)
    if not found.rows:
        note(f"no receipts of this kind in this period; {_HOW}")
    if found.is_sampled:
        note("some rows are a sample: each stands for its sample_weight of its kind")
