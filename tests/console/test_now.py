"""The page of now by its HTML, and the lines of the last hour."""

from __future__ import annotations

import re
from html import unescape

import pytest
from msgspec.structs import replace

from pushlane import Settings
from pushlane.console.lines import HEIGHT, WIDTH, Points, Spell, Track, chart
from pushlane.console.pages import clocked
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task
from pushlane.model.presence import Process, ServedSink
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.shares import SetLimit
from pushlane.version import VERSION
from tests.console.browsing import Browser, browsing, form_of
from tests.door.asking import ADMIN

SCRIPT = "<script>alert(1)</script>"
MINUTE_MS = 60_000


async def going(browser: Browser, *tasks: tuple[str, str]) -> None:
    """Tasks of these names and apps run, and a process serves their sink."""
    for number, (name, app) in enumerate(tasks):
        task = Task(
            id=f"t{number}",
            level=Level.HIGH,
            lane=own_lane(f"t{number}"),
            name=name,
            app=app,
            state=State.RUNNING,
            total=1_000,
        )
        await browser.backend.registry.add(task)
    served = ServedSink(name="default", slots=10, in_flight=10, delivery_s=0.1)
    process = Process(
        id="p", kind="dispatcher", pid=1, version=VERSION, serves=("default",), served=(served,)
    )
    await browser.backend.presence.announce(process, 600)


async def page(browser: Browser, path: str = "/console/now") -> str:
    shown = await browser.get(path)
    assert shown.status == 200
    return shown.body.decode()


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


async def test_it_is_the_first_page_and_says_who_gets_what(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"), ("news", "press"))
        await do(browser.backend, settings, ADMIN, SetLimit.made(subject="app/shop", rate_per_s=20))
        await browser.log_in()
        home = await browser.get("/console/")
        shown = text_of(await page(browser))

    assert home.headers["location"] == "./now"
    assert "shop is held by its limit of 20/s." in shown
    assert "Without it sale ends " in shown
    assert "10 of 10 slots in use" in shown
    assert re.search(r"shop 1 1,000 (unknown|0.0) 20.0 ", shown)
    assert re.search(r"press 1 1,000 (unknown|0.0) 80.0 ", shown)
    assert "pushlane limit app/shop --none --preview" in shown


async def test_what_others_have_written_is_text(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, (SCRIPT, SCRIPT))
        await browser.log_in()
        html = await page(browser, "/console/now?by=app")

    assert SCRIPT not in html
    assert "&lt;script&gt;" in html


async def test_a_token_of_an_app_sees_that_alone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"), ("secret-plan", "rival"))
        wanted = CreateToken.made(name="bob", grants="viewer", apps=("shop",))
        token = (await do(browser.backend, settings, ADMIN, wanted)).token
        await browser.log_in(token)
        html = await page(browser)

    assert "sale" in html
    assert "secret-plan" not in html
    assert "rival" not in html
    assert "slots in use" not in html


async def test_with_nothing_to_send_it_says_so(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        shown = text_of(await page(browser))

    assert "Nothing waits: no task runs." in shown
    assert "none is unfinished" in shown


async def test_its_stream_sends_what_changes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"))
        await browser.log_in()
        async with browser.stream("/console/live/now") as events:
            assert "sale" in await events.html()
            await browser.backend.registry.change("t0", lambda task: replace(task, name="autumn"))
            html = ""
            while "autumn" not in html:
                html = await events.html()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("since 2026-11-27 18:17:34 UTC; <b>", "2026-11-27T18:17:34.000+00:00"),
        ("at 2026-13-77 18:17:34 UTC <b>", ""),
    ],
)
def test_times_within_a_text_are_told_in_the_readers_zone(text: str, shown: str) -> None:
    found = clocked(text)

    assert re.findall('datetime="([^"]+)"', found) == ([shown] if shown else [])
    assert "<b>" not in found
    assert text_of(found).startswith(text[:10])


def test_a_line_goes_from_left_to_right_and_from_0_to_the_most() -> None:
    drawn = chart([(0, {"high": 0.0}), (20_000, {"high": 80.0})], [], 10 * MINUTE_MS)

    [line] = drawn.lines
    assert drawn.most_per_s == 100.0
    assert line.pieces == [f"0.0,{HEIGHT:.1f} {WIDTH / 30:.1f},{HEIGHT * 0.2:.1f}"]


def test_where_nobody_looked_there_is_no_line() -> None:
    points: Points = [(0, {"a": 1.0}), (5_000, {"a": 1.0}), (300_000, {"a": 1.0})]
    assert [len(one.split()) for one in chart(points, [], 300_000).lines[0].pieces] == [2, 1]


def test_marks_from_before_the_first_look_are_left_out() -> None:
    marks = [(MINUTE_MS, "before"), (7 * MINUTE_MS, "after")]
    drawn = chart([(2 * MINUTE_MS, {"a": 1.0})], marks, 12 * MINUTE_MS)
    assert [(one.text, one.x) for one in drawn.marks] == [("after", WIDTH / 2)]


def test_a_look_that_has_just_begun_spans_five_minutes() -> None:
    drawn = chart([(100_000, {})], [], 100_000)
    assert drawn.at_ms - drawn.from_ms == 5 * MINUTE_MS
    assert drawn.lines == []


@pytest.mark.parametrize(("most", "top"), [(0.3, 0.5), (1, 1), (19, 20), (501, 1_000)])
def test_the_top_is_a_round_number(most: float, top: float) -> None:
    assert chart([(0, {"a": most})], [], 0).most_per_s == pytest.approx(top)


