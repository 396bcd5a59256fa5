"""The page of alerts by its HTML: what fires and why, who knows of it, what is set."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pushlane import Settings
from pushlane.core.task import now_ms
from pushlane.operations.alerts import GetAlert, PutAlert, RemoveAlert
from pushlane.operations.doing import do
from pushlane.pipeline.alerts.alert_store import AlertGroup, AlertLook, AlertStore
from tests.console.browsing import (
    Browser,
    browsing,
    form_of,
    get,
    led_to,
    link,
    log_in_as,
    text_of,
    without,
)
from tests.door.asking import ADMIN
from tests.receipt_stores import store_of

SCRIPT = "<script>alert(1)</script>"
FIRES = AlertGroup(1_000, told=True, told_at_ms=2_000)
ALARMING = AlertGroup(1_000)


async def save(browser: Browser, name: str = "failing", **given: Any) -> None:
    to = "https://hooks.example.com/alerts?key=s3cret"
    fields = {"metric": "failure_rate", "when": "> 5%", "to": to, "by": "sink", **given}
    await do(browser.backend, Settings(), ADMIN, PutAlert.made(name=name, **fields))


async def fire(browser: Browser, name: str = "failing", **groups: AlertGroup) -> None:
    """The last look has left these groups."""
    store = AlertStore(browser.backend.documents)
    state = {f'["{group}"]': one for group, one in groups.items()}
    await store.save_state(name, state, await store.load_state(name))


async def test_nothing_is_set_and_it_says_how(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        shown = text_of(await get(browser, "alerts"))

    assert "There is no alert." in shown
    assert "pushlane alerts add failing --metric failure_rate" in shown


async def test_what_fires_says_since_when_what_it_means_and_how_to_look(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser, where=("app=shop",), for_s="10m")
        await save(browser, "late", metric="lag_s", when="> 300", by="")
        await fire(browser, fcm=FIRES, apns=ALARMING)
        await browser.log_in()
        html = await get(browser, "alerts")
        shown = text_of(html)

    assert "1 fires; nobody has acknowledged it." in shown
    assert "is over 5 % in 5 min, for each sink. A sink refuses them for good" in shown
    assert " sink fcm firing 1970-01-01 00:00:01 UTC Acknowledge… pushlane report" in shown
    assert "--where outcome=dead --where app=shop --where sink=fcm" in shown
    assert " sink apns alarming fires once that has held for 10 min" in shown
    assert "hooks.example.com" in shown
    assert "s3cret" not in html
    assert "late lag_s > 300 all all 5 min" in shown


async def test_it_says_when_somebody_looked_last_and_what_was_wrong(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        never = text_of(await get(browser, "alerts"))
        store = AlertStore(browser.backend.documents)
        await store.note_look(AlertLook(now_ms(), 30.0, {"failing": f"HTTP 500 {SCRIPT}"}))
        just_now = await get(browser, "alerts")
        await store.note_look(AlertLook(1_000, 30.0))
        long_ago = text_of(await get(browser, "alerts"))
        await store.note_look(AlertLook(1_000))
        once = text_of(await get(browser, "alerts"))

    assert "Nobody has looked at them yet: start pushlane alerts run" in never
    assert "the last look of pushlane alerts run" in text_of(just_now)
    assert "quiet HTTP 500" in text_of(just_now)
    assert SCRIPT not in just_now
    assert "The last look was 1970-01-01 00:00:01 UTC , and the next is overdue." in long_ago
    assert "As of 1970-01-01 00:00:01 UTC , the last look" in once


async def test_it_is_acknowledged_with_a_word_and_taken_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await fire(browser, fcm=FIRES)
        await browser.log_in()
        panel = await get(
            browser, link(await get(browser, "alerts"), "Acknowledge failing, sink fcm")
        )
        fields = {**form_of(panel, "acknowledge-alert"), "reason": "we know"}
        done = await browser.post("/console/do/acknowledge-alert", fields)
        html = await get(browser, "alerts")
        known = await do(browser.backend, settings, ADMIN, GetAlert(name="failing"))
        await browser.post("/console/do/acknowledge-alert", form_of(html, "acknowledge-alert"))
        back = await do(browser.backend, settings, ADMIN, GetAlert(name="failing"))

    assert led_to(done, "/console/do/acknowledge-alert") == "/console/alerts"
    assert "1 fires; it is acknowledged." in text_of(html)
    assert re.search(r"acknowledged by me \(\w+\), \S+ \S+ UTC we know ", text_of(html))
    assert known.groups['["fcm"]'].acknowledged_reason == "we know"
    assert back.groups['["fcm"]'].acknowledged_by is None


async def test_all_of_an_alert_is_acknowledged_at_once(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await fire(browser, fcm=FIRES, apns=FIRES, webhook=ALARMING)
        await browser.log_in()
        html = await get(browser, "alerts")
        panel = await get(browser, link(html, "Acknowledge all of failing"))
        await browser.post("/console/do/acknowledge-alert", form_of(panel, "acknowledge-alert"))
        after = text_of(await get(browser, "alerts"))
        again = text_of(await get(browser, "alerts?acknowledge=failing"))

    assert "2 fire; nobody has acknowledged them." in text_of(html)
    assert "2 fire; all are acknowledged." in after
    assert "or is acknowledged already" in again


async def test_of_many_that_fire_the_first_are_shown_and_the_rest_counted(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        for number in range(12):
            await save(browser, f"a{number}")
            await fire(browser, f"a{number}", **{f"sink{one}": FIRES for one in range(22)})
        await browser.log_in()
        html = await get(browser, "alerts")

    assert html.count('data-state="firing">firing') == 10 * 20
    assert text_of(html).count("2 more: pushlane alerts show a") == 10
    assert "2 more alerts are over the threshold" in text_of(html)
    assert len(html) < 200 * 1024


async def test_a_viewer_sees_it_and_may_not_say_that_they_know(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser, where=("app=shop",))
        await fire(browser, fcm=FIRES)
        await log_in_as(browser, "viewer", apps=("shop",))
        html = await get(browser, "alerts?acknowledge=failing")
        await log_in_as(browser, "viewer", apps=("news",))
        other = await get(browser, "alerts")

    assert " sink fcm firing " in text_of(html)
    assert "acknowledge-alert" not in html
    assert "alerts add" not in html
    assert "There is no alert." in other


@pytest.mark.parametrize(
    ("name", "why"), [("failing", "does not fire any longer"), ("x", "no alert")]
)
async def test_what_fires_no_longer_is_not_acknowledged(
    settings: Settings, name: str, why: str
) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        shown = await get(browser, f"alerts?acknowledge={name}")

    assert why in shown
    assert "do/acknowledge-alert" not in shown


async def test_it_is_measured_when_asked_for(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        nothing = await get(browser, "alerts/failing")
        row = {
            "task_id": "t1",
            "outcome": "dead",
            "sink": "fcm",
            "responded_at_ms": now_ms() - 90_000,
        }
        store_of(settings.reports_root, [row] * 3)
        shown = text_of(await get(browser, "alerts/failing"))
        none = await browser.get("/console/alerts/none")

    assert 'role="alert"' in nothing
    assert re.search(r"fcm 1 (unknown|0) 3 yes", shown)
    assert none.status == 404


async def test_without_the_extra_it_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "duckdb", "pushlane.pipeline.alerts.measure", "pushlane.pipeline.reports")
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        shown = text_of(await get(browser, "alerts/failing"))
        listed = await get(browser, "alerts")

    assert "of the extra `pipeline`: pip install 'pushlane[pipeline]'" in shown
    assert "failing" in listed


async def test_script_in_a_group_or_a_word_stays_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser, where=(f"app={SCRIPT}",), to=f"https://{'x' * 200}.example.com/")
        await fire(browser, **{SCRIPT: FIRES})
        await browser.log_in()
        html = await get(browser, "alerts?acknowledge=failing")
        fields = {**form_of(html, "acknowledge-alert"), "reason": SCRIPT}
        await browser.post("/console/do/acknowledge-alert", fields)
        html += await get(browser, "alerts") + await get(browser, "alerts/failing")

    assert SCRIPT not in html
    assert html.count("&lt;script&gt;") > 5


async def test_its_stream_sends_what_fires_and_what_is_gone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await save(browser)
        await browser.log_in()
        async with browser.stream("/console/live/alerts?acknowledge=failing") as events:
            assert "Nothing fires." in await events.html()
            await fire(browser, fcm=FIRES)
            assert "1 fires;" in await events.html()
            await do(browser.backend, settings, ADMIN, RemoveAlert(name="failing"))
            assert "There is no alert." in await events.html()
