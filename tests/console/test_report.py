"""The report of a task by its HTML: from the store of reports, or from the log of receipts."""

from __future__ import annotations

import importlib
import re
import sys
from html import unescape
from typing import Any

import pytest

from pushlane import Settings
from pushlane.console.report import over_time
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.operations import long_reads
from pushlane.operations.reports import ReportView
from tests.console.browsing import Browser, browsing
from tests.receipt_bodies import NOON_MS, body
from tests.receipt_stores import store_of

SCRIPT = "<script>alert(1)</script>"
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


async def add(browser: Browser, **fields: Any) -> None:
    """A task that ended an hour after it was made."""
    made: dict[str, Any] = {
        "id": "a",
        "name": "sale",
        "app": "shop",
        "level": Level.HIGH,
        "lane": own_lane("a"),
        "state": State.DONE,
        "total": 100,
        "created_at_ms": NOON_MS - MINUTE_MS,
        "finished_at_ms": NOON_MS + HOUR_MS,
    }
    await browser.backend.registry.add(Task(**{**made, **fields}))


async def part(browser: Browser, name: str, task: str = "a") -> str:
    answer = await browser.get(f"/console/{name}/{task}")
    assert answer.status == 200, answer.body.decode()
    return answer.body.decode()


async def report(browser: Browser, task: str = "a") -> str:
    return await part(browser, "report", task)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


@pytest.mark.parametrize("source", ["store", "log"])
async def test_a_report_has_outcomes_reasons_and_their_times(
    settings: Settings, source: str
) -> None:
    said = [("delivered", 0, "", 40), ("dead", 3, f"gone {SCRIPT}", 2), ("dead", 5, "busy", 3)]
    async with browsing(settings) as browser:
        await add(browser)
        seq = 1
        rows: list[dict[str, Any]] = []
        for outcome, minute, reason, count in said:
            at_ms, seqs = NOON_MS + minute * MINUTE_MS, range(seq, seq + count)
            told = body("a", seqs, outcome, at_ms=at_ms, reason=reason, waits={"slot": 400})
            await browser.backend.receipts.append([told])
            same: dict[str, Any] = {
                "task_id": "a",
                "app": "shop",
                "outcome": outcome,
                "reason": reason,
            }
            same |= {"waits": [("slot", 400)]}
            rows += [{**same, "seq": one, "responded_at_ms": at_ms} for one in seqs]
            seq += count
        if source == "store":
            store_of(settings.reports_root, rows)
        await browser.log_in()
        html = await report(browser)
        page = (await browser.get("/console/tasks/a")).body.decode()
    shown = text_of(html)

    assert " Submitted 100 100.0 % Sent 45 45.0 % Delivered 40 40.0 % Displayed 0 " in shown
    assert f" dead 5 busy: 3 gone {SCRIPT}: 2 " in shown
    assert "<script>" not in html
    assert "receipts a minute, by outcome" in shown
    assert " high all together 40 " in shown
    assert re.search(r" high sink's capacity 40 1[56](.\d)? s (3|4)\d\d ms ", shown)
    assert re.search(r" 2026-09-21 12:03:00 UTC 2 0 2026", shown)
    assert len(re.findall("<polyline", html)) == 2
    assert "/v1/reports&#34; -H &#34;$AUTH&#34; -d" in html
    assert "pushlane report a --by minute,outcome,reason" in unescape(html)
    assert ("from the log of receipts" in shown) is (source == "log")
    assert 'href="../report/a"' in page


async def test_where_there_is_no_receipt_it_is_said_what_to_do(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser)
        await browser.log_in()
        shown = text_of(await report(browser))

    assert "no receipts of" in shown
    assert "receipts=on" in shown
    assert "pushlane pipeline run" in shown


async def test_its_share_over_time_is_drawn_beside_what_it_was_entitled_to(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        await add(browser, sinks=("webhook",))
        await browser.log_in()
        unread = text_of(await part(browser, "shares"))
        of_others = [{"task_id": "b", "weight": 3, "level": "medium"}] * 20
        store_of(settings.reports_root, [*[{"task_id": "a"}] * 40, *of_others])
        html = await part(browser, "shares")
        await add(browser, id="none", sinks=("webhook",))
        none = text_of(await part(browser, "shares", "none"))

    assert "there is no store of reports" in unread
    assert 'class="due"' in html
    assert len(re.findall("<polyline", html)) == 2
    assert "Means of 1 min each, by receipts." in text_of(html)
    assert "The store of reports has no receipt of it" in none


async def test_without_the_extra_it_is_said_how_to_install_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_of(settings.reports_root, [{"task_id": "a"}])
    for name in [one for one in sys.modules if one.startswith("pushlane.pipeline.reports.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(importlib.import_module("pushlane.pipeline.reports"), "query_runner", False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    async with browsing(settings) as browser:
        await add(browser)
        await browser.log_in()
        shown = text_of(await report(browser))

    assert "needs the package duckdb, of the extra `pipeline`" in shown
    assert "pip install 'pushlane[pipeline]'" in shown


async def test_of_too_many_reads_at_once_it_is_said_to_ask_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_reads, "WAIT_S", 0.0)
    async with browsing(settings) as browser:
        await add(browser)
        await browser.log_in()
        async with browser.door.reads.one(), browser.door.reads.one():
            shown = text_of(await report(browser))

    assert "reads receipts for at most 2 at once" in shown


async def test_a_task_of_another_app_has_no_report(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser)
        await browser.log_in(await browser.made("viewer", "bank"))
        answer = await browser.get("/console/report/a")

    assert answer.status == 404
    assert b"sale" not in answer.body


def view(word: str, *rows: tuple[int, str, int]) -> ReportView:
    """A report with rows of a time, an outcome and a count."""
    named = [
        {word: f"2026-09-21T{minute // 60:02}:{minute % 60:02}Z", "outcome": outcome, "n": n}
        for minute, outcome, n in rows
    ]
    return ReportView(
        title="",
        since_ms=0,
        until_ms=1,
        by=[word, "outcome"],
        where=[],
        columns=[word, "outcome", "n"],
        labels=2,
        rows=named,
        rows_in_all=len(named),
        is_estimate=False,
        notes=[],
    )


def test_steps_between_are_drawn_as_none() -> None:
    found = over_time(view("minute", (0, "delivered", 5), (3, "dead", 2)))

    assert found is not None
    assert (found.step, found.names) == ("minute", ["dead", "delivered"])
    assert [dict(one.counts) for one in found.steps] == [{"delivered": 5}, {"dead": 2}]
    assert [line.name for line in found.chart.lines] == ["dead", "delivered"]
    [piece] = found.chart.lines[1].pieces
    heights = [point.split(",")[1] for point in piece.split()]
    assert heights == ["0.0"] * 2 + ["120.0"] * 6


def test_what_comes_much_later_makes_steps_longer() -> None:
    found = over_time(view("minute", (0, "delivered", 5), (7, "dead", 2), (600, "clicked", 1)))

    assert found is not None
    assert found.step == "hour"
    assert [dict(one.counts) for one in found.steps] == [
        {"delivered": 5, "dead": 2},
        {"clicked": 1},
    ]
    assert found.chart.at_ms - found.chart.from_ms == 11 * HOUR_MS


def test_no_step_is_shorter_than_it_was_asked_for() -> None:
    found = over_time(view("hour", (0, "delivered", 5), (60, "delivered", 2)))

    assert found is not None
    assert (found.step, len(found.steps)) == ("hour", 2)


def test_of_nothing_there_is_no_picture() -> None:
    assert over_time(view("day")) is None
