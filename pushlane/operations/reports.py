"""Operations that report from receipts what was sent, delivered, dead and opened, how late and why.

The store of reports answers where there is one, else the log of receipts. Recipients are masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import now_ms
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.model.receipt import Event
from pushlane.model.times import LAST_DATE_MS, given_since_ms
from pushlane.operations.hour import TaskPointView
from pushlane.operations.operation import Of, Operation, Result, Role, read_by
from pushlane.operations.session import Session
from pushlane.operations.tasks import TaskWord
from pushlane.operations.waits import WAITED, LevelWaitView, told_if_sent, untold_text
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from pushlane.util.extras import needs_extra

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

HOW = (
    "what `pushlane dispatch` has sent with the setting receipts=on (or required) is in reports; "
    "where there is a store of them, once `pushlane pipeline run` has read it"
)
_STORE = "`pushlane pipeline run` makes one of the receipts"
MOST = 1_000_000
"""The most rows that a report can have."""

_DAY_MS = 86_400_000
_EVENTS = frozenset(Event)
_LISTED = 1_000


class FunnelView(msgspec.Struct, frozen=True):
    """The steps from submitted to clicked; each counts pushes, none more than the one before."""

    submitted: int
    sent: int
    delivered: int
    displayed: int
    clicked: int


class LatencyView(msgspec.Struct, frozen=True, rename={"p99_9_ms": "p99.9_ms"}):
    """How long one stage took over `n` delivered pushes of a level: milliseconds."""

    level: str
    stage: str
    n: int
    min_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p99_9_ms: float
    max_ms: float


class ReportView(msgspec.Struct, frozen=True, kw_only=True):
    """A report of a period (Unix ms).

    `rows` is the breakdown: values by the names in `columns`, of which the first `labels` say what
    a row is about; a value that is not known is absent. `rows_in_all` counts rows beyond the limit,
    too. `notes` say what of it is estimated, cut or no longer kept. The rest is of the same
    receipts, and absent where the breakdown alone was asked for: `recipients` is about how many
    different ones there are, `deaths` counts by reason. `waits` says of delivered pushes by level
    where their time from submitted to dispatched went: first the whole, then its parts, the largest
    first; empty where no receipt tells.
    """

    title: str
    since_ms: int
    until_ms: int
    by: Sequence[str]
    where: Sequence[str]
    columns: Sequence[str]
    labels: int
    rows: Sequence[Mapping[str, Any]]
    rows_in_all: int
    is_estimate: bool
    notes: Sequence[str]
    total: Mapping[str, int] | None = None
    funnel: FunnelView | None = None
    recipients: int | None = None
    latency: Sequence[LatencyView] | None = None
    waits: Sequence[LevelWaitView] | None = None
    deaths: Mapping[str, int] | None = None

    @property
    def waits_untold(self) -> str:
        """Say of how many delivered pushes it is not known where their wait went; else nothing."""
        if self.latency is None or self.waits is None:
            return ""
        delivered = sum(one.n for one in self.latency if one.stage == "total")
        return untold_text(delivered, sum(one.n for one in self.waits if one.cause == WAITED))


class ReportedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt or an event of a push; `recipient` is masked. Times are Unix ms, 0 if not known.

    One of a sample stands for `sample_weight` of its kind. `waits` has, by cause, the ms from
    submitted to dispatched; absent of an event, and where the receipt does not tell.
    """

    at_ms: int
    task_id: str
    task_name: str | None
    seq: int
    app: str | None
    level: str | None
    sink: str | None
    outcome: str | None
    reason: str | None
    attempt: int | None
    recipient: str | None
    submitted_at_ms: int | None
    eligible_at_ms: int | None
    dispatched_at_ms: int | None
    responded_at_ms: int | None
    trace_id: str | None
    attributes: Mapping[str, str] | None
    sample_weight: float
    waits: Mapping[str, int] | None = None

    @property
    def waited(self) -> str:
        is_event = self.outcome in _EVENTS  # which has the times of its push
        return "-" if is_event else told_if_sent(self.waits, self.dispatched_at_ms)


