"""The page of sinks by its HTML: what rests, what is limited, and who may change which."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pushlane import Settings
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.operations.doing import do
from pushlane.operations.shares import ClearLimit, GetLimit, SetAppQuota, SetLimit
from pushlane.operations.sinks import GetAccepted
from pushlane.version import VERSION
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
)
from tests.door.asking import ADMIN

SCRIPT = "<script>alert(1)</script>"
TARGET = SinkTarget("webhook", "push.example.com", "5d1f")
WRONG = Resting("sink push (open)", 1_000, "final answers to all", 61_000, is_unproven=True)
AWAY = Resting("sink push (open)", 1_000, "no connection", 61_000)
SLOWER = Resting("sink push (slowed)", 1_000, "HTTP 429", 0)


async def serve(browser: Browser, process: str = "p", **fields: Any) -> None:
    """A process serves the sink push."""
    served = ServedSink(name="push", **{"target": TARGET, "slots": 10, "in_flight": 4, **fields})
    announced = Process(
        id=process, kind="dispatcher", pid=1, version=VERSION, serves=("push",), served=(served,)
    )
    await browser.backend.presence.announce(announced, 600)


async def run(browser: Browser, task_id: str, **fields: Any) -> None:
    """A task runs that goes to the sink push."""
    made = Task(
        id=task_id,
        level=Level.HIGH,
        lane=own_lane(task_id),
        state=State.RUNNING,
        total=1_000,
        created_at_ms=now_ms(),
        **{"sinks": ("push",), **fields},
    )
    await browser.backend.registry.add(made)


async def limit(browser: Browser, subject: str, **limits: Any) -> None:
    await do(browser.backend, Settings(), ADMIN, SetLimit.made(subject=subject, **limits))


async def test_a_sink_is_shown_over_all_its_processes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await serve(browser, delivered_per_s={"high": 3.0, "low": 1.5})
        await serve(browser, "q", in_flight=6, delivered_per_s={"high": 2.0})
        await limit(browser, "sink/push", rate_per_s=10, in_flight=50)
        await browser.log_in()
        shown = row(await get(browser, "sinks"), "sink-push")

    assert "webhook at push.example.com" in shown
    assert " delivers 10 of 20 6.5 2 " in shown
    assert " 10/s " in shown
    assert " 0 of 50 in flight " in shown


async def test_what_nobody_serves_says_so(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        assert "No process serves a sink" in await get(browser, "sinks")
        await run(browser, "t1")
        shown = row(await get(browser, "sinks"), "sink-push")

    assert "nobody says nobody serves it, 1 task waits" in shown
    assert "Accept" not in shown


@pytest.mark.parametrize(
    ("resting", "said"),
    [
        (AWAY, "Rests: no connection, since 1970-01-01 00:00:01 UTC , next try 1970"),
        (SLOWER, "Gets fewer: HTTP 429, since 1970-01-01 00:00:01 UTC "),
    ],
)
async def test_what_rests_says_why_and_since_when(
    settings: Settings, resting: Resting, said: str
) -> None:
    async with browsing(settings) as browser:
        await serve(browser, resting=resting)
        await browser.log_in()
        shown = row(await get(browser, "sinks"), "sink-push")

    assert said in shown
    assert ("next try" in shown) is bool(resting.again_at_ms)
    assert "Accept" not in shown


async def test_of_several_processes_it_is_said_which_rests(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for process in ("p", "q"):
            await serve(browser, process, resting=AWAY)
        await browser.log_in()
        shown = row(await get(browser, "sinks"), "sink-push")

    assert re.search(r" at p .* at q ", shown)


async def test_a_limit_is_previewed_set_and_undone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await serve(browser, delivery_s=0.1)
        await run(browser, "sale")
        await limit(browser, "sink/push", rate_per_s=50, total=9_000)
        await browser.log_in()
        panel = await get(browser, link(await get(browser, "sinks"), "Limit sink push"))
        fields = form_of(panel, "preview")
        asked = {**fields, "rate_per_s": "600/min", "total": "none"}
        query = "&".join(f"{name}={one}" for name, one in asked.items())
        preview = await get(browser, f"preview?{query}")
        done = await browser.post("/console/do/apply", form_of(preview, "do/apply"))
        after = await do(browser.backend, settings, ADMIN, GetLimit(subject="sink/push"))
        undo = await get(browser, link(await get(browser, "sinks"), "Undo set-limit of sink/push"))
        await browser.post("/console/do/apply", form_of(undo, "do/apply"))
        undone = await do(browser.backend, settings, ADMIN, GetLimit(subject="sink/push"))

    assert "Now: 50/s 0 of 9,000 in all" in text_of(panel)
    assert (fields["rate_per_s"], fields["total"]) == ("", "")
    assert "Limit sink/push to rate 600/min, total none" in preview
    assert "1 task ends later" in text_of(preview)
    assert "pushlane limit sink/push --rate 600/min --total none --preview" in text_of(preview)
    assert led_to(done, "/console/do/apply") == "/console/sinks"
    assert (after.limit.rate_per_s, after.limit.total) == (10.0, None)
    assert (undone.limit.rate_per_s, undone.limit.total) == (50.0, 9_000)


async def test_limits_that_were_taken_away_come_back(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await limit(browser, "app/shop", a_day=100)
        await do(browser.backend, settings, ADMIN, ClearLimit(subject="app/shop"))
        await browser.log_in()
        undo = await get(browser, link(await get(browser, "sinks"), "Undo clear-limit of app/shop"))
        await browser.post("/console/do/apply", form_of(undo, "do/apply"))
        undone = await do(browser.backend, settings, ADMIN, GetLimit(subject="app/shop"))

    assert undone.limit.a_day == 100


async def test_all_limits_are_listed_and_can_be_taken_away(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await run(browser, "t1")
        await limit(browser, "t1", total_cost=2.5)
        await limit(browser, "app/*", a_day=1_000, recipient_a_day={"all": 3})
        await do(browser.backend, settings, ADMIN, SetAppQuota.made(app="shop", quota=5))
        await browser.log_in()
        html = await get(browser, "sinks")
        away = await get(browser, link(html, "Take away the limits of app/*"))

    assert re.findall(r'<tr id="limit-([^"]*)"', html) == ["app/*", "task/t1"]
    assert "1,000 a day each 3 a recipient a day, all" in row(html, "limit-app/*")
    assert "0 of 2.5 of cost in all" in row(html, "limit-task/t1")
    assert "Take the limits of app/* away" in away
    assert "pushlane limit 'app/*' --none --preview" in text_of(away)


async def test_a_limit_of_nobody_says_so(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        unknown = await get(browser, "sinks?limit=sink/pusch")
        none = await get(browser, "sinks?limit=nobody")

    assert "no sink is named &#39;pusch&#39; yet" in unknown
    assert form_of(unknown, "preview")["subject"] == "sink/pusch"
    assert 'role="alert"' in none
    assert "set-limit" not in none.partition('id="live"')[0]


async def test_a_limit_that_cannot_be_is_told(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        told = await get(browser, "preview?operation=set-limit&subject=sink/push&rate_per_s=fast")

    assert 'role="alert"' in told
    assert "do/apply" not in told


async def test_a_sink_that_never_delivered_is_accepted_and_no_longer(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await serve(browser, resting=WRONG)
        await browser.log_in()
        there = link(await get(browser, "sinks"), "Accept sink push")
        panel = await get(browser, there)
        done = await browser.post("/console/do/accept-sink", form_of(panel, "do/accept-sink"))
        accepted = await do(browser.backend, settings, ADMIN, GetAccepted(sink="push"))
        again = await browser.post("/console/do/accept-sink", form_of(panel, "do/accept-sink"))
        fields = form_of(await get(browser, there), "do/accept-sink")
        await browser.post("/console/do/accept-sink", fields)
        undone = await do(browser.backend, settings, ADMIN, GetAccepted(sink="push"))

    assert "It delivers to webhook at push.example.com." in text_of(panel)
    assert led_to(done, "/console/do/accept-sink") == "/console/sinks"
    assert (accepted.accepted, undone.accepted) == (True, False)
    assert again.status == 412


async def test_a_sink_that_nobody_serves_cannot_be_accepted(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        told = await get(browser, "sinks?accept=push")

    assert "no live process serves sink push" in told
    assert "do/accept-sink" not in told


@pytest.mark.parametrize(
    ("role", "may_limit", "may_accept"),
    [("viewer", False, False), ("operator", True, False), ("admin", True, True)],
)
async def test_each_role_sees_what_it_may_press(
    settings: Settings, role: str, may_limit: bool, may_accept: bool
) -> None:
    async with browsing(settings) as browser:
        await serve(browser, resting=WRONG)
        await limit(browser, "sink/push", rate_per_s=5)
        await log_in_as(browser, role)
        html = await get(browser, "sinks?limit=sink/push&accept=push")

    assert "Limit sink push" in html if may_limit else "Limit" not in html.partition("<thead>")[0]
    assert ('action="./preview"' in html) is may_limit
    assert ("Undo set-limit of sink/push" in html) is may_limit
    assert ("Accept sink push" in html) is may_accept
    assert ("do/accept-sink" in html) is may_accept
    assert " 5/s " in row(html, "sink-push")


async def test_a_token_of_an_app_is_not_led_there(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await serve(browser)
        await log_in_as(browser, "viewer", apps=("shop",))
        home = await get(browser, "tasks")
        refused = await browser.get("/console/sinks")

    assert "/sinks" not in home
    assert refused.status == 403


async def test_what_others_have_written_is_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        rest = Resting("sink push (open)", 1_000, SCRIPT, 0)
        await serve(browser, resting=rest, target=SinkTarget("webhook", SCRIPT, "5d1f"))
        await browser.log_in()
        html = await get(browser, "sinks")

    assert SCRIPT not in html
    assert "&lt;script&gt;" in html


async def test_its_stream_sends_what_changes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await serve(browser)
        await browser.log_in()
        async with browser.stream("/console/live/sinks?limit=sink/push") as events:
            first = await events.html()
            await limit(browser, "sink/push", rate_per_s=7)
            html = ""
            while " 7/s " not in text_of(html):
                html = await events.html()

    assert "set-limit" not in first.replace("/preview?", "")
