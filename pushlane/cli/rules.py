"""Commands on rules: save them, look at them and at their runs, hold them, take them away.

`cli.rules_run` has those that carry runs out. What reads a rule from a file is of the pipeline, and
loaded by the command that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pushlane.cli import rules_run
from pushlane.cli.doing import done
from pushlane.cli.errors import confirm, note, pipeline_extra
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, option, switch
from pushlane.cli.parsing import parse_pairs, pushes_text
from pushlane.cli.render import Column, print_fields, print_json, print_rows, time_text
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.core.task import now_ms
from pushlane.operations.rules import (
    GetRule,
    ListRuleRuns,
    ListRules,
    PauseRule,
    PutRule,
    RemoveRule,
    ResumeRule,
    RuleRunView,
    RuleView,
    WithdrawRuleRuns,
)
from pushlane.operations.views import plain

RuleName = Annotated[str, argument("RULE", "Its name.")]

_COLUMNS: tuple[Column[RuleView], ...] = (
    Column("NAME", lambda one: one.name, elastic=True),
    Column("CRON", lambda one: one.cron),
    Column("ZONE", lambda one: one.zone, spare=5),
    Column("NEXT RUN", lambda one: time_text(one.next_at_ms or 0)),
    Column("LAST RUN", lambda one: time_text(one.last_run.at_ms if one.last_run else 0), spare=3),
    Column("STATE", lambda one: one.state),
)
_RUN_COLUMNS: tuple[Column[RuleRunView], ...] = (
    Column("RULE", lambda run: run.rule, elastic=True),
    Column("DUE OR ASKED FOR", lambda run: time_text(run.at_ms)),
    Column("STATE", lambda run: _run_state(run)),
    Column("PUSHES", lambda run: "-" if run.total is None else f"{run.total:,}", number=True),
    Column("TASK", lambda run: run.task_id or "-", spare=5),
    Column("REASON", lambda run: run.reason, elastic=True),
)
_UNDER_WAY = ("running", "waiting")


@dataclass(frozen=True, kw_only=True)
class RuleFlags:
    """The fields of a rule as flags; those that are not given keep what a file says."""

    audience: Annotated[
        str | None, option("PATH|TABLE", "The recipients: anything that Spark reads.")
    ] = None
    format: Annotated[str | None, option("FORMAT", "parquet, csv, json, jdbc, …")] = None
    options: Annotated[
        list[str] | None, option("NAME=VALUE", "For Spark's reader (repeatable).", "--option")
    ] = None
    where: Annotated[str | None, option("SQL", "Rule over its columns.")] = None
    exclude: Annotated[
        list[str] | None, option("PATH|TABLE[:COLUMN]", "Leave out these recipients (repeatable).")
    ] = None
    task_spec: Annotated[Path | None, option("TOML", "The task; kept as it is now.")] = None
    cron: Annotated[str | None, option("CRON", "When, like '0 9 * * MON'.")] = None
    zone: Annotated[str | None, option("ZONE", "Of its clock; UTC unless given.")] = None
    budget_run: Annotated[int | None, option("N", "Most pushes of a run.")] = None
    budget_day: Annotated[int | None, option("N", "Most pushes of a day.")] = None
    catch_up: Annotated[
        str | None, option("latest|all|skip", "Which missed runs are made up for.")
    ] = None
    catch_up_for: Annotated[str | None, option("1d", "How long ago they may have been missed.")] = (
        None
    )
    paused: Annotated[bool, switch("--paused", "Save it, and run it only by hand.")] = False

    def given(self) -> dict[str, Any]:
        """Return the fields that were given, by name.

        Raises:
            BadInput: an option of Spark's reader is not NAME=VALUE.
        """
        read = {
            "options": parse_pairs(self.options, "--option") if self.options else None,
            "task_spec": self.task_spec and str(self.task_spec),
            "paused": self.paused or None,
        }
        fields = {**vars(self), **read}
        return {name: value for name, value in fields.items() if value is not None}


def add(
    flags: Flags,
    rule: Annotated[str, argument("NAME|FILE.toml", "Its name, or a file that holds it.")],
    fields: RuleFlags,
    replace: Annotated[bool, switch("--replace", "Change the rule of this name.")] = False,
    check: Annotated[bool, switch("--check", "Count its audience first, with Spark.")] = False,
    spark: SparkFlags = DEFAULT_SPARK,
    as_json: JsonFlag = False,
) -> None:
    """Save a rule: from options, or from a file whose fields they replace.

    It runs while `pushlane rules serve` does, for the first time when it is next due.
    """
    given, settings = fields.given(), flags.settings()
    with pipeline_extra():
        from pushlane.pipeline.rules.rule import make_rule
        from pushlane.pipeline.rules.rule_file import build_rule, read_options, read_rule_file
    base = read_rule_file(Path(rule)) if rule.endswith(".toml") else {"name": rule}
    read = {**base, **read_options(given)}
    name = str(read.pop("name"))
    made = make_rule(name, read, now_ms())
    if check:
        built = build_rule({**read, "name": name}, settings, now_ms())
        rules_run.say_counts(settings, built, spark)
    own = {field: getattr(made, field) for field in PutRule.__struct_fields__ if field != "replace"}
    _tell(done(settings, PutRule.made(**own, replace=replace), create=True), "saved", as_json)


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List the rules, with when each runs next and how its last run ended."""
    found = done(flags.settings(), ListRules())
    nothing = "no rules; save one with: pushlane rules add"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def show(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Show a rule, without passwords, and when it runs next."""
    found = done(flags.settings(), GetRule(name=rule))
    if as_json:
        print_json(plain(found))
    else:
        print_fields(_fields(found))


def history(
    flags: Flags,
    rule: Annotated[str, argument("[RULE]", "All without one.")] = "",
    limit: Annotated[int, option("N", "Only the latest so many.", min=1)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show what became of the runs, the latest first."""
    runs = done(flags.settings(), ListRuleRuns(name=rule, limit=limit))
    print_rows(_RUN_COLUMNS, runs, plain, as_json=as_json, nothing="no runs yet")


def pause(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Run a rule no more, but by hand. A run under way goes on to its end."""
    found = done(flags.settings(), PauseRule(name=rule))
    if as_json:
        print_json(plain(found))
    note(f"rule {found.name} is paused; go on with: pushlane rules resume {found.name}")


def resume(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Let a paused rule run again. Runs that it missed are not made up for."""
    _tell(done(flags.settings(), ResumeRule(name=rule)), "on", as_json)


def withdraw(
    flags: Flags,
    rule: RuleName,
    at: Annotated[str, option("TIME", "The run of this ISO time; all unless given.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Take back the runs that were asked for and have not begun."""
    found = done(flags.settings(), WithdrawRuleRuns(name=rule, at_ms=rules_run.due_ms(at)))
    if as_json:
        print_json(plain(found))
    which = f"the run of {at}" if at else "every run"
    note(f"{which} of rule {found.name} is no longer asked for")


def remove(flags: Flags, rule: RuleName, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Take a rule away, with the history of its runs. Its tasks stay."""
    settings = flags.settings()
    found = done(settings, GetRule(name=rule))
    if not yes:
        sent = pushes_text(sum(found.spent.values()))
        question = f"Remove rule {rule} ({sent} in its last days)?"
        if found.state in _UNDER_WAY:
            question += " A run is under way: what it has put on its lane is still sent."
        confirm(f"removing rule {rule}", question, f"rule {rule} is not removed")
    removed = done(settings, RemoveRule(name=rule))
    if as_json:
        print_json(plain(removed))
    note(f"rule {rule} is removed")


def _tell(found: RuleView, verb: str, as_json: bool) -> None:
    """Say what has been done to a rule, and when it runs next."""
    due = f"it runs next at {time_text(found.next_at_ms)}" if found.next_at_ms else "it is paused"
    note(f"rule {found.name} is {verb}; {due}")
    if as_json:
        print_json(plain(found))


def _fields(rule: RuleView) -> list[tuple[str, str]]:
    return [
        ("name", f"{rule.name} (revision {rule.revision})"),
        ("state", rule.state),
        ("audience", " ".join(part for part in (rule.audience, rule.format) if part)),
        *((f"option {name}", value) for name, value in rule.options.items()),
        ("where", rule.where or "(everybody)"),
        *(("exclude", source) for source in rule.exclude),
        *((f"task {name}", str(value)) for name, value in rule.task.items()),
        ("cron", f"{rule.cron} in {rule.zone}"),
        ("budget", _budget(rule)),
        ("catch up", f"{rule.catch_up}, of the last {rule.catch_up_s:g} s"),
        *(("next run", time_text(at_ms)) for at_ms in (rule.next_at_ms, *rule.then_at_ms) if at_ms),
    ]


def _budget(rule: RuleView) -> str:
    run = "any" if rule.budget_run is None else pushes_text(rule.budget_run)
    if rule.budget_day is None:
        return f"a run {run}, a day any"
    used = f"{rule.spent_today:,} used up today"
    return f"a run {run}, a day {pushes_text(rule.budget_day)} ({used})"


def _run_state(run: RuleRunView) -> str:
    return run.state if run.times == 1 else f"{run.state} ({run.times:,} runs)"


rules = Group(
    "Send to an audience by a schedule, each run once.",
    (
        add,
        list_,
        show,
        history,
        pause,
        resume,
        remove,
        rules_run.run,
        withdraw,
        rules_run.serve,
    ),
)
