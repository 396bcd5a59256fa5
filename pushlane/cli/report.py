"""`report` shows from receipts what was sent, delivered, dead and opened, how late and why.

It prints on a terminal, as CSV, as JSON and as pictures. Recipients are masked at their source.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, argument, option, switch
from pushlane.cli.main import give_way
from pushlane.cli.parsing import complete_task
from pushlane.cli.render import Column, print_fields, print_json, print_table
from pushlane.cli.waits import WAIT_COLUMNS, parts_text
from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import now_ms
from pushlane.model.read_bounds import AT_A_SERVER
from pushlane.model.times import parse_since
from pushlane.operations.operation import Operation
from pushlane.operations.reports import (
    HOW,
    MOST,
    GetReport,
    LatencyView,
    ListReported,
    ReportedReceipt,
    ReportView,
    TaskOfReport,
    at_home,
    picture_of,
    receipts_at_home,
    report_view,
)
from pushlane.operations.tasks import GetTask
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.errors import NeedsBackend, UnknownTask

T = TypeVar("T")

_MINUTE_MS = 60_000
_STAGES = ("wait", "delivery", "total")
_LATENCY_COLUMNS: tuple[Column[LatencyView], ...] = (
    Column("LEVEL", lambda each: each.level),
    Column("DELIVERED AFTER", lambda each: each.stage),
    Column("MIN", lambda each: duration_text(each.min_ms), number=True, spare=2),
    Column("P50", lambda each: duration_text(each.p50_ms), number=True),
    Column("P90", lambda each: duration_text(each.p90_ms), number=True),
    Column("P95", lambda each: duration_text(each.p95_ms), number=True),
    Column("P99", lambda each: duration_text(each.p99_ms), number=True),
    Column("P99.9", lambda each: duration_text(each.p99_9_ms), number=True),
    Column("MAX", lambda each: duration_text(each.max_ms), number=True),
)
_WAIT_COLUMNS: tuple[Column[Any], ...] = (
    Column("LEVEL", lambda one: one.level),
    *WAIT_COLUMNS,
)
_ROW_COLUMNS: tuple[Column[ReportedReceipt], ...] = (
    Column("AT", lambda row: _at(row)),
    Column("PUSH", lambda row: f"{row.task_id}-{row.seq}"),
    Column("TASK", lambda row: row.task_name or "", elastic=True, spare=4),
    Column("LEVEL", lambda row: row.level or "", spare=5),
    Column("SINK", lambda row: row.sink or "", spare=4),
    Column("OUTCOME", lambda row: row.outcome or ""),
    Column("REASON", lambda row: row.reason or "", elastic=True),
    Column("TRY", lambda row: str(row.attempt or ""), number=True, spare=5),
    Column("RECIPIENT", lambda row: row.recipient or "", elastic=True),
    Column("WAIT MS", lambda row: _between(row, "eligible", "dispatched"), number=True, spare=2),
    Column(
        "DELIVERY MS", lambda row: _between(row, "dispatched", "responded"), number=True, spare=2
    ),
    Column("ATTRIBUTES", lambda row: parts_text(row.attributes), elastic=True, spare=1),
    Column("WAITED", lambda row: row.waited, elastic=True, spare=3, least=20),
)


def print_counts(made: ReportView) -> None:
    """Print the rows on a terminal: labels, then numbers."""
    print_table([_column(made, place) for place in range(len(made.columns))], made.rows)


def _column(made: ReportView, place: int) -> Column[Mapping[str, Any]]:
    name = made.columns[place]
    if place < made.labels:
        return Column(name.upper(), lambda row: str(row.get(name)) or "(none)", elastic=True)
    shown = name.upper().replace("_", " ")
    return Column(shown, lambda row: _number(name, row.get(name)), number=True)


def print_csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as CSV with a heading; what is not known is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name) for name in columns] for row in rows)


def print_csv_rows(rows: Sequence[ReportedReceipt]) -> None:
    """Print single receipts as CSV, their attributes and waits as one text each."""
    columns = ReportedReceipt.__struct_fields__
    texts = (
        {
            **{name: getattr(row, name) for name in columns},
            "attributes": parts_text(row.attributes),
            "waits": parts_text(row.waits),
        }
        for row in rows
    )
    print_csv(columns, [*texts])


def print_summary(report: ReportView) -> None:
    """Print the figures above the table."""
    assert report.funnel is not None
    assert report.total is not None
    whole = report.funnel.submitted
    steps = [
        (name, f"{n:,} ({n / whole:.1%})" if whole else f"{n:,}")
        for name, n in plain(report.funnel).items()
    ]
    others = [
        (name, f"{report.total[name]:,}")
        for name in ("dead", "expired", "dropped", "retry")
        if name in report.total
    ]
    print_fields([*steps, *others, ("recipients", f"about {report.recipients:,}")])
    typer.echo()
    if report.latency:
        stages = sorted(report.latency, key=lambda each: (each.level, _STAGES.index(each.stage)))
        print_table(_LATENCY_COLUMNS, stages)
        typer.echo()
    if report.waits:
        print_table(_WAIT_COLUMNS, report.waits)
        typer.echo()
    if untold := report.waits_untold:
        typer.echo(f"{untold}\n")


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


def _at(row: ReportedReceipt) -> str:
    from pushlane.pipeline.reports.answers import second_text

    return second_text(row.at_ms)


def _between(row: ReportedReceipt, start: str, end: str) -> str:
    start_ms, end_ms = getattr(row, f"{start}_at_ms"), getattr(row, f"{end}_at_ms")
    return f"{end_ms - start_ms:,}" if start_ms and end_ms else "-"


_MOST_SHOWN = 40
_MOST_SHOWN_ROWS = 100


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
    limit: Annotated[int | None, typer.Option(min=1, max=MOST, help="The most rows to show.")] = (
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
        return self.limit or (MOST if self.as_csv or self.as_json else on_terminal)

    def check(self) -> None:
        """Raise BadInput for forms that exclude each other."""
        if self.as_csv and self.as_json:
            raise BadInput("--csv and --json exclude each other; give one of them")
        if self.rows and self.is_picture:
            raise BadInput("--rows cannot be drawn: leave out --html and --png, or --rows")

    def report(self) -> GetReport:
        """Return what is asked for."""
        return GetReport(
            **self._asked(),
            by=self.by,
            limit=self.most(_MOST_SHOWN),
            latency=self.latency,
            recipients=self.recipients,
            rows_alone=self.is_table,
        )

    def receipts(self) -> ListReported:
        """Return which single receipts are asked for."""
        return ListReported(**self._asked(), limit=self.most(_MOST_SHOWN_ROWS))

    def _asked(self) -> dict[str, Any]:
        now = now_ms()
        return {
            "task": self.task,
            "since_ms": parse_since(self.since, now) if self.since else None,
            "until_ms": parse_since(self.until, now) if self.until else None,
            "where": tuple(self.where or ()),
        }


def report(flags: Flags, asked: ReportFlags) -> None:
    """Report what became of a task's pushes, or of all in a period."""
    asked.check()
    settings = flags.settings()
    with pipeline_extra():
        if asked.rows:
            _rows(settings, asked)
        elif asked.is_picture:
            _pictures(settings, asked)
        else:
            wanted = asked.report()
            made = _answered(settings, wanted, lambda of: at_home(settings, wanted, of))
            _print(made, asked)


