"""Operations on rules: who may save one, what is seen of one, and what the audit has."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pushlane import BadInput, Settings
from pushlane.backends.backend import Backend, connect
from pushlane.model.access import Access, Role
from pushlane.operations.doing import do
from pushlane.operations.processes import ListAudit
from pushlane.operations.rules import (
    GetRule,
    ListRuleRuns,
    ListRules,
    PauseRule,
    PutRule,
    RemoveRule,
    ResumeRule,
    RunRule,
    WithdrawRuleRuns,
)
from pushlane.operations.session import Caller
from pushlane.operations.views import plain
from pushlane.pipeline.rules.history import Run, RunState, begin, request_run
from pushlane.pipeline.rules.rule_store import LEASE, RuleStore
from pushlane.util.errors import NotAllowed, NotFound

ADMIN = Caller("ada", "cli")
TASK = {"level": "low", "title": "Hi {name}", "app": "shop"}


def rule(name: str = "weekly", **given: Any) -> PutRule:
    fields = {"audience": "users", "task": TASK, "cron": "0 9 * * MON", **given}
    return PutRule.made(name=name, **fields)


def of(app: str, role: Role = Role.OPERATOR) -> Caller:
    return Caller("bob", "http", Access(role, frozenset({app})))


async def names(backend: Backend, settings: Settings, who: Caller) -> list[str]:
    return [one.name for one in await do(backend, settings, who, ListRules())]


async def test_a_rule_is_saved_held_and_removed_and_the_audit_says_so(settings: Settings) -> None:
    async with connect(settings) as backend:
        saved = await do(backend, settings, ADMIN, rule(budget_day="100"))
        paused = await do(backend, settings, ADMIN, PauseRule(name="weekly"))
        resumed = await do(backend, settings, ADMIN, ResumeRule(name="weekly"))
        removed = await do(backend, settings, ADMIN, RemoveRule(name="weekly"))
        entries = await do(backend, settings, ADMIN, ListAudit())
        left = await names(backend, settings, ADMIN)

    assert (saved.app, saved.state, saved.budget_day) == ("shop", "new", 100)
    assert (paused.state, paused.next_at_ms, paused.then_at_ms) == ("paused", None, ())
    assert len({resumed.next_at_ms, *resumed.then_at_ms}) == 3
    assert (plain(removed), left) == ({"name": "weekly", "removed": True}, [])
    assert [(one.operation, one.subject, one.app) for one in entries] == [
        (f"{verb}-rule", "rule/weekly", "shop") for verb in ("remove", "resume", "pause", "put")
    ]
    assert entries[2].after == {"revision": 2, "paused": True}


async def test_a_run_is_asked_for_once_until_it_begins_and_can_be_taken_back(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule(paused=True))
        first = await do(backend, settings, of("shop"), RunRule(name="weekly"))
        again = await do(backend, settings, of("shop"), RunRule(name="weekly"))
        waiting = await do(backend, settings, ADMIN, GetRule(name="weekly"))
        left = await do(backend, settings, ADMIN, WithdrawRuleRuns(name="weekly"))
        with pytest.raises(BadInput, match="rule 'weekly' has no waiting run that"):
            await do(backend, settings, ADMIN, WithdrawRuleRuns(name="weekly"))
        entries = await do(backend, settings, ADMIN, ListAudit())

    assert (first.state, first.asked, first.key) == ("due", True, f"rule-weekly-{first.at}")
    assert again == first
    assert (waiting.state, waiting.open_runs, left.open_runs) == ("paused", 1, 0)
    assert [(one.operation, one.before, one.after, one.app) for one in entries[:2]] == [
        ("withdraw-rule-runs", {"run": first.at}, {}, "shop"),
        ("run-rule", {}, {"run": first.at}, "shop"),
    ]
    assert len(entries) == 3


async def test_of_two_runs_that_wait_one_is_taken_back(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule(paused=True))
        store = RuleStore(backend.documents)
        for at_ms in (1_000, 2_000):
            await store.change_history("weekly", request_run(at_ms))
        await do(backend, settings, ADMIN, WithdrawRuleRuns(name="weekly", at_ms=1_000))
        with pytest.raises(
            BadInput, match="rule 'weekly' has no waiting run of 1970-01-01T00:00:01Z"
        ):
            await do(backend, settings, ADMIN, WithdrawRuleRuns(name="weekly", at_ms=1_000))
        left = await do(backend, settings, ADMIN, ListRuleRuns(name="weekly"))
        [entry, *_] = await do(backend, settings, ADMIN, ListAudit())

    assert [one.at_ms for one in left] == [2_000]
    assert entry.before == {"run": "1970-01-01T00:00:01Z"}


async def test_a_run_that_has_begun_is_neither_joined_nor_taken_back(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule())
        first = await do(backend, settings, ADMIN, RunRule(name="weekly"))
        store = RuleStore(backend.documents)
        made = (await store.record("weekly")).rule
        await store.change_history("weekly", begin(made, first.at_ms, 1, first.at_ms))
        second = await do(backend, settings, ADMIN, RunRule(name="weekly"))
        await do(backend, settings, ADMIN, WithdrawRuleRuns(name="weekly"))
        left = await do(backend, settings, ADMIN, ListRuleRuns(name="weekly"))

    assert second.at_ms != first.at_ms
    assert [(one.at_ms, one.state) for one in left] == [(first.at_ms, "running")]


async def test_a_run_that_was_due_is_made_once_more_unless_it_is_done(settings: Settings) -> None:
    failed, ended = Run(at_ms=9_000_500, state=RunState.FAILED, reason="x"), Run(at_ms=9_000_501)
    runs = [failed, ended.ended(RunState.DONE, 9_000_600, task_id="t1", total=3)]
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule())
        store = RuleStore(backend.documents)
        await store.change_history("weekly", lambda history: history.with_runs(*runs))
        again, done = [
            await do(backend, settings, ADMIN, RunRule(name="weekly", at_ms=run.at_ms))
            for run in runs
        ]
        with pytest.raises(BadInput, match="is not due at 1970-01-01T"):
            await do(backend, settings, ADMIN, RunRule(name="weekly", at_ms=1))
        with pytest.raises(BadInput, match="is still to come"):
            await do(backend, settings, ADMIN, RunRule(name="weekly", at_ms=32_000_000_000_000))
        entries = await do(backend, settings, ADMIN, ListAudit())

    assert (again.state, again.asked, again.reason) == ("due", True, "")
    assert (done.state, done.task_id, done.total) == ("done", "t1", 3)
    assert [one.operation for one in entries] == ["run-rule", "put-rule"]


async def test_it_says_whether_a_process_makes_the_runs(settings: Settings) -> None:
    async with connect(settings) as backend:
        saved = await do(backend, settings, ADMIN, rule())
        await backend.lease.acquire(LEASE, "me", 60.0)
        [shown] = await do(backend, settings, ADMIN, ListRules())

    assert (saved.served, shown.served) == (False, True)


async def test_the_audit_has_no_text_and_no_sql_of_a_rule(settings: Settings) -> None:
    async with connect(settings) as backend:
        secret = {"options": {"password": "hidden"}, "where": "phone = 'hidden'"}
        await do(backend, settings, ADMIN, rule(task={**TASK, "title": "hidden"}, **secret))
        await do(backend, settings, ADMIN, rule(where="name = 'hidden'", replace=True))
        entries = await do(backend, settings, ADMIN, ListAudit())
        shown = await do(backend, settings, ADMIN, ListRules())

    assert [one.after["revision"] for one in entries] == [2, 1]
    assert "hidden" not in repr(entries)
    assert shown[0].where == "name = 'hidden'"


async def test_passwords_of_its_reader_are_not_shown(settings: Settings) -> None:
    options = {"password": "hidden", "url": "jdbc:x://u:hidden@h/d"}
    async with connect(settings) as backend:
        saved = await do(backend, settings, ADMIN, rule(options=options))

    assert "hidden" not in repr(saved)


async def test_a_caller_of_an_app_sees_and_holds_its_rules_alone(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule())
        await do(backend, settings, ADMIN, rule("daily", task={**TASK, "app": "news"}))
        await do(backend, settings, ADMIN, rule("plain", task={"level": "low", "title": "Hi"}))

        for app, name in (("shop", "weekly"), ("news", "daily"), ("default", "plain")):
            assert await names(backend, settings, of(app)) == [name]
            paused = await do(backend, settings, of(app), PauseRule(name=name))
            assert paused.paused
        for asked in (
            GetRule,
            PauseRule,
            ResumeRule,
            RemoveRule,
            RunRule,
            WithdrawRuleRuns,
            ListRuleRuns,
        ):
            with pytest.raises(NotFound, match="there is no rule 'daily' \\(`pushlane rules list`"):
                await do(backend, settings, of("shop"), asked(name="daily"))
        with pytest.raises(NotFound, match="did you mean 'weekly'"):
            await do(backend, settings, of("shop"), GetRule(name="wekly"))


@pytest.mark.parametrize("role", list(Role))
async def test_a_caller_of_some_apps_saves_no_rule(settings: Settings, role: Role) -> None:
    """Its SQL reads whatever there is, of whichever app."""
    served = replace(settings, rules_over_http=True)
    async with connect(settings) as backend:
        with pytest.raises(NotAllowed):
            await do(backend, served, of("shop", role), rule())


@pytest.mark.parametrize("face", ["http", "mcp"])
async def test_a_server_takes_rules_only_where_it_is_told_to(settings: Settings, face: str) -> None:
    who = Caller("ada", face)
    async with connect(settings) as backend:
        with pytest.raises(NotAllowed, match="a rule can run code where it is served"):
            await do(backend, settings, who, rule())
        assert await names(backend, settings, who) == []

        await do(backend, replace(settings, rules_over_http=True), who, rule())
        assert await names(backend, settings, who) == ["weekly"]


async def test_a_payload_is_never_read_from_a_file_here(settings: Settings, tmp_path: Any) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"*": {"text": "Hi"}}')
    async with connect(settings) as backend:
        with pytest.raises(BadInput, match="give the object itself, not its file"):
            await do(backend, settings, ADMIN, rule(task={**TASK, "payload": str(file)}))


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


async def test_what_is_nested_too_deeply_is_refused(settings: Settings) -> None:
    async with connect(settings) as backend:
        for depth in (300, 900):
            asked = rule(task={**TASK, "payload": {"*": nested(depth)}})
            with pytest.raises(BadInput, match="nested too deeply"):
                await do(backend, settings, ADMIN, asked)


async def test_a_rule_that_is_there_is_changed_only_where_that_is_meant(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, rule())
        with pytest.raises(BadInput, match="there is a rule 'weekly' already"):
            await do(backend, settings, ADMIN, rule(cron="0 8 * * *"))
        changed = await do(backend, settings, ADMIN, rule(cron="0 8 * * *", replace=True))

    assert (changed.cron, changed.revision) == ("0 8 * * *", 2)


async def test_runs_are_told_latest_first_and_a_rule_by_its_last(settings: Settings) -> None:
    async with connect(settings) as backend:
        store = RuleStore(backend.documents)
        for name, at_ms in (("weekly", 7_000), ("daily", 8_000)):
            await do(backend, settings, ADMIN, rule(name))
            run = Run(at_ms=at_ms).ended(RunState.FAILED, 9_000, "no such table")
            await store.change_history(name, lambda before, run=run: before.with_runs(run))
        runs = await do(backend, settings, ADMIN, ListRuleRuns())
        [own] = await do(backend, settings, ADMIN, ListRuleRuns(name="weekly"))
        shown = await do(backend, settings, ADMIN, GetRule(name="weekly"))

    assert [one.rule for one in runs] == ["daily", "weekly"]
    assert shown.last_run == own == runs[1]
    assert (shown.state, own.key) == ("failed", "rule-weekly-1970-01-01T00:00:07Z")
    assert plain(own).keys().isdisjoint({"task_id", "begun_at_ms", "retry_at_ms", "total"})
