"""Shows a task with its progress, as `tasks` and `task show` print it."""

from __future__ import annotations

from collections.abc import Mapping

from pushlane.cli.render import Column, age_text, soon_text, time_text
from pushlane.cli.task_texts import stop_text
from pushlane.core.task import DeliveryMode, now_ms
from pushlane.diagnosis.situation import reasons_text
from pushlane.operations.task_views import TaskNow

_WHOLE_PER_S = 10

COLUMNS: tuple[Column[TaskNow], ...] = (
    Column("TASK", lambda view: view.id),
    Column("NAME", lambda view: view.name, elastic=True),
    Column("LEVEL", lambda view: view.level, spare=11),
    Column("QUOTA", lambda view: "-" if view.pooled else str(view.quota), number=True, spare=1),
    Column("STATE", lambda view: view.shown_state),
    Column(
        "TOTAL",
        lambda view: "-" if view.total is None else f"{view.total:,}",
        number=True,
        spare=5,
    ),
    Column("FINISHED", lambda view: f"{view.finished:,}", number=True, spare=6),
    Column("DELIVERED", lambda view: f"{view.delivered:,}", number=True, spare=4),
    Column("DEAD", lambda view: f"{view.dead:,}", number=True, spare=9),
    Column("EXPIRED", lambda view: f"{view.expired:,}", number=True, spare=2),
    Column("DROPPED", lambda view: f"{view.dropped:,}", number=True, spare=3),
    Column("%", lambda view: _percent_text(view), number=True),
    Column("RATE", lambda view: _rate_text(view), number=True, spare=8),
    Column("ENDS", lambda view: _ends_text(view), number=True, spare=10),
    Column("AGE", lambda view: age_text(view.created_at_ms, now_ms()), number=True, spare=7),
    Column("REASON", lambda view: view.shown_reason, elastic=True, least=24),
)


def fields_of(view: TaskNow) -> list[tuple[str, str]]:
    """Return the names and values that `task show` prints, one pair a line."""
    return [
        ("task", view.id),
        ("name", view.name or "-"),
        ("app", view.app),
        ("key", view.key or "-"),
        ("level", view.level),
        ("quota", "- (shares a pool lane)" if view.pooled else str(view.quota)),
        ("state", view.shown_state),
        ("reason", view.shown_reason or "-"),
        *([("sinks", ", then ".join(view.sinks))] if view.sinks else []),
        ("total", _total_text(view)),
        ("finished", f"{view.finished:,} ({_percent_text(view)} %)"),
        ("  delivered", f"{view.delivered:,}"),
        ("  dead", _counted_text(view.dead, view.died_of)),
        ("  expired", _counted_text(view.expired, view.expired_for)),
        ("  dropped", _counted_text(view.dropped, view.dropped_for)),
        ("rate", _rate_text(view)),
        ("ends", _ends_text(view)),
        ("delivery", _delivery_text(view)),
        ("order", "by key" if view.ordered else "-"),
        ("dedupe", "recipient" if view.dedupe else "-"),
        ("stops if", stop_text(view)),
        ("attempts", f"at most {view.max_attempts} a push"),
        ("retention", f"{view.retention_s:g} s after its end"),
        ("created", time_text(view.created_at_ms)),
        *([("stalled", time_text(view.stalled_at_ms))] if view.stalled_at_ms else []),
        ("starts", time_text(view.not_before_ms)),
        ("expires", time_text(view.expires_at_ms)),
        ("quiet", _quiet_text(view)),
        ("ended", time_text(view.finished_at_ms)),
    ]


def _total_text(view: TaskNow) -> str:
    if view.total is not None:
        return f"{view.total:,}"
    if view.has_ended:
        return f"unknown (it was {view.state} before its submit was complete)"
    if view.left_with is not None:
        return "- (open: its producer is not running)"
    return "- (its producer goes on)" if view.is_fed else "- (still being submitted)"


def _percent_text(view: TaskNow) -> str:
    return "-" if view.percent is None else f"{int(view.percent)}"


def _rate_text(view: TaskNow) -> str:
    """Its rate, as `510/s`."""
    per_s = view.rate_per_s
    if per_s is None:
        return "-"
    return f"{per_s:,.0f}/s" if per_s >= _WHOLE_PER_S else f"{per_s:.2g}/s"


def _ends_text(view: TaskNow) -> str:
    """When it ends, as `in 4m`."""
    return "-" if view.eta_s is None else soon_text(view.eta_s)


def _counted_text(pushes: int, reasons: Mapping[str, int]) -> str:
    why = reasons_text(pushes, reasons)
    return f"{pushes:,}: {why}" if why else f"{pushes:,}"


def _delivery_text(view: TaskNow) -> str:
    if view.delivery is DeliveryMode.ONCE:
        return f"{view.delivery} (on unknown: {view.on_unknown})"
    return view.delivery


def _quiet_text(view: TaskNow) -> str:
    if not view.quiet:
        return "-"
    zone = view.zone or "UTC"
    if view.zone_column:
        return f"{view.quiet} (by column {view.zone_column}, else {zone})"
    may_differ = view.zone_column is None or view.is_fed
    return f"{view.quiet} ({zone}{' unless a push has its own zone' if may_differ else ''})"
