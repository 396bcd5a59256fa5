"""Commands on rules: save them, look at them and at their runs, hold them, take them away.

`cli.rules_run` has those that carry runs out. What they need of the pipeline is loaded by the
command that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pushlane.cli import rules_run
from pushlane.cli.errors import confirm, note, pipeline_extra
from pushlane.cli.flags import Flags, Group, JsonFlag, YesFlag, argument, option, switch
from pushlane.cli.parsing import parse_pairs, pushes_text
from pushlane.cli.render import print_fields, print_json, print_rows
from pushlane.cli.rules_run import (
    RULE_COLUMNS,
    RUN_COLUMNS,
    changed_text,
    rule_fields,
    rule_json,
    run_json,
)
from pushlane.cli.spark import DEFAULT_SPARK, SparkFlags
from pushlane.core.task import now_ms

if TYPE_CHECKING:
    from pushlane.pipeline.rules.rule_store import RuleRecord, RuleStore

RuleName = Annotated[str, argument("RULE", "Its name.")]


@dataclass(frozen=True, kw_only=True)
class RuleFlags:
    """The fields of a rule as flags; those that are not given keep what a file says."""

    audience: Annotated[
        str | None, option("PATH|TABLE", "Who may get it: all that Spark reads.")
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
        from pushlane.pipeline.rules.rule_file import build_rule, read_options, read_rule_file
    base = read_rule_file(Path(rule)) if rule.endswith(".toml") else {"name": rule}
    built = build_rule({**base, **read_options(given)}, settings, now_ms())
    if check:
        rules_run.say_counts(settings, built, spark)

    async def save(store: RuleStore) -> RuleRecord:
        await (store.replace(built) if replace else store.add(built))
        return await store.record(built.name)

    _tell(rules_run.in_store(settings, save, create=True), "saved", as_json)


def list_(flags: Flags, as_json: JsonFlag = False) -> None:
    """List the rules, with when each runs next and how its last run ended."""
    pages = rules_run.in_store(flags.settings(), lambda store: store.records())
    nothing = "no rules; save one with: pushlane rules add"
    print_rows(RULE_COLUMNS, pages, rule_json, as_json=as_json, nothing=nothing)


def show(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Show a rule, without passwords, and when it runs next."""
    page = rules_run.in_store(flags.settings(), lambda store: store.record(rule))
    if as_json:
        print_json(rule_json(page))
    else:
        print_fields(rule_fields(page, now_ms()))


def history(
    flags: Flags,
    rule: Annotated[str | None, argument("[RULE]", "All without one.")] = None,
    limit: Annotated[int, option("N", "Only the latest so many.", min=1)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show what became of the runs, the latest last."""

    async def load(store: RuleStore) -> Sequence[RuleRecord]:
        return await store.records() if rule is None else [await store.record(rule)]

    pages = rules_run.in_store(flags.settings(), load)
    runs = [(page.rule.name, run) for page in pages for run in page.history.runs]
    latest = sorted(runs, key=lambda one: (one[1].at_ms, one[0]))[-limit:]
    print_rows(
        RUN_COLUMNS, latest, lambda row: run_json(*row), as_json=as_json, nothing="no runs yet"
    )


def pause(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Run a rule no more, but by hand. A run under way goes on to its end."""
    page = _set_paused(flags, rule, True)
    if as_json:
        print_json(rule_json(page))
    name = page.rule.name
    note(f"rule {name} is paused; go on with: pushlane rules resume {name}")


def resume(flags: Flags, rule: RuleName, as_json: JsonFlag = False) -> None:
    """Let a paused rule run again. What came due meanwhile is not made up for."""
    _tell(_set_paused(flags, rule, False), "on", as_json)


def remove(flags: Flags, rule: RuleName, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Take a rule away, with the history of its runs. Its tasks stay."""
    settings = flags.settings()
    page = rules_run.in_store(settings, lambda store: store.record(rule))
    if not yes:
        sent = pushes_text(sum(page.history.spent.values()))
        question = f"Remove rule {rule} ({sent} in its last days)?"
        if any(run.has_begun for run in page.history.open):
            question += " A run is under way: what it has put on its lane is still sent."
        confirm(f"removing rule {rule}", question, f"rule {rule} is not removed")
    rules_run.in_store(settings, lambda store: store.remove(rule))
    if as_json:
        print_json({"name": rule, "removed": True})
    note(f"rule {rule} is removed")


def _set_paused(flags: Flags, name: str, paused: bool) -> RuleRecord:
    async def change(store: RuleStore) -> RuleRecord:
        await store.change(name, lambda rule: rule.held(paused, now_ms()))
        return await store.record(name)

    return rules_run.in_store(flags.settings(), change)


def _tell(page: RuleRecord, verb: str, as_json: bool) -> None:
    note(changed_text(page, verb))
    if as_json:
        print_json(rule_json(page))


rules = Group(
    "Send to an audience by a schedule, each run once.",
    (add, list_, show, history, pause, resume, remove, rules_run.run, rules_run.serve),
)
