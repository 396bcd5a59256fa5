"""The pages of rules: what is sent when and to whom, what became of runs; paused and run there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pushlane.console.pages import Ask, Page
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.operations.rules import (
    GetRule,
    ListRuleRuns,
    ListRules,
    PauseRule,
    PutRule,
    ResumeRule,
    RuleRunView,
    RuleView,
    RunRule,
    WithdrawRuleRuns,
)
from pushlane.util.errors import Unauthorized

_SHOWN = 200
_RUNS_SHOWN = 50
_STEERED = (PauseRule, ResumeRule, RunRule, WithdrawRuleRuns)


async def _values(ask: Ask) -> Mapping[str, Any]:
    try:
        found = await ask.do(ListRules())
    except BadInput as error:  # without the extra `pipeline`
        return {"absent": str(error), "wanted": None}
    runs = await ask.do(ListRuleRuns(limit=_RUNS_SHOWN))
    return {
        "absent": "",
        "rules": sorted(found, key=_place)[:_SHOWN],
        "all_rules": len(found),
        "under_way": sum(one.state in ("running", "waiting") for one in found),
        "paused": sum(one.paused for one in found),
        "served": any(one.served for one in found),
        "runs": runs,
        "may_put": ask.may(PutRule),
        **await _steered(ask, "NAME"),
    }


def _place(one: RuleView) -> tuple[bool, int, str]:
    """Return the place of a rule: the next to run first, those that are paused last."""
    return one.next_at_ms is None, one.next_at_ms or 0, one.name


async def _rule_values(ask: Ask) -> Mapping[str, Any]:
    name = ask.parts["rule"]
    rule = await ask.do(GetRule(name=name))
    return {
        "title": f"Rule {name}",
        "rule": rule,
        "runs": await ask.do(ListRuleRuns(name=name)),
        **await _steered(ask, name),
    }


async def _steered(ask: Ask, name: str) -> Mapping[str, Any]:
    """Return what the caller may do to a rule, and of which a run is to be asked for."""
    may = {kind.word(): ask.may(kind) for kind in _STEERED}
    ask.asked += [kind(name=name) for kind in _STEERED if may[kind.word()]]
    is_wanted = may["run-rule"] and not ask.is_again
    return {"may": may, "wanted": await _wanted(ask) if is_wanted else None}


class Wanted(NamedTuple):
    """The rule that somebody is about to run; `again` is the run that they want once more.

    `error` says why that cannot be.
    """

    name: str
    rule: RuleView | None = None
    again: RuleRunView | None = None
    error: str = ""


async def _wanted(ask: Ask) -> Wanted | None:
    name, at = ask.query.get("run", ""), ask.query.get("at", "")
    if not name:
        return None
    try:
        rule = await ask.quietly(GetRule.made(name=name))
        runs = await ask.quietly(ListRuleRuns.made(name=name)) if at else []
    except Unauthorized:
        raise
    except PushlaneError as error:
        return Wanted(name, error=str(error))
    again = [one for one in runs if str(one.at_ms) == at and one.state in ("failed", "refused")]
    if at and not again:
        return Wanted(name, error="This run has neither failed nor been refused.")
    return Wanted(name, rule, again[0] if again else None)


_QUERY = ("run", "at")
RULES = Page("/rules", "Rules", "rules.html", ListRules, _values, query=_QUERY)
RULE = Page("/rules/{rule}", "Rule", "rule.html", GetRule, _rule_values, query=_QUERY)