def _answered(
    settings: Settings, wanted: Operation[T], without_registry: Callable[[TaskOfReport], T]
) -> T:
    """Return the answer; where the registry does not answer, the store of reports has one."""
    if settings.url or not settings.has_reports:
        give_way()
        return done(settings, wanted)
    if settings.is_store_missing:
        return without_registry(TaskOfReport())
    try:
        return done(settings, wanted)
    except Unreachable:
        note("the registry does not answer: `submitted` is what has finished")
        return without_registry(TaskOfReport())


def _print(made: ReportView, form: ReportFlags) -> None:
    """Print only the breakdown when it was asked for on a terminal or as CSV, else all of it."""
    if form.as_json:
        print_json(plain(made))
    elif form.as_csv:
        print_csv(made.columns, made.rows)
    elif form.is_for_people and made.rows:
        if not form.is_table:
            print_summary(made)
        print_counts(made)
    _remark(made)


def _remark(made: ReportView) -> None:
    more = made.rows_in_all - len(made.rows)
    if not made.rows:
        note(f"no receipts of this kind in this period; {HOW}")
    if more > 0:
        note(f"and {more:,} more rows: give a larger --limit")
    if made.is_estimate:
        note("estimated from a sample, each within its plus_minus in 95 of 100 cases")
    for line in made.notes:
        note(line)


def _pictures(settings: Settings, form: ReportFlags) -> None:
    """Write pictures of the store of reports; they show more than a report has as an answer."""
    if settings.url:
        raise NeedsBackend(settings.url)
    if not settings.has_reports:
        raise BadInput(
            f"pictures are made of a store of reports, and {settings.reports_root} holds none yet: "
            "`pushlane pipeline run` reads it from the log; without one there are tables, --csv "
            "and --json"
        )
    made, table = picture_of(settings, form.report(), _registered(settings, form.task or ""))
    if form.html:
        from pushlane.pipeline.reports.html import write_html

        with _writing(form.html):
            write_html(made, table, form.html)
    if form.png:
        from pushlane.pipeline.reports.plots import write_png

        with _writing(form.png):
            write_png(made, form.png)
    _print(report_view(made, table), form)


def _registered(settings: Settings, word: str) -> TaskOfReport:
    """Return the task that is asked for, if the registry knows it."""
    if not word or settings.is_store_missing:
        return TaskOfReport()
    try:
        task = done(settings, GetTask(task=word))
    except UnknownTask as error:
        if error.several:
            raise
        return TaskOfReport(unknown=error)
    except Unreachable:
        note("the registry does not answer: `submitted` is what has finished")
        return TaskOfReport()
    return TaskOfReport(task.id, task.total)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
    note(f"wrote {path}")


def _rows(settings: Settings, form: ReportFlags) -> None:
    wanted = form.receipts()
    found = _answered(settings, wanted, lambda of: receipts_at_home(settings, wanted, of))
    if form.as_json:
        print_json(plain(found))
    elif form.as_csv:
        print_csv_rows(found)
    elif found:
        print_table(_ROW_COLUMNS, found)
    if not found:
        note(f"no receipts of this kind in this period; {HOW}")
    if settings.url and len(found) == AT_A_SERVER.most_rows < wanted.limit:
        note(f"these are the last {len(found):,}, the most that a server shows")
    if any(row.sample_weight > 1 for row in found):
        note("some rows are a sample: each stands for its sample_weight of its kind")