def _past_ms(what: str, given: Any) -> int:
    return given_since_ms(what, given, now_ms())


Past = Annotated[int, read_by(_past_ms), Meta(ge=0, le=LAST_DATE_MS)]
Where = Annotated[
    tuple[str, ...],
    Meta(max_length=20, description="Only these, like outcome=dead, sink!=fcm or app=shop|bank."),
]


Limit = Annotated[int, Meta(ge=1, le=MOST, description="The most rows.")]


class TaskOfReport(NamedTuple):
    """The task that is asked for, as the registry knows it: with its total, or why it does not."""

    id: str = ""
    total: int | None = None
    unknown: UnknownTask | None = None


class _Asked(Operation[Result], Generic[Result], frozen=True, kw_only=True):
    """A question about receipts of a period: of one task, or of all."""

    task: TaskWord | None = None
    since_ms: (
        Annotated[Past, Meta(description="From then on (Unix ms): a day, of a task all.")] | None
    ) = None
    until_ms: Annotated[Past, Meta(description="Up to then (Unix ms): now.")] | None = None
    where: Where = ()

    def query(
        self, of: TaskOfReport, by: str | None, apps: frozenset[str] | None
    ) -> tuple[Query, int | None]:
        """Return the question, and the task's total where that is what was submitted."""
        from pushlane.pipeline.reports.query import (
            Condition,
            Dimension,
            Period,
            Query,
            parse_by,
            parse_where,
        )

        until_ms = now_ms() if self.until_ms is None else self.until_ms
        since_ms = self.since_ms
        if since_ms is None:
            since_ms = 0 if self.task else max(0, until_ms - _DAY_MS)
        if by is None:
            by = "outcome,reason" if self.task else "task,level"
        query = Query(Period.of(since_ms, until_ms), parse_by(by), parse_where(self.where))
        if apps is not None:
            query = query.filtered(Condition(Dimension("app"), tuple(sorted(apps))))
        if not self.task:
            return query, None
        is_whole = self.since_ms is None and self.until_ms is None and not self.where
        only = Condition(Dimension("task"), (of.id or self.task,))
        return query.filtered(only), of.total if is_whole else None

    async def registered(self, at: Session) -> TaskOfReport:
        """Return the task that is asked for. Reports may know it when the registry does not."""
        if not self.task:
            return TaskOfReport()
        try:
            task = await at.task(self.task)
        except UnknownTask as error:
            if error.several:
                raise
            return TaskOfReport(unknown=error)
        return TaskOfReport(task.id, task.total)


class GetReport(_Asked[ReportView], frozen=True, kw_only=True):
    """Report what became of a task's pushes, or of all in a period.

    The store of reports answers, or the log of receipts where there is none. A server gives it
    50 s, 1,000,000 receipts of the log and 10,000 rows.
    """

    method, path, role, of = "POST", "/reports", Role.VIEWER, Of.APPS
    commands = ("report",)

    by: (
        Annotated[
            str,
            Meta(
                max_length=1_000,
                description="level, outcome, sink, app, reason, task, minute, hour, day, "
                "attribute:NAME; several with commas.",
            ),
        ]
        | None
    ) = None
    limit: Limit = _LISTED
    latency: Annotated[bool, Meta(description="With quantiles in each row.")] = False
    recipients: Annotated[bool, Meta(description="With different recipients in each row.")] = False
    rows_alone: Annotated[bool, Meta(description="Nothing but the rows.")] = False

    async def run(self, at: Session) -> ReportView:
        of = await self.registered(at)
        bounds = at.reads.bounds
        options = _options(self, bounds.most_rows)
        async with at.reads.one():
            with _told(of):
                query, submitted = self.query(of, self.by, at.apps)
                if at.settings.has_reports:
                    behind = await _behind(at)
                    work = partial(_of_store, at.settings, self, query, submitted, options, bounds)
                    view = await at.reads.in_thread(work)
                    return msgspec.structs.replace(view, notes=[*view.notes, *behind])
                return await _of_log(at, self, query, submitted, options)


