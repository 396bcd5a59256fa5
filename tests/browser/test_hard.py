"""What goes wrong, and much at once: stores away, 10,000 tasks, script everywhere, no mouse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import iscoroutinefunction
from unittest import mock

import pytest
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.console.app import PAGES
from pushlane.core.errors import Unreachable
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.operations.shares import GetLevels
from pushlane.operations.tasks import GetTask
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import SCRIPT, Come
from tests.browser.test_tasks import filled

pytestmark = pytest.mark.xdist_group("browser")
__all__ = ["filled"]

MANY, CHANGED_AT_ONCE = 10_000, 500
STORE = ("registry", "presence", "limiter")
REACHABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
NUMBER = """(those) => {
  const all = [...document.querySelectorAll(those)];
  const found = all.filter((one) => one.checkVisibility() && !one.disabled);
  found.forEach((one, place) => one.dataset.place = place);
  document.body.tabIndex = -1;
  document.body.focus();
  return found.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const isShown = style.outlineStyle !== "none" || style.boxShadow !== "none";
  return [one.dataset.place ?? "", isShown, one.outerHTML];
}"""


@contextmanager
def away(backend: Backend, *parts: str) -> Iterator[None]:
    """Have these parts of a backend answer nothing."""
    with ExitStack() as stack:
        for part in (getattr(backend, name) for name in parts):
            for name in dir(part):
                if not name.startswith("_") and iscoroutinefunction(getattr(part, name)):
                    gone = mock.AsyncMock(side_effect=Unreachable("the store does not answer"))
                    stack.enter_context(mock.patch.object(part, name, gone))
        yield


@pytest.mark.parametrize("path", ["now", "tasks", "tasks/sale", "sinks", "processes"])
def test_while_a_store_is_away_the_last_picture_stays_with_its_age(
    filled: Served, visitor: Come, path: str
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), path)
    before = me.page.locator("#live table").all_inner_texts()

    with away(filled._backend, *STORE):
        told = me.sees_state("away")
        assert "the store does not answer: what you see is of" in told
        assert len(me.page.locator("#live table").all_inner_texts()) == len(before) > 0
    me.sees_state("live")


def test_while_the_broker_is_away_a_task_is_shown_and_what_lies_there_is_not(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    with away(filled._backend, "broker"):
        me.logs_in(filled.token(), "tasks/sale")
        me.page.locator("#dead [role=alert]").wait_for()
    assert "the store does not answer" in me.page.inner_text("#dead")
    me.sees_state("live")
    me.page.locator("#dead-again").click()
    me.page.locator("#dead tbody tr").wait_for()


def test_weights_are_moved_with_their_consequences_first(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "now")
    me.page.locator("#weights").fill("1:8:1")
    me.page.get_by_role("button", name="Share by 1:8:1").click()
    me.sees("set-levels is done.")
    assert filled.do(GetLevels()).medium.weight == 8

    me.page.get_by_role("link", name="Undo: back to 6:3:1").click()
    me.page.get_by_role("button", name="Share by 6:3:1").click()
    me.sees("set-levels is done.")
    assert filled.do(GetLevels()).medium.weight == 3


def tabs_to(me: Visitor, name: str) -> None:
    """Press Tab until what has this name, or text, has the focus."""
    for _ in range(200):
        me.page.keyboard.press("Tab")
        told = me.page.evaluate(
            "(({ariaLabel, innerText, labels}) => [ariaLabel, innerText, labels?.[0]?.innerText])"
            "(document.activeElement)"
        )
        if any(name in text for text in told if text):
            return
    raise AssertionError(f"no key leads to {name!r}")


def test_a_quota_is_found_moved_and_undone_by_keyboard_alone(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    press = me.page.keyboard.press
    me.logs_in(filled.token(), "now")
    tabs_to(me, "Tasks")
    press("Enter")
    me.page.wait_for_url("**/tasks")
    tabs_to(me, "Id, key or name has")
    me.page.keyboard.type("sale")
    press("Enter")
    me.page.wait_for_url("**/tasks?find=sale&*")
    tabs_to(me, "Quota of sale: 1")
    press("Enter")
    me.page.wait_for_url("**quota=sale*")
    me.sees_state("live")
    tabs_to(me, "Slide")
    for _ in range(3):
        press("ArrowRight")
    me.sees("Set the quota of sale to 4:")
    tabs_to(me, "Set the quota of sale to 4")
    press("Enter")
    me.sees("set-quota is done.")
    assert filled.do(GetTask(task="sale")).quota == 4
    tabs_to(me, "Undo set-quota of sale")
    press("Enter")
    me.page.get_by_role("button", name="Set the quota of sale to 1").wait_for()
    tabs_to(me, "Set the quota of sale to 1")
    press("Enter")

    me.sees("set-quota is done.")
    assert filled.do(GetTask(task="sale")).quota == 1


def test_tab_reaches_everything_on_every_page_and_shows_where_it_is(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks/sale")
    for path in [page.path.lstrip("/") for page in PAGES] + ["tasks?quota=sale", "tasks/sale"]:
        me.goes_to(path)
        if me.page.locator("#stream-state").count():
            me.sees_state("live")
            me.page.get_by_role("button", name="Pause view").click()  # nothing comes or goes
        count, reached = me.page.evaluate(NUMBER, REACHABLE), set()
        parts = 8 * me.page.locator("input[type=datetime-local]").count()  # a key for each
        for _ in range(count + parts + 2):
            me.page.keyboard.press("Tab")
            place, is_shown, html = me.page.evaluate(FOCUSED)
            reached.add(place)
            assert is_shown or not place, (path, html)
        assert {str(place) for place in range(count)} <= reached, path


def test_script_that_is_typed_anywhere_runs_nowhere(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks/sale")
    paths = [page.path.lstrip("/") for page in PAGES]
    typed = 0
    for path in [*paths, "tasks/sale", "sinks?limit=sale", "audit?find=x"]:
        me.goes_to(path)
        fields = "main form input:is([type=search], [type=text], :not([type])):visible, textarea"
        for place in range(me.page.locator(fields).count()):
            me.goes_to(path)
            field = me.page.locator(fields).nth(place)
            field.fill(SCRIPT)
            field.press("Enter")
            me.page.wait_for_load_state()
            assert me.page.locator("img").count() == 0
            typed += 1
    told = [one for one in me.wrong if not one.startswith("Failed to load resource: the server")]

    assert typed >= len(PAGES)
    assert told == []
    me.wrong.clear()  # a browser tells of each refusal


async def _add_many(backend: Backend) -> None:
    for start in range(0, MANY, CHANGED_AT_ONCE):
        await asyncio.gather(
            *(backend.registry.add(_task(n)) for n in range(start, start + CHANGED_AT_ONCE))
        )


def _task(number: int) -> Task:
    return Task(
        id=f"t{number}",
        name=f"campaign {number}",
        level=[*Level][number % 3],
        lane=own_lane(f"t{number}"),
        state=State.RUNNING,
        total=1_000,
        created_at_ms=now_ms() + number,
    )


async def _change_all(backend: Backend, turn: int) -> None:
    for start in range(0, MANY, CHANGED_AT_ONCE):
        some = range(start, start + CHANGED_AT_ONCE)
        await backend.registry.record([Finished(f"t{n}", Kind.DELIVERED, [turn]) for n in some])
        renamed = partial(replace, name=f"renamed {turn} of {start}")
        await backend.registry.change(f"t{start + CHANGED_AT_ONCE - 1}", renamed)


def test_while_10_000_tasks_change_pages_follow_and_what_is_typed_stays(
    served: Served, visitor: Come
) -> None:
    served.work(_add_many)
    me, other = visitor(served), visitor(served)
    token = served.token()
    me.logs_in(token, "tasks")
    other.logs_in(token, "now")
    word = me.page.get_by_label("Id, key or name has")
    word.fill("campaign 77")

    for turn in range(1, 4):
        served.work(lambda backend, turn=turn: _change_all(backend, turn))
        me.sees(f"renamed {turn} of {MANY - CHANGED_AT_ONCE}")
    assert word.input_value() == "campaign 77"
    assert me.page.locator("#live tbody tr").count() == 50
    assert me.page.evaluate("document.querySelectorAll('*').length") < 3_000
    word.press("Enter")
    me.sees("campaign 7799")
    assert me.page.locator("tbody tr").count() == 50
    other.sees("10,000")
    other.sees_state("live")
