"""The pages of rules by their HTML: what runs when, what was sent, paused and run by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pushlane import Settings
from pushlane.operations.doing import do
from pushlane.operations.rules import GetRule, ListRuleRuns, PauseRule, PutRule, RunRule
from pushlane.pipeline.rules.history import Run, RunState
from pushlane.pipeline.rules.rule_store import LEASE, RuleStore
from tests.console.browsing import (
    Browser,
    browsing,
    form_of,
    get,
    led_to,
    link,
    log_in_as,
    row,
    text_of,
    without,
)
from tests.door.asking import ADMIN

SCRIPT = "<script>alert(1)</script>"
TASK = {"level": "low", "title": "Hi {name}", "app": "shop"}
DONE = Run(at_ms=1_000).ended(RunState.DONE, 9_000, task_id="t1", total=1_234)
FAILED = Run(at_ms=2_500).ended(RunState.FAILED, 9_000, "the audience is away")


async def save(browser: Browser, name: str = "weekly", **given: Any) -> None:
    fields = {"audience": "users", "task": TASK, "cron": "0 9 * * MON", **given}
    await do(browser.backend, Settings(), ADMIN, PutRule.made(name=name, **fields))


async def ran(browser: Browser, *runs: Run, name: str = "weekly") -> None:
    store = RuleStore(browser.backend.documents)
    await store.change_history(name, lambda history: history.with_runs(*runs))


async def state_of(browser: Browser) -> tuple[str, int]:
    found = await do(browser.backend, Settings(), ADMIN, GetRule(name="weekly"))
    return found.state, found.open_runs


async def test_without_rules_it_says_what_one_is_and_how_to_save_it(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        shown = text_of(await get(browser, "rules"))
        none = await browser.get("/console/rules/none")

    assert "There is no rule. A rule sends to an audience by a schedule." in shown
    assert "pushlane rules add weekly.toml" in shown
    assert none.status == 404


async def test_a_rule_says_when_it_runs_and_what_it_has_sent(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser, zone="Europe/Berlin", budget_day=5_000)
        await ran(browser, DONE)
        await browser.log_in()
        html = await get(browser, "rules")
        shown = row(html, "rule-weekly")
        await browser.backend.lease.acquire(LEASE, "me", 60.0)
        served = text_of(await get(browser, "rules"))

    assert " weekly shop done 0 9 * * MON Europe/Berlin 20" in shown
    assert " 1970-01-01 00:00:01 UTC done 1,234 t1 0 of 5,000 Run now… Pause" in shown
    assert 'href="./tasks/t1"' in html
    assert "No process makes their runs now" in text_of(html)
    assert "No process makes" not in served


async def test_the_next_to_run_is_first_and_what_is_paused_last(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for name, cron, paused in (("a", "0 9 * * MON", True), ("b", "0 0 1 1 *", False)):
            await save(browser, name, cron=cron, paused=paused)
        await save(browser, "c", cron="* * * * *")
        await browser.log_in()
        html = await get(browser, "rules")

    assert re.findall(r'<tr id="rule-(\w+)"', html) == ["c", "b", "a"]
    assert "3 rules, 1 paused; 0 under way." in text_of(html)


async def test_it_is_paused_and_goes_on(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        fields = form_of(await get(browser, "rules"), "pause-rule")
        done = await browser.post("/console/do/pause-rule", fields)
        paused, html = await state_of(browser), await get(browser, "rules/weekly")
        await browser.post("/console/do/resume-rule", form_of(html, "resume-rule"))
        after = await state_of(browser)

    assert led_to(done, "/console/do/pause-rule") == "/console/rules"
    assert (paused, after) == (("paused", 0), ("new", 0))
    assert "It runs by hand alone." in text_of(html)


async def test_it_is_run_now_after_a_look_and_taken_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser, where="country = 'IT'", exclude=("gone",), budget_run=10)
        await browser.log_in()
        panel = await get(browser, link(await get(browser, "rules"), "Run now: rule weekly"))
        before = await state_of(browser)
        await browser.post("/console/do/run-rule", form_of(panel, "run-rule"))
        due, html = await state_of(browser), await get(browser, "rules/weekly")
        withdraw = form_of(html, "withdraw-rule-runs")
        await browser.post("/console/do/withdraw-rule-runs", withdraw)
        after = await state_of(browser)

    said = text_of(panel).replace(" ,", ",")
    assert "It sends to those in users for whom country = 'IT' holds, without gone" in said
    assert "10 at most" in said
    assert "It waits until pushlane rules serve runs" in said
    assert (before, due, after) == (("new", 0), ("due", 1), ("new", 0))


async def test_of_two_runs_that_wait_the_one_that_is_pressed_is_taken_back(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await ran(browser, Run(at_ms=1_000, asked=True), Run(at_ms=2_000, asked=True))
        await browser.log_in()
        html = await get(browser, "rules/weekly")
        latest, first = re.findall(r'name="at_ms" value="(\d+)"', html)
        own = {**form_of(html, "pause-rule"), "at_ms": latest}
        await browser.post("/console/do/withdraw-rule-runs", own)
        left = await do(browser.backend, settings, ADMIN, ListRuleRuns(name="weekly"))

    assert "Withdraw the run of 1970-01-01T00:00:02Z of rule weekly" in html
    assert [str(one.at_ms) for one in left] == [first] == ["1000"]


async def test_what_is_only_asked_for_is_not_said_to_be_done(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        panel = await get(browser, link(await get(browser, "rules"), "Run now: rule weekly"))
        await browser.post("/console/do/run-rule", form_of(panel, "run-rule"))
        shown = text_of(await get(browser, "rules"))

    assert "The run is asked for. It begins once pushlane rules serve takes it up." in shown
    assert "run-rule is done" not in shown


async def test_what_has_failed_is_run_once_more(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await ran(browser, DONE, FAILED)
        await browser.log_in()
        html = await get(browser, "rules")
        again = re.findall(r'href="\./(rules\?run=weekly&amp;at=\d+)', html)
        panel = await get(browser, again[0].replace("&amp;", "&"))
        refused = text_of(await get(browser, f"rules?run=weekly&at={DONE.at_ms}"))
        await browser.post("/console/do/run-rule", form_of(panel, "run-rule"))
        runs = await do(browser.backend, settings, ADMIN, ListRuleRuns(name="weekly"))

    assert len(again) == 1
    assert "1970-01-01 00:00:02 UTC has failed: the audience is away" in text_of(panel)
    assert "This run has neither failed nor been refused." in refused
    assert [(one.at_ms, one.state) for one in runs] == [(2_500, "due"), (1_000, "done")]


@pytest.mark.parametrize("query", ["run=x", "run=weekly&at=1", "run=weekly&at=x"])
async def test_what_cannot_be_run_says_so(settings: Settings, query: str) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        shown = await get(browser, f"rules?{query}")

    assert "do/run-rule" not in shown
    assert 'role="alert"' in shown


async def test_a_viewer_of_an_app_sees_its_rules_alone_and_no_button(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await save(browser, "daily", task={**TASK, "app": "news"})
        await ran(browser, FAILED)
        await do(browser.backend, settings, ADMIN, RunRule(name="weekly"))
        await log_in_as(browser, "viewer", apps=("shop",))
        pages = [await get(browser, path) for path in ("rules?run=weekly", "rules/weekly")]
        other = await browser.get("/console/rules/daily")

    for html in pages:
        assert "weekly" in html
        assert "daily" not in html
        assert "/do/" not in html
        assert "Run now" not in html
        assert "Once more" not in html
        assert "rules run" not in html
    assert other.status == 404


async def test_a_rules_page_has_all_of_it_but_passwords(settings: Settings) -> None:
    async with browsing(settings) as browser:
        options = {"password": "s3cret", "url": "jdbc:x"}
        await save(browser, format="jdbc", options=options, catch_up="skip", budget_run=7)
        await ran(browser, DONE, FAILED)
        await browser.log_in()
        html = await get(browser, "rules/weekly")
        shown = text_of(html)

    assert "url jdbc:x" in shown
    assert "s3cret" not in html
    assert "title Hi {name}" in shown
    assert "7 a run, any a day" in shown
    assert "none is made up for" in shown
    assert "failed unknown none 1970-01-01 00:00:09 UTC the audience is away" in shown
    assert "pushlane rules pause weekly" in shown
    assert "/v1/rules/weekly/run" in shown


async def test_without_the_extra_it_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pydantic", "pushlane.pipeline.rules", "pydantic")
    async with browsing(settings) as browser:
        await browser.log_in()
        shown = text_of(await get(browser, "rules"))

    assert "Rules are not shown here: an operation on rules needs the package pydantic" in shown
    assert "pip install 'pushlane[pipeline]'" in shown
    assert "There is no rule" not in shown


async def test_script_in_a_rule_stays_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        odd = {"audience": SCRIPT, "where": SCRIPT, "exclude": (SCRIPT,), "options": {"a": SCRIPT}}
        await save(browser, task={**TASK, "title": SCRIPT}, format=SCRIPT, **odd)
        await ran(browser, Run(at_ms=2_500).ended(RunState.FAILED, 9_000, SCRIPT, task_id=SCRIPT))
        await browser.log_in()
        html = await get(browser, "rules?run=weekly&at=2500") + await get(browser, "rules/weekly")

    assert SCRIPT not in html
    assert html.count("&lt;script&gt;") > 12


async def test_its_streams_send_what_changes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        async with browser.stream("/console/live/rules?run=weekly") as events:
            assert "There is no rule" in await events.html()
            await save(browser)
            assert 'id="rule-weekly"' in await events.html()
        async with browser.stream("/console/live/rules/weekly") as events:
            assert "It runs next" in await events.html()
            await do(browser.backend, settings, ADMIN, PauseRule(name="weekly"))
            assert "It runs by hand alone" in await events.html()


async def test_many_rules_are_a_page_of_some(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for number in range(205):
            await save(browser, f"r{number}")
        await browser.log_in()
        html = await get(browser, "rules")

    assert html.count('<tr id="rule-') == 200
    assert "These are the first 200 of 205" in text_of(html)