class ListReported(_Asked[list[ReportedReceipt]], frozen=True, kw_only=True):
    """List the last receipts of a task, or of all in a period, to see what a number is made of.

    What a report has to answer it, and what a server gives it, is as for a report.
    """

    method, path, role, of = "POST", "/reports/receipts", Role.VIEWER, Of.APPS
    commands = ("report",)

    limit: Limit = _LISTED

    async def run(self, at: Session) -> list[ReportedReceipt]:
        of = await self.registered(at)
        bounds = at.reads.bounds
        most = min(self.limit, bounds.most_rows)
        async with at.reads.one():
            with _told(of):
                query, _ = self.query(of, "", at.apps)
                if at.settings.has_reports:
                    root = at.settings.reports_root
                    return await at.reads.in_thread(
                        lambda: _receipts(_runner().rows_of(root, query, most, bounds))
                    )
                from pushlane.pipeline.reports import from_log

                return _receipts(await from_log.rows_of(at.backend.receipts, query, most, bounds))


class TaskSharesView(msgspec.Struct, frozen=True):
    """The share of a task of its sinks in steps of `step_s` seconds, beside its entitled share.

    Each point is the mean of the step that begins then: there is none for one in which it sent
    nothing. It was entitled to its part of all that went, by weights and quotas of what was sent in
    the same minutes: limits are no part of that. `notes` say what is estimated or no longer kept.
    """

    task: str
    step_s: int
    points: Sequence[TaskPointView]
    notes: Sequence[str]


class GetTaskShares(Operation[TaskSharesView], frozen=True, kw_only=True):
    """Show what a task got over all of its life beside what it was entitled to, by its receipts.

    The store of reports answers: the log of receipts is too long to be read for all tasks.
    """

    method, path, role, of = "GET", "/tasks/{task}/shares", Role.VIEWER, Of.TASK

    task: TaskWord

    async def run(self, at: Session) -> TaskSharesView:
        task = await at.task(self.task)
        if not at.settings.has_reports:
            raise BadInput(f"there is no store of reports: {_STORE}")
        async with at.reads.one():
            root, bounds = at.settings.reports_root, at.reads.bounds
            behind = await _behind(at)
            found = await at.reads.in_thread(
                lambda: _runner().shares_of(root, task.id, task.chain, bounds)
            )
        step_s = found.step_ms // 1000
        points = [
            TaskPointView(one.at_ms, _per_s(one.n, step_s), _per_s(one.entitled * one.of, step_s))
            for one in found.shares
        ]
        return TaskSharesView(task.id, step_s, points, [*found.notes, *behind])


async def _behind(at: Session) -> list[str]:
    """Say what of the log the store of reports has not read; nothing where nobody knows."""
    with needs_extra("pipeline"):
        from pushlane.pipeline.alerts.measure import lag_of
    try:
        bodies = await lag_of(at.backend.receipts, at.settings.reports_root)
    except Unreachable:  # the store answers all the same
        return []
    if not bodies:
        return []
    some = "entry" if bodies == 1 else f"{bodies:,} entries"
    return [f"the newest {some} of the log are not read yet: `pushlane pipeline run` does that"]


def _per_s(pushes: float, step_s: int) -> float:
    return round(pushes / step_s, 2)


def picture_of(settings: Settings, asked: GetReport, of: TaskOfReport) -> tuple[Report, Table]:
    """Return a whole report of the store, with what only pictures show. Raises as `GetReport`."""
    with _told(of):
        query, submitted = asked.query(of, asked.by, None)
        options = _options(asked, MOST)
        made: tuple[Report, Table]
        made = _runner().report_of(settings.reports_root, query, options, submitted)
        return made


