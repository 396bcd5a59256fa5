"""Rows of tasks show state, progress and end first, with times in the reader's zone."""

from __future__ import annotations

import re
from html import unescape

import pytest
from msgspec.structs import replace

from pushlane import Settings
from pushlane.console.pages import clocked
from pushlane.core.push import Kind
from pushlane.core.task import Finished, State, now_ms
from pushlane.model.presence import Process, Resting, ServedSink
from pushlane.operations.doing import do
from pushlane.operations.task_views import too_late
from pushlane.operations.tasks import CancelTask, PauseTask, SetQuota
from tests.console.browsing import Browser, browsing, form_of, get, log_in_as, text_of
from tests.console.test_tasks import add, links, now
from tests.door.asking import ADMIN
from tests.receipt_bodies import body

NOON_MS = 1_795_867_200_000  # 2026-11-28 12:00:00 UTC
WHY = "the service answers 503 with a long text about its maintenance that never ends"


def headings(html: str) -> list[str]:
    return [text_of(one).strip() for one in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', html)]


async def resting(browser: Browser, why: str) -> None:
    """A process whose sink rests."""
    since_ms = now_ms() // 1_000 * 1_000 - 1_000
    rest = Resting("sink default (open)", since_ms, why, since_ms + 60_000)
    served = ServedSink(name="default", slots=1, in_flight=0, delivery_s=0.1, resting=rest)
    process = Process(
        id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(served,)
    )
    await browser.backend.presence.announce(process, 600.0)


async def test_how_a_task_stands_comes_before_whose_it_is(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        html = await get(browser, "tasks")
        now_page = await get(browser, "now")
        await log_in_as(browser, "viewer")
        seen = await get(browser, "tasks")

    assert headings(html) == [
        *("Task", "State", "Progress", "Ends", "Rate /s", "App", "Level", "Quota", "Change"),
        "Created",
    ]
    assert "Change" not in headings(seen)
    assert 'class="steer">\n' not in seen.partition("<tbody>")[2]
    order = headings(now_page.partition('id="task-a"')[0].rpartition("<thead>")[2])
    assert order[:3] == ["Task", "State", "Ends"]
    for shown in (html, now_page):
        assert '<table class="cards">' in shown
        assert 'data-label="Ends"' in shown


async def test_why_a_task_waits_has_its_time_in_the_readers_zone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await add(browser, "b", name="till 07:00 UTC")
        await do(browser.backend, settings, ADMIN, PauseTask(task="b", reason="since 01:02 UTC"))
        await resting(browser, WHY)
        await browser.log_in()
        shown = [await get(browser, path) for path in ("tasks", "tasks/a", "now")]
        why = await get(browser, "why/a")

    for html in shown:
        assert f'class="none reason" title="sink default rests: {WHY}' in html
        assert re.search(r'since <time class="clock" datetime="[^"]*">\d\d:\d\d:\d\d UTC', html)
    assert "since 01:02 UTC<" in shown[0]
    assert text_of(why).count("since") == 1


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("since 11:59:58 UTC", ["2026-11-28T11:59:58.000+00:00"]),
        ("since 12:00 UTC; next try 00:10 UTC", ["2026-11-28T12:00", "2026-11-29T00:10"]),
        ("starts 2026-12-01 08:00 UTC", ["2026-12-01T08:00:00.000+00:00"]),
        ("at 2026-13-77 25:00 UTC, <b>", []),
        ("ends 07:00 (08:00 in Europe/Berlin)", []),
    ],
)
def test_times_of_a_day_are_of_now(text: str, times: list[str]) -> None:
    found = clocked(text, NOON_MS)
    shown = re.findall('datetime="([^"]+)"', found)

    assert [a.startswith(b) for a, b in zip(shown, times, strict=True)] == [True] * len(times)
    assert text_of(found).replace(" ", "") == text.replace(" ", "")
    assert "<b>" not in found


async def test_what_was_delivered_of_a_task_that_has_ended_is_its_bar(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", total=1_000)
        await add(browser, "b", total=1_000)
        for task in ("a", "b"):
            done = [Finished(task, Kind.DELIVERED, [*range(1, 401)])]
            await browser.backend.registry.record(done)
        await do(browser.backend, settings, ADMIN, CancelTask(task="a"))
        await browser.log_in()
        html = await get(browser, "tasks?state=any")
        page = await get(browser, "tasks/a")

    for shown in (html, page):
        assert '<progress max="1000" value="400" aria-label="Delivered">' in shown
        assert "400 of 1,000 delivered; 600 dropped" in shown
    assert '<progress max="1000" value="400" aria-label="Ended">' in html
    assert "400 of 1,000<" in html


async def test_a_task_that_ends_after_its_expiry_is_marked(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", total=1_000)
        task = await now(browser, "a")

    at_ms = now_ms()
    going = replace(task, eta_s=100.0, expires_at_ms=at_ms + 60_000)
    assert too_late(going, at_ms) == 400
    assert too_late(replace(going, eta_s=61.0), at_ms) is None
    assert too_late(replace(going, expires_at_ms=0), at_ms) is None
    assert too_late(replace(going, eta_s=None), at_ms) is None
    assert too_late(replace(going, expires_at_ms=at_ms - 1), at_ms) == 1_000
    assert too_late(replace(going, total=123_456), at_ms) == 49_000
    assert too_late(replace(going, state=State.EXPIRED), at_ms) is None


async def test_rows_and_the_page_say_that_a_task_ends_too_late(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", total=60_000, expires_at_ms=now_ms() + 60_000)
        served = ServedSink(
            name="default", slots=1, in_flight=1, delivery_s=0.1, delivered_per_s={"medium": 10.0}
        )
        process = Process(
            id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(served,)
        )
        await browser.backend.presence.announce(process, 600.0)
        await browser.log_in()
        html = await get(browser, "tasks")
        page = await get(browser, "tasks/a")

    told = r"after its expiry: about [\d,]+ pushes will expire"
    assert re.search(told, html)
    assert re.search(r"after its expiry <time .*: about [\d,]+ pushes will expire", page)


async def test_tasks_are_named_beside_their_ids(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale")
        await do(browser.backend, settings, ADMIN, SetQuota(task="a", quota=3))
        said = body("a", [1], at_ms=now_ms() - 60_000)
        await browser.backend.receipts.append([said])
        await browser.log_in()
        audit = await get(browser, "audit")
        view = await get(browser, "tasks")
        page = await get(browser, "push?push=a-1")
        fields = form_of(page, "recipient")
        found = (await browser.post("/console/recipient", fields)).body.decode()
        typed = await get(browser, "push?push=a")

    assert '<a href="./tasks/a">sale</a> <code>a</code></td>' in audit
    assert '<a href="./tasks/a">sale</a> <code>a</code>: quota 1' in view
    assert links(view, "Undo set-quota of sale")
    assert 'of <a href="./tasks/a">sale</a>' in found
    assert '<code>a</code> is the task <a href="./tasks/a">sale</a>.' in typed
    assert "pushlane results" not in unescape(typed)
