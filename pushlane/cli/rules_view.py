"""Shows rules and their runs as rows, fields and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pushlane.cli.parsing import pushes_text
from pushlane.cli.render import Column, time_text

if TYPE_CHECKING:
    from pushlane.pipeline.rules.history import Run
    from pushlane.pipeline.rules.rule_store import RuleRecord

RULE_COLUMNS: tuple[Column[RuleRecord], ...] = (
    Column("NAME", lambda page: page.rule.name, elastic=True),
    Column("CRON", lambda page: page.rule.cron),
    Column("ZONE", lambda page: page.rule.zone, spare=5),
    Column("NEXT RUN", lambda page: time_text(_next_ms(page) or 0)),
    Column("LAST RUN", lambda page: _last_text(page), spare=3),
    Column("STATE", lambda page: _state(page)),
)
RUN_COLUMNS: tuple[Column[tuple[str, Run]], ...] = (
    Column("RULE", lambda row: row[0], elastic=True),
    Column("DUE OR ASKED FOR", lambda row: time_text(row[1].at_ms)),
    Column("STATE", lambda row: _run_state(row[1])),
    Column("PUSHES", lambda row: "-" if row[1].total is None else f"{row[1].total:,}", number=True),
    Column("TASK", lambda row: row[1].task_id or "-", spare=5),
    Column("REASON", lambda row: row[1].reason, elastic=True),
)
_NEXT = 3


def rule_json(page: RuleRecord) -> dict[str, Any]:
    last = _last(page)
    next_ms = _next_ms(page)
    return {
        **page.rule.shown(),
        "next_at_ms": next_ms,
        "state": _state(page),
        "open_runs": len(page.history.open),
        "spent": page.history.spent,
        "last_run": run_json(page.rule.name, last) if last else None,
    }


def rule_fields(page: RuleRecord, now_ms: int) -> list[tuple[str, str]]:
    rule = page.rule
    shown = rule.shown()
    fields = [
        ("name", f"{rule.name} (revision {rule.revision})"),
        ("state", _state(page)),
        ("audience", " ".join(part for part in (shown["audience"], rule.format) if part)),
        *((f"option {name}", value) for name, value in shown["options"].items()),
        ("where", rule.where or "(everybody)"),
        *(("exclude", source) for source in shown["exclude"]),
        *((f"task {name}", str(value)) for name, value in rule.task.items()),
        ("cron", f"{rule.cron} in {rule.zone}"),
        ("budget", _budget(page, now_ms)),
        ("catch up", f"{rule.catch_up}, of the last {rule.catch_up_s:g} s"),
    ]
    return [*fields, *(("next run", time_text(at_ms)) for at_ms in _next(page))]


def run_json(rule: str, run: Run) -> dict[str, Any]:
    from pushlane.pipeline.rules.history import iso_utc, run_key

    shown = run.model_dump(mode="json", exclude={"rule"})
    return {"rule": rule, "key": run_key(rule, run.at_ms), "at": iso_utc(run.at_ms), **shown}


def _last(page: RuleRecord) -> Run | None:
    ended = [run for run in page.history.runs if not run.state.is_open]
    return ended[-1] if ended else None


def _last_text(page: RuleRecord) -> str:
    last = _last(page)
    return time_text(last.at_ms if last else 0)


def _run_state(run: Run) -> str:
    return run.state.value if run.times == 1 else f"{run.state} ({run.times:,} runs)"


def _state(page: RuleRecord) -> str:
    """Return what is under way, or else how the last run ended."""
    begun = next((run for run in page.history.open if run.has_begun), None)
    if begun:
        return begun.state.value
    if page.rule.paused:
        return "paused"
    last = _last(page)
    return "due" if page.history.open else last.state.value if last else "new"


def _budget(page: RuleRecord, now_ms: int) -> str:
    rule = page.rule
    run = "any" if rule.budget_run is None else pushes_text(rule.budget_run)
    if rule.budget_day is None:
        return f"a run {run}, a day any"
    spent = page.history.spent_on(rule.schedule.day(now_ms))
    return f"a run {run}, a day {pushes_text(rule.budget_day)} ({spent:,} used up today)"


def _next_ms(page: RuleRecord) -> int | None:
    from pushlane.pipeline.rules.due_runs import next_due_ms

    return next_due_ms(page.rule, page.history)


def _next(page: RuleRecord) -> list[int]:
    times: list[int] = []
    at_ms = _next_ms(page)
    while at_ms is not None and len(times) < _NEXT:
        times.append(at_ms)
        at_ms = page.rule.schedule.first_after(at_ms)
    return times


def changed_text(page: RuleRecord, verb: str) -> str:
    """Return what a command on a rule has done, and when the rule runs next."""
    next_ms = _next_ms(page)
    due = f"; it runs next at {time_text(next_ms)}" if next_ms else "; it is paused"
    return f"rule {page.rule.name} is {verb}{due}"