def at_home(settings: Settings, asked: GetReport, of: TaskOfReport) -> ReportView:
    """Return what the store of reports says, without a registry."""
    with _told(of):
        query, submitted = asked.query(of, asked.by, None)
        return _of_store(settings, asked, query, submitted, _options(asked, MOST), NO_BOUNDS)


def receipts_at_home(
    settings: Settings, asked: ListReported, of: TaskOfReport
) -> list[ReportedReceipt]:
    """Return what the store of reports has, without a registry."""
    with _told(of):
        query, _ = asked.query(of, "", None)
        return _receipts(_runner().rows_of(settings.reports_root, query, asked.limit))


def report_view(made: Report, table: Table) -> ReportView:
    """Return all of a report except what only a picture shows."""
    rows = _rows_view(made.query, made.counts, table, made.notes, made.title)
    return msgspec.structs.replace(
        rows,
        total={"n": made.total.n, **made.total.by_outcome},
        funnel=FunnelView(**dict(made.funnel.steps())),
        recipients=made.recipients,
        latency=[_latency(each) for each in made.latency],
        waits=[LevelWaitView(*part, key[0]) for key, part in made.waits],
        deaths={row.key[0]: row.n for row in made.deaths},
    )


def _runner() -> ModuleType:
    with needs_extra("pipeline"):
        from pushlane.pipeline.reports import query_runner
    return query_runner


def _options(asked: GetReport, most: int) -> AnswerOptions:
    from pushlane.pipeline.reports.answers import AnswerOptions

    return AnswerOptions(min(asked.limit, most), asked.recipients, asked.latency)


def _of_store(
    settings: Settings,
    asked: GetReport,
    query: Query,
    submitted: int | None,
    options: AnswerOptions,
    bounds: ReadBounds,
) -> ReportView:
    root = settings.reports_root
    if asked.rows_alone:
        return _answer_view(query, _runner().counts_of(root, query, options, bounds))
    return report_view(*_runner().report_of(root, query, options, submitted, bounds))


async def _of_log(
    at: Session, asked: GetReport, query: Query, submitted: int | None, options: AnswerOptions
) -> ReportView:
    from pushlane.pipeline.reports import from_log

    log, bounds = at.backend.receipts, at.reads.bounds
    if asked.rows_alone:
        return _answer_view(query, await from_log.counts_of(log, query, options, bounds))
    return report_view(*await from_log.report_of(log, query, options, submitted, bounds))


@contextmanager
def _told(of: TaskOfReport) -> Iterator[None]:
    """Say what to do where there is nothing of the task that is asked for."""
    try:
        yield
    except UnknownTask as error:
        if of.unknown:
            raise UnknownTask(f"{of.unknown}, and {error}") from error
        if of.id:
            raise BadInput(
                f"no receipts of task {of.id} in this period: nothing of it may have ended yet "
                f"(`pushlane why {of.id}`); {HOW}"
            ) from error
        raise


def _answer_view(query: Query, answer: Answer) -> ReportView:
    return _rows_view(query, answer.counts, answer.table, answer.notes, "")


def _rows_view(
    query: Query, counts: CountRows, table: Table, notes: Sequence[str], title: str
) -> ReportView:
    return ReportView(
        title=title,
        since_ms=query.period.since_ms,
        until_ms=query.period.until_ms,
        by=[dimension.heading for dimension in query.by],
        where=[str(condition) for condition in query.where],
        columns=table.headings,
        labels=table.labels,
        rows=[_known(zip(table.headings, row, strict=True)) for row in table.rows],
        rows_in_all=counts.rows_in_all,
        is_estimate=counts.is_estimate,
        notes=notes,
    )


def _known(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def _latency(each: Lateness) -> LatencyView:
    times = (round(ms, 1) for ms in each.times_ms)
    return LatencyView(each.key[0], each.stage, each.n, *times)


def _receipts(found: ReceiptRows) -> list[ReportedReceipt]:
    return [ReportedReceipt(**row) for row in found.rows]
