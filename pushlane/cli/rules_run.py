"""Commands that carry out runs of rules, by hand or when they are due, beside the backend."""

from __future__ import annotations

import asyncio
import logging
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.backends.backend import Backend, connect
from pushlane.backends.contact import BROKER, REGISTRY, Contact, asking
from pushlane.cli.doing import done
from pushlane.cli.errors import note, pipeline_extra
from pushlane.cli.flags import Flags, JsonFlag, LogFormat, argument, on_backend, option, switch
from pushlane.cli.health import Health, HealthFlags, loop_patience_s
from pushlane.cli.logs import set_up_logs
from pushlane.cli.parsing import pushes_text
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import print_json
from pushlane.cli.signals import ended_if_hung, stop_on_signals
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.operations.rules import GetRule, RunRule, run_view
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.errors import NeedsBackend

if TYPE_CHECKING:
    from pushlane.pipeline.fanout.request import AudienceCounts
    from pushlane.pipeline.rules.expand import SparkExpander
    from pushlane.pipeline.rules.history import Run
    from pushlane.pipeline.rules.rule import Rule
    from pushlane.pipeline.rules.rule_scheduler import RuleScheduler
    from pushlane.pipeline.rules.runner import RuleStats


def run(
    flags: Flags,
    rule: Annotated[str, argument("RULE", "Its name.")],
    at: Annotated[str, option("TIME", "The run that was due at this ISO time, once.")] = "",
    dry_run: Annotated[
        bool, switch("--dry-run", "Only count what it would put on a lane now.")
    ] = False,
    no_wait: Annotated[
        bool, switch("--no-wait", "Only ask for it: `rules serve` makes it.")
    ] = False,
    spark: SparkFlags = DEFAULT_SPARK,
    as_json: JsonFlag = False,
) -> None:
    """Run a rule now, or again for a time when it was due, and print the task's id.

    A run that is done already is not made again. Where a scheduler runs, that one makes it.
    """
    settings = flags.settings()
    if no_wait:
        if dry_run:
            raise BadInput("--dry-run counts here and now: leave out --no-wait")
        _ask(settings, RunRule(name=rule, at_ms=due_ms(at)), as_json)
        return
    if settings.url and not dry_run:
        raise NeedsBackend(settings.url, "only ask for it with --no-wait, or ")
    logging.getLogger("pushlane.rules").setLevel(logging.CRITICAL)  # its end is told as an error
    if dry_run:
        counts = say_counts(settings, _load(settings, rule), spark)
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
    """Run the rules when they are due, one run at a time, until stopped.

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


def _ask(settings: Settings, wanted: RunRule, as_json: bool) -> None:
    """Ask for a run, and say whether there is somebody to make it."""
    asked = done(settings, wanted)
    if as_json:
        print_json(plain(asked))
    if asked.state == "done":
        note(f"the run of rule {asked.rule} is done already: task {asked.task_id or 'none'}")
        return
    served = done(settings, GetRule(name=asked.rule)).served
    when = "`rules serve` makes it" if served else "it waits: nobody runs `pushlane rules serve`"
    note(f"a run of rule {asked.rule} is asked for; {when} (`pushlane rules history {asked.rule}`)")


def _expander(settings: Settings, spark: SparkFlags, bar: SubmitBar | None) -> SparkExpander:
    with pipeline_extra():
        from pushlane.pipeline.fanout.request import MEMORY
        from pushlane.pipeline.rules.expand import SparkExpander
        from pushlane.pipeline.session import MASTER
    options = spark.spark_options()
    return SparkExpander(settings, spark.master or MASTER, spark.memory or MEMORY, options, bar)


def _load(settings: Settings, name: str) -> Rule:
    """Return the rule of this name, with the passwords that its reader needs."""
    with pipeline_extra():
        from pushlane.pipeline.rules.rule_store import RuleStore

    async def load(backend: Backend) -> Rule:
        return (await RuleStore(backend.documents).record(name)).rule

    return on_backend(settings, load)


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
            request_again(store, name, due_ms(at), now) if at else request_now(store, name, now)
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
        print_json(plain(run_view(rule, run)))
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
    from pushlane.pipeline.rules.rule_scheduler import RealClock, RuleScheduler
    from pushlane.pipeline.rules.rule_store import LEASE, RuleStore
    from pushlane.pipeline.rules.runner import Runner

    store, clock = RuleStore(backend.documents), RealClock()
    runner = Runner(store, backend.registry, expander, clock.now_ms, stats)
    leader = Leader(backend.lease, LEASE, secrets.token_hex(8))
    return RuleScheduler(store, runner, leader, clock, contact=contact, stats=stats)


def due_ms(text: str) -> int:
    """Return the time of a run in Unix ms, 0 for none. Raises BadInput for what is no ISO time."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"--at {text!r} is no ISO time like 2026-01-31T18:00+01:00 (`rules history --json` "
            "shows the times of runs)"
        ) from error
