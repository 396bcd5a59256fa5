"""What is between a browser and its servers: balancers, proxies that buffer, breaks and bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushlane.console.sessions import sessions
from pushlane.operations.access import ListTokens, RevokeToken
from tests.browser.between import Between, between
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import HIDE, Come, weigh
from tests.processes import until

pytestmark = pytest.mark.xdist_group("browser")

ASKED_MS, NOTHING_COMES_MS, SILENT_MS, POLL_MS, RETRY_MS = 1_000, 5_000, 12_000, 5_000, 61_000

HOLD_ALL = """() => {
  for (const name of [0, 1, 2, 3]) {
    navigator.locks.request(`pushlane-stream-${name}`, () => new Promise(() => {}));
  }
  document.getElementById("pause").click();
}"""
"""Has one page keep the places of all streams; what it shows is of no interest."""


@pytest.fixture
def behind(served: Served) -> Iterator[Between]:
    """A proxy before the server."""
    with between([served.url]) as found:
        yield found


def comes(visitor: Come, behind: Between, token: str, path: str = "audit") -> Visitor:
    """Somebody with a clock that can be moved on, whose page is there, live or not."""
    me = visitor(behind)
    me.page.clock.install()
    me.goes_to(path)
    me.types(token)
    me.page.wait_for_url(behind.url + path)
    me.page.locator("#stream-state").wait_for()
    return me


def reads_again(me: Visitor, after_ms: int = POLL_MS) -> None:
    """Let so much time pass for a page that has no stream, and have it answered once."""
    with me.page.expect_response(lambda answer: "/live/" not in answer.url) as answered:
        me.page.clock.fast_forward(after_ms)
    answered.value.finished()


def forgets_breaks(me: Visitor) -> None:
    """A browser tells of each connection that breaks, and htmx of the same; of nothing else."""
    kinds = ("Failed to load resource: net::ERR_", "htmx: htmx:sse:error: ", "htmx: htmx:error: ")
    assert [one for one in me.wrong if not one.startswith(kinds)] == []
    me.wrong.clear()


@pytest.mark.parametrize("what", ["all", "body"])
def test_behind_a_proxy_that_buffers_a_page_is_read_again_and_says_why(
    served: Served, behind: Between, visitor: Come, what: str
) -> None:
    behind.hold(what)
    me = comes(visitor, behind, served.token())
    reads_again(me, NOTHING_COMES_MS)
    assert "does a proxy buffer it?" in me.sees_state("polled")
    reads_again(me)
    until(lambda: len(served.console.live) == 0)  # a stream that nobody hears is closed

    weigh(served, "5:4:1")
    reads_again(me)
    me.sees("weights 5:4:1")
    behind.hold("")
    me.page.clock.fast_forward(RETRY_MS)

    me.sees_state("live")
    weigh(served, "7:2:1")
    me.sees("weights 7:2:1")


def test_a_page_that_is_read_again_pauses_and_ends_with_its_token(
    served: Served, behind: Between, visitor: Come
) -> None:
    behind.hold("all")
    me = comes(visitor, behind, served.token(name="gone"))
    reads_again(me, NOTHING_COMES_MS)
    me.sees_state("polled")
    me.page.get_by_role("button", name="Pause view").click()
    weigh(served, "5:4:1")
    me.page.clock.fast_forward(POLL_MS)
    assert me.page.get_by_text("weights 5:4:1").count() == 0
    me.page.get_by_role("button", name="Go on").click()
    me.sees("weights 5:4:1")

    [gone] = [one for one in served.do(ListTokens()) if one.name == "gone"]
    served.do(RevokeToken.made(token=gone.id))
    asked: list[str] = []
    me.page.on("request", lambda request: asked.append(request.url))
    me.page.clock.fast_forward(ASKED_MS)

    assert me.sees_state("ended") == "Your session is over. Log in again"
    assert {*asked} == {f"{behind.url}session"}, "it is not read for that"
    assert all("401" in one for one in me.wrong)
    me.wrong.clear()  # which is how a browser tells of the answer


def test_a_connection_that_breaks_says_so_and_what_is_typed_stays(
    served: Served, behind: Between, visitor: Come
) -> None:
    me = comes(visitor, behind, served.token(), "tasks")
    me.sees_state("live")
    me.page.get_by_label("Id, key or name has").fill("bil")
    behind.cut()
    assert me.sees_state("lost").startswith("Connection lost: what you see is of")
    behind.flow()
    me.page.clock.fast_forward(POLL_MS)

    me.sees_state("live")
    assert me.page.get_by_label("Id, key or name has").input_value() == "bil"
    forgets_breaks(me)


def test_a_connection_on_which_nothing_comes_any_more_is_lost(
    served: Served, behind: Between, visitor: Come
) -> None:
    me = comes(visitor, behind, served.token())
    me.sees_state("live")
    behind.stall()
    me.page.clock.fast_forward(SILENT_MS)  # it is asked for
    me.page.clock.fast_forward(POLL_MS)  # in vain
    me.sees_state("lost")

    behind.flow()
    weigh(served, "5:4:1")
    me.sees("weights 5:4:1")
    me.sees_state("live")
    forgets_breaks(me)


def test_two_servers_behind_a_balancer_are_one(
    served: Served, second_served: Served, behind: Between, visitor: Come
) -> None:
    token = served.token()
    me = comes(visitor, behind, token, "processes")
    me.sees_state("live")
    behind.urls[:] = [second_served.url]
    other = comes(visitor, behind, token)
    other.sees_state("live")
    assert len(served.console.live) == len(second_served.console.live) == 1

    behind.urls.append(served.url)
    me.page.get_by_label("Let producers write up to format").fill("2")
    me.page.get_by_role("button", name="Set").click()
    me.sees("set-formats is done.")
    other.sees("min_format 2")
    served.stop()
    for one in (me, other):
        one.page.clock.fast_forward(POLL_MS)
        one.sees_state("live")
    weigh(second_served, "5:4:1")
    other.sees("weights 5:4:1")
    for one in (me, other):
        forgets_breaks(one)


def test_a_file_is_found_whichever_of_two_servers_is_asked(
    served: Served, second_served: Served, behind: Between, visitor: Come
) -> None:
    behind.urls[:] = [served.url, second_served.url]
    me = visitor(behind)
    me.logs_in(served.token(), "processes")
    me.goes_to("submit")
    me.page.get_by_label("Rows").fill("recipient,city\ndevice-1,Berlin")
    me.page.get_by_role("button", name="Use these rows").click()
    me.sees_state("live")
    me.page.get_by_label("Level").select_option("high")
    me.page.get_by_label("Title", exact=True).fill("Hi {city}")
    me.page.get_by_role("button", name="Check").click()
    me.page.get_by_role("button", name="Submit 1 push").click()

    me.sees("It is submitted: 1 push.")
    assert "hop" not in me.page.url


def test_a_server_that_has_another_key_since_its_restart_asks_for_a_login(
    served: Served, visitor: Come
) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "audit")
    served.stop()
    me.sees_state("lost")
    served.key = sessions(None)
    served.start()

    me.sees_state("ended")
    me.wrong = [one for one in me.wrong if "401" not in one]
    forgets_breaks(me)
    me.page.get_by_role("link", name="Log in again").click()
    me.types(served.token(name="again"))
    me.sees_state("live")


def test_a_page_without_a_stream_asks_in_peace_while_nobody_answers(
    served: Served, visitor: Come
) -> None:
    me = visitor(served)
    me.logs_in(served.token(), "audit")
    me.page.evaluate(HOLD_ALL)
    other = Visitor(me.context, served)
    other.page.clock.install()
    other.goes_to("audit")
    other.sees_state("polled")
    asked: list[str] = []
    other.page.on("request", lambda request: asked.append(request.url))

    served.stop()
    for _ in range(3):
        other.page.clock.fast_forward(POLL_MS)
        other.sees_state("lost")
    assert 1 <= len(asked) <= 6
    served.start()
    other.page.clock.fast_forward(POLL_MS)

    other.sees_state("polled")
    for one in (me, other):
        forgets_breaks(one)


def test_seven_windows_of_one_browser_are_up_to_date(served: Served, visitor: Come) -> None:
    """A browser has six connections to a server: four are for streams, the others for the rest."""
    me = visitor(served)
    me.page.clock.install()
    me.logs_in(served.token(), "audit")
    windows = [me, *(Visitor(me.context, served) for _ in range(6))]
    for number, one in enumerate(windows[1:], start=1):
        one.goes_to("audit")
        one.sees_state("live" if number < 4 else "polled")
    assert len(served.console.live) == 4

    weigh(served, "5:4:1")
    for one in windows[:4]:
        one.sees("weights 5:4:1")
    me.page.clock.fast_forward(POLL_MS)  # for all pages of a browser
    for one in windows[4:]:
        one.sees("weights 5:4:1")
    windows[1].page.evaluate(HIDE, True)
    until(lambda: len(served.console.live) == 3)
    me.page.clock.fast_forward(RETRY_MS)

    until(lambda: len(served.console.live) == 4)  # another has its place
    assert [one.wrong for one in windows] == [[]] * 7
