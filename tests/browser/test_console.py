"""The console in a real browser: what only that can show."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pushlane.console.app import PAGES
from pushlane.operations.access import ListTokens, RevokeToken
from pushlane.operations.shares import GetLevels, SetLevels
from tests.browser.conftest import Served, Visitor
from tests.processes import until

pytestmark = pytest.mark.xdist_group("browser")

PICTURES = os.environ.get("PUSHLANE_SCREENSHOTS")
"""Names a folder for pictures of every page, where somebody wants to look."""

HIDE = """(is) => {
  Object.defineProperty(document, "hidden", {value: is, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
HOURS_FAST = """
const Right = Date, isFastMs = HOURS * 3600e3;
window.Date = class extends Right {
  constructor(...given) { given.length ? super(...given) : super(Right.now() + isFastMs); }
  static now() { return Right.now() + isFastMs; }
};
addEventListener("beat", () => { window.beaten = true; });
"""

Come = Callable[..., Visitor]
SCRIPT = "<img src=x onerror=alert(1)><script>alert(1)</script>"
WIDTHS = {"wide": 1280, "small": 390}


def weigh(served: Served, weights: str) -> None:
    """Somebody sets other weights."""
    served.do(SetLevels.made(weights=weights))


def shown(visitor: Visitor, name: str) -> None:
    if PICTURES:
        visitor.page.screenshot(path=Path(PICTURES) / f"{name}.png")


def found_by_axe(visitor: Visitor, axe: str) -> list[str]:
    visitor.page.evaluate(axe)
    found = visitor.page.evaluate("axe.run()")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_every_page(
    served: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    me = visitor(served, colours, WIDTHS[width])
    me.goes_to("login")
    assert found_by_axe(me, axe) == []
    shown(me, f"login-{colours}-{width}")
    me.logs_in(served.token(name=SCRIPT))

    for page in PAGES:
        path = page.path.lstrip("/")
        me.goes_to(path)
        if page.is_live:
            me.sees_state("live")
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"{path}-{colours}-{width}")


def test_what_changes_is_seen_at_once_by_all(served: Served, visitor: Come) -> None:
    me, other = visitor(served), visitor(served)
    me.logs_in(served.token(), "audit")
    other.logs_in(served.token(name="other"), "audit")

    weigh(served, "5:4:1")

    me.sees("weights 5:4:1")
    other.sees("weights 5:4:1")


def test_a_pause_pauses(served: Served, visitor: Come) -> None:
    me, other = visitor(served), visitor(served)
    token = served.token()
    me.logs_in(token, "audit")
    other.logs_in(token, "audit")
    me.page.get_by_role("button", name="Pause view").click()
    before = me.page.inner_text("#live")

    weigh(served, "5:4:1")
    other.sees("weights 5:4:1")
    weigh(served, "7:2:1")
    other.sees("weights 7:2:1")

    assert me.sees_state("paused").startswith("Paused: what you see is of")
    assert me.page.inner_text("#live") == before
    me.page.get_by_role("button", name="Go on").click()
    me.sees("weights 7:2:1")
    me.sees_state("live")


def test_a_hidden_tab_asks_nothing(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "audit")
    me.page.evaluate(HIDE, True)
    until(lambda: len(served.console.live) == 0)
    weigh(served, "5:4:1")

    me.page.evaluate(HIDE, False)
    me.sees("weights 5:4:1")


def test_a_tab_that_is_shown_twice_at_once_takes_one_place(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "audit")
    me.sees_state("live")
    me.page.evaluate(HIDE, True)
    me.page.wait_for_function("navigator.locks.query().then((all) => all.held.length === 0)")

    me.page.evaluate(f"() => {{ const hide = {HIDE}; hide(false); hide(false); }}")
    weigh(served, "5:4:1")
    me.sees("weights 5:4:1")

    assert me.page.evaluate("navigator.locks.query().then((all) => all.held.length)") == 1


def test_a_lost_connection_says_so_and_comes_back(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "audit")

    served.stop()
    told = me.sees_state("lost")
    assert told.startswith("Connection lost: what you see is of")
    served.start()
    weigh(served, "5:4:1")

    me.sees("weights 5:4:1")
    me.sees_state("live")
    assert {one for one in me.wrong if "ERR_" not in one and "htmx:" not in one} == set()
    me.wrong.clear()  # a browser tells of each try that failed


def test_a_page_ends_with_its_token(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(name="gone"), "audit")
    [gone] = [one for one in served.do(ListTokens()) if one.name == "gone"]

    served.do(RevokeToken.made(token=gone.id))

    assert me.sees_state("ended") == "Your session is over. Log in again"
    me.page.get_by_role("link", name="Log in again").click()
    me.types(served.token())
    me.sees_state("live")
    assert me.page.url == served.url + "audit"


def test_a_form_outlives_its_session(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "processes")
    me.page.get_by_label("Let producers write up to format").fill("2")
    me.context.clear_cookies()
    me.page.get_by_role("button", name="Set").click()
    me.sees("What you typed is kept")
    assert any("401" in one for one in me.wrong)
    me.wrong.clear()  # which is how a browser tells of the answer

    me.types(served.token())
    assert me.page.get_by_label("min_format").input_value() == "2"
    me.page.get_by_role("button", name="Send again").click()

    me.sees("set-formats is done.")


def test_a_form_outlives_its_session_on_the_way_over_an_issuer(
    served_with_issuer: Served, visitor: Come
) -> None:
    me = visitor(served_with_issuer)
    me.goes_to("processes")
    me.page.get_by_role("link", name="Log in with your account").click()
    me.sees_state("live")
    me.sees("dana (oidc)")
    me.page.get_by_label("Let producers write up to format").fill("2")
    me.context.clear_cookies()
    me.page.get_by_role("button", name="Set").click()
    me.sees("What you typed is kept")
    me.wrong.clear()  # a browser tells of the 401

    me.page.get_by_role("link", name="Log in with your account").click()
    me.sees("What you typed was not sent")
    assert me.page.get_by_label("min_format").input_value() == "2"
    me.page.get_by_role("button", name="Send again").click()

    me.sees("set-formats is done.")


def test_everything_works_under_a_prefix(served_under_prefix: Served, visitor: Come) -> None:
    me = visitor(served_under_prefix)
    token = served_under_prefix.token()
    me.logs_in(token, "audit")
    me.page.get_by_role("link", name="Processes").click()
    me.sees_state("live")
    me.page.get_by_label("Let producers write up to format").fill("2")
    me.page.get_by_role("button", name="Set").click()
    me.sees("set-formats is done.")
    me.page.get_by_role("link", name="Audit").click()
    me.sees("min_format 2")
    me.page.get_by_role("button", name="Log out").click()
    me.page.wait_for_url("**/push/console/login")


def test_seven_tabs_of_one_browser_are_live(served: Served, visitor: Come) -> None:
    """A browser has six connections to a server: hidden tabs keep none."""
    first = visitor(served)
    first.logs_in(served.token(), "audit")
    tabs = [first]
    for _ in range(6):
        tabs[-1].page.evaluate(HIDE, True)
        tabs.append(Visitor(first.context, served))
        tabs[-1].goes_to("audit")
        tabs[-1].sees_state("live")
    weigh(served, "5:4:1")
    tabs[-1].sees("weights 5:4:1")

    assert len(served.console.live) == 1
    assert [one.wrong for one in tabs] == [[]] * 7


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_makes_no_time_wrong(
    served: Served, visitor: Come, hours: int
) -> None:
    me = visitor(served)
    me.context.add_init_script(HOURS_FAST.replace("HOURS", str(hours)))
    me.logs_in(served.token(), "audit")
    me.page.wait_for_function("window.beaten")
    me.page.get_by_role("button", name="Pause view").click()

    told = me.sees_state("paused").removeprefix("Paused: what you see is of ")
    at = datetime.strptime(told, "%d %b %Y, %H:%M:%S").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=10)


def test_a_keyboard_is_enough(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "processes")
    press, focused = me.page.keyboard.press, me.page.locator(":focus")

    press("Tab")
    assert focused.inner_text() == "Skip to the page"
    press("Enter")
    assert focused.get_attribute("id") == "main"
    press("Shift+Tab")
    assert focused.inner_text() == "Log out"
    press("Enter")
    me.page.wait_for_url("**/login")


def test_colours_stay_as_they_were_chosen(served: Served, visitor: Come) -> None:
    me = visitor(served, "light")
    me.logs_in(served.token())
    me.page.get_by_role("button", name="Show in dark colours").click()
    me.page.reload()

    assert me.page.get_attribute("html", "data-theme") == "dark"
    assert me.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 27)"


def test_times_are_in_the_readers_zone(served: Served, visitor: Come) -> None:
    here, there = visitor(served, zone="UTC"), visitor(served, zone="Asia/Tokyo")
    token = served.token()
    here.logs_in(token, "audit")
    there.logs_in(token, "audit")

    first, second = here.page.locator("time").first, there.page.locator("time").first
    assert first.get_attribute("title") == second.get_attribute("title")
    assert (first.get_attribute("title") or "").endswith(" UTC")
    assert first.inner_text() != second.inner_text()


def test_a_viewer_is_shown_what_is_theirs(served: Served, visitor: Come) -> None:
    me = visitor(served)
    me.logs_in(served.token("viewer"))
    pages = me.page.locator("header nav a").all_inner_texts()
    assert "Processes" in pages
    assert "Audit" not in pages
    assert me.page.get_by_role("button", name="Set").count() == 0
    assert served.do(GetLevels()).high.weight
