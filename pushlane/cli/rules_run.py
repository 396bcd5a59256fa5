"""Commands that carry out runs of rules, by hand or when they are due; how rules are shown."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pushlane.backends.backend import Backend, connect
from pushlane.backends.contact import BROKER, REGISTRY, Contact, asking
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, LogFormat, argument, on_backend, option, switch
from pushlane.cli.health import Health, HealthFlags, loop_patience_s
from pushlane.cli.logs import set_up_logs
from pushlane.cli.parsing import pushes_text
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import Column, print_json, time_text
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.settings import Settings

if TYPE_CHECKING:
    from pushlane.pipeline.fanout.request import AudienceCounts
    from pushlane.pipeline.rules.expand import SparkExpander
    from pushlane.pipeline.rules.history import Run
    from pushlane.pipeline.rules.rule import Rule
    from pushlane.pipeline.rules.rule_scheduler import RuleScheduler
    from pushlane.pipeline.rules.rule_store import RuleRecord, RuleStore
    from pushlane.pipeline.rules.runner import RuleStats

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
    if begun := next((run for run in page.history.open if run.has_begun), None):
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
    from pushlane.pipeline.rules.history import next_due_ms

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


T = TypeVar("T")


def run(
    flags: Flags,
    rule: Annotated[str, argument("RULE", "Its name.")],
    at: Annotated[str, option("TIME", "The run that was due at this ISO time, once.")] = "",
    dry_run: Annotated[
        bool, switch("--dry-run", "Only count what it would put on a lane now.")
    ] = False,
    spark: SparkFlags = DEFAULT_SPARK,
    as_json: JsonFlag = False,
) -> None:
    """Run a rule now, or again for a time when it was due, and print the task's id.

    A run that is done already is not made again. Where a scheduler runs, that one makes it.
    """
    settings = flags.settings()
    logging.getLogger("pushlane.rules").setLevel(logging.CRITICAL)  # its end is told as an error
    if dry_run:
        page = in_store(settings, lambda store: store.record(rule))
        counts = say_counts(settings, page.rule, spark)
        if as_json:
            print_json(counts)
        return
    with SubmitBar() as bar:
        ended = asyncio.run(_run(settings, _expander(settings, spark, bar), rule, at))
    _say(rule, ended, as_json)


def serve(
    flags: Flags,
    once: Annotated[bool, switch("--once", "Carry out what is due now, and end.")] = False,
    spark: SparkFlags = DEFAULT_SPARK,
    log_format: LogFormat = None,
    *,
    metrics: HealthFlags,
) -> None:
    """Run the rules when they are due, one run at a time, until it is told to stop.

    Of several such processes one leads, and the others stand by. SIGTERM or Ctrl-C ends it; a run
    that is under way is gone on with by the next one.
    """
    settings = flags.also(log_format=log_format).settings()
    set_up_logs(settings.log_format)
    expander = _expander(settings, spark, None)
    with metrics.serving() as health, ended_if_hung(health, loop_patience_s(settings)):
        asyncio.run(_serve(settings, expander, once, health))


def say_counts(settings: Settings, rule: Rule, spark: SparkFlags) -> AudienceCounts:
    """Say what a run of the rule would put on a lane now, and return it.

    Raises:
        BadInput: it could put nothing there.
    """
    with SubmitBar() as bar:
        counts = asyncio.run(_expander(settings, spark, bar).count(rule))
    note(f"{counts.matched:,} rows match: {pushes_text(counts.total)}")
    return counts


def _expander(settings: Settings, spark: SparkFlags, bar: SubmitBar | None) -> SparkExpander:
    with pipeline_extra():
        from pushlane.pipeline.fanout.request import MEMORY
        from pushlane.pipeline.rules.expand import SparkExpander
        from pushlane.pipeline.session import MASTER
    options = spark.spark_options()
    return SparkExpander(settings, spark.master or MASTER, spark.memory or MEMORY, options, bar)


def in_store(
    settings: Settings, work: Callable[[RuleStore], Awaitable[T]], *, create: bool = False
) -> T:
    """Open the store of rules, do the work on it, close it, and return the work's result."""
    with pipeline_extra():
        from pushlane.pipeline.rules.rule_store import RuleStore
    return on_backend(settings, lambda backend: work(RuleStore(backend.documents)), create=create)


async def _run(settings: Settings, expander: SparkExpander, name: str, at: str) -> Run:
    from pushlane.pipeline.rules.history import iso_utc
    from pushlane.pipeline.rules.rule_scheduler import (
        RealClock,
        RunId,
        request_again,
        request_now,
        wait_for_end,
        withdraw_request,
    )
    from pushlane.pipeline.rules.rule_store import RuleStore

    async with connect(settings, create=False) as backend:
        store, now = RuleStore(backend.documents), now_ms()
        at_ms = await (
            request_again(store, name, _at_ms(at), now) if at else request_now(store, name, now)
        )
        wanted = RunId(name, at_ms)
        try:
            return await wait_for_end(backend, wanted, expander, RealClock(), note)
        except asyncio.CancelledError:  # Ctrl-C
            await withdraw_request(store, wanted)
            note(f"what has begun goes on with: pushlane rules run {name} --at {iso_utc(at_ms)}")
            raise


def _say(rule: str, run: Run, as_json: bool) -> None:
    from pushlane.pipeline.rules.history import RunState

    if as_json:
        print_json(run_json(rule, run))
    if run.state is not RunState.DONE:
        ends = {"failed": "failed", "refused": "been refused"}.get(run.state, "not been made")
        raise BadInput(f"the run of rule {rule} has {ends}: {run.reason}")
    note(f"{pushes_text(run.total or 0)} on the lane{f': {run.reason}' if run.reason else ''}")
    if run.task_id and not as_json:
        typer.echo(run.task_id)


async def _serve(settings: Settings, expander: SparkExpander, once: bool, health: Health) -> None:
    from pushlane.pipeline.fanout.stage import remove_abandoned
    from pushlane.pipeline.rules.runner import RULE_METRICS, RuleStats

    contact, stats = Contact(BROKER, REGISTRY), RuleStats()
    health.show(RULE_METRICS, stats, settings)
    health.missing = contact.missing
    async with health.beating():
        await asyncio.to_thread(remove_abandoned, settings)
        async with connect(settings) as backend, asking(contact[BROKER], backend.broker.ping):
            scheduler = _scheduler(backend, expander, contact, stats)
            stop_on_signals(
                scheduler.stop,
                stopping="stopping; a run under way is left for the next scheduler",
                left="a run under way is gone on with by the next scheduler",
            )
            await scheduler.run(once=once)
            if once and not scheduler.leads:
                note("another process leads the rules, and runs what is due")


def _scheduler(
    backend: Backend, expander: SparkExpander, contact: Contact, stats: RuleStats
) -> RuleScheduler:
    from pushlane.backends.leases import Leader
    from pushlane.pipeline.rules.rule_scheduler import LEASE, RealClock, RuleScheduler
    from pushlane.pipeline.rules.rule_store import RuleStore
    from pushlane.pipeline.rules.runner import Runner

    store, clock = RuleStore(backend.documents), RealClock()
    runner = Runner(store, backend.registry, expander, clock.now_ms, stats)
    leader = Leader(backend.lease, LEASE, secrets.token_hex(8))
    return RuleScheduler(store, runner, leader, clock, contact=contact, stats=stats)


def _at_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp()) * 1000
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"--at {text!r} is no ISO time like 2026-01-31T18:00+01:00 (`rules history --json` "
            "shows the times of runs)"
        ) from error