def test_of_many_lines_the_five_largest_are_shown() -> None:
    drawn = chart([(0, {f"app-{number}": float(number) for number in range(9)})], [], 0)
    assert [one.name for one in drawn.lines] == [f"app-{number}" for number in range(4, 9)]


def test_what_nobody_knew_is_no_line() -> None:
    points: Points = [
        (0, {"a": 1.0}),
        (5_000, {"a": None}),
        (10_000, {"a": 2.0}),
        (15_000, {"a": 2.0}),
    ]
    [line] = chart(points, [], 15_000).lines
    assert [len(one.split()) for one in line.pieces] == [1, 2]
    assert line.last_per_s == 2.0


def test_what_went_long_ago_is_not_told_as_of_now() -> None:
    [line] = chart([(0, {"a": 1.0})], [], MINUTE_MS).lines
    assert line.last_per_s is None


def test_it_begins_where_it_is_asked_to() -> None:
    drawn = chart([(9 * MINUTE_MS, {"a": 1.0})], [], 10 * MINUTE_MS, from_ms=0)
    assert drawn.lines[0].pieces == [f"{WIDTH * 0.9:.1f},0.0"]


def places(track: Track) -> list[object]:
    """Where each bar of a track begins, and how wide it is."""
    return [(one.x, one.width) for one in track.bars]


def test_what_was_held_lies_below_on_the_same_line_of_time() -> None:
    spells = [
        Spell("sink/a", "rests", "answers 503", 0, 3 * MINUTE_MS),
        Spell("sink/a", "rests", "answers 500", 7 * MINUTE_MS, 8 * MINUTE_MS),
        Spell("app/shop", "limited", "its limit", 7 * MINUTE_MS, None),
        Spell("app/old", "limited", "its limit", 0, MINUTE_MS),
    ]
    drawn = chart([(2 * MINUTE_MS, {"a": 1.0})], [], 12 * MINUTE_MS, spells)
    shop, sink = drawn.tracks
    half, tenth = WIDTH / 2, WIDTH / 10
    assert places(shop) == [pytest.approx((half, half))]
    assert places(sink) == [pytest.approx((0, tenth)), pytest.approx((half, tenth))]
    assert sink.last.text == "answers 500"


def test_of_many_tracks_those_that_ended_last_are_shown() -> None:
    spells = [Spell(f"app/{one}", "limited", "", 0, one * MINUTE_MS) for one in range(10, 20)]
    drawn = chart([(0, {})], [], 60 * MINUTE_MS, spells)
    assert drawn.tracks[0].name == "app/19"
    assert (len(drawn.tracks), drawn.tracks_left_out) == (8, 2)


def test_what_was_held_for_a_moment_is_seen() -> None:
    drawn = chart([(0, {})], [], 60 * MINUTE_MS, [Spell("a", "rests", "", 60 * MINUTE_MS, None)])
    [bar] = drawn.tracks[0].bars
    assert bar.width > 0
    assert bar.x + bar.width == WIDTH


async def test_limits_that_hold_are_on_the_last_hour_with_the_changes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"), ("news", "press"))
        wanted = SetLimit.made(subject="app/shop", rate_per_s=20)
        await do(browser.backend, settings, ADMIN, wanted)
        await browser.log_in()
        html = await page(browser)
        viewer = await do(
            browser.backend, settings, ADMIN, CreateToken.made(name="eve", grants="viewer")
        )
        await browser.log_in(viewer.token)
        shown = text_of(await page(browser))

    assert "app/shop at sink default held by its limit of 20/s" in text_of(html)
    assert "or before: nobody looked at this server then" in text_of(html)
    assert re.search('<th scope="row">app/shop at sink default</th>', html)
    assert '<rect data-kind="limited"' in html
    assert "set-limit of app/shop: - → rate_per_s 20 by root" in text_of(html)
    assert "app/shop at sink default held by its limit" in shown
    assert "Only operators see the history of changes." in shown


async def test_weights_are_previewed_set_and_undone(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"), ("news", "press"))
        await browser.log_in()
        assert 'value="6:3:1"' in await page(browser)
        preview = await page(
            browser, "/console/preview?operation=set-levels&weights=1:2:3&back=now"
        )
        assert "Share by 1:2:3" in preview
        done = await browser.post("/console/do/apply", form_of(preview, "do/apply"))
        after = await page(browser)
        undo = await page(browser, "/console/preview?operation=set-levels&weights=6:3:1&back=now")

    assert done.headers["location"].endswith("now")
    assert 'value="1:2:3"' in after
    assert "Undo: back to 6:3:1" in after
    assert "Share by 6:3:1" in undo


async def test_a_limit_that_holds_can_be_previewed_away(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await going(browser, ("sale", "shop"), ("news", "press"))
        await do(browser.backend, settings, ADMIN, SetLimit.made(subject="app/shop", rate_per_s=20))
        await browser.log_in()
        html = await page(browser)
        [there] = re.findall(r'href="([^"]*clear-limit[^"]*)"', html)
        shown = text_of(await page(browser, f"/console/{unescape(there).removeprefix('./')}"))

    assert "Take the limits of app/shop away" in shown
    assert "1 task ends later" in shown or "ends sooner" in shown


async def test_a_viewer_sees_no_weights_to_set(settings: Settings) -> None:
    async with browsing(settings) as browser:
        wanted = CreateToken.made(name="eve", grants="viewer")
        token = (await do(browser.backend, settings, ADMIN, wanted)).token
        await browser.log_in(token)
        html = await page(browser)

    assert "set-levels" not in html
    assert "Undo" not in html
