"""Flows from their first click to what counts, and two operators in the same one."""

from __future__ import annotations

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.task import now_ms
from pushlane.operations.processes import ListAudit
from pushlane.operations.tasks import GetTask
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import WIDTHS, Come, found_by_axe, shown
from tests.browser.test_tasks import filled
from tests.receipt_bodies import body

pytestmark = pytest.mark.xdist_group("browser")
__all__ = ["filled"]


def presses(me: Visitor, link: str, button: str) -> None:
    """Follow a link to a preview, and press what it offers."""
    me.page.get_by_role("link", name=link, exact=True).click()
    me.page.get_by_role("button", name=button).click()


def test_a_task_is_paused_resumed_moved_and_cancelled(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks")
    me.page.get_by_role("button", name="Pause sale").click()
    me.page.get_by_role("button", name="Resume sale").click()
    me.sees("resume-task is done.")
    presses(me, "Demote sale", "Move sale")
    me.sees("demote-task is done.")
    assert filled.do(GetTask(task="sale")).level == "low"
    presses(me, "Promote sale", "Move sale")
    me.sees("promote-task is done.")
    assert filled.do(GetTask(task="sale")).level == "medium"

    presses(me, "Cancel sale", "Cancel sale")
    me.sees("cancel-task is done.")
    assert filled.do(GetTask(task="sale")).state == "cancelled"
    assert me.page.get_by_role("button", name="Pause sale").count() == 0


def test_of_two_operators_who_reschedule_at_once_the_second_sees_what_the_first_did(
    filled: Served, visitor: Come
) -> None:
    me, other = visitor(filled), visitor(filled)
    for one, name in ((me, "ada"), (other, "bob")):
        one.logs_in(filled.token(name=name), "tasks/sale")
        one.page.get_by_label("Quiet hours").fill(f"2{'01'[name == 'bob']}:00-08:00")

    me.page.get_by_role("button", name="Reschedule").click()
    me.sees("reschedule-task is done.")
    other.page.get_by_role("button", name="Reschedule").click()
    other.sees("It is now:")
    assert all("412" in one for one in other.wrong)
    other.wrong.clear()  # which is how a browser tells of the answer
    assert "20:00-08:00" in other.page.inner_text("main")
    assert other.page.get_by_label("quiet").input_value() == "21:00-08:00"
    assert filled.do(GetTask(task="sale")).quiet == "20:00-08:00"


def test_a_push_is_looked_up_and_revealed_and_the_audit_knows(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "tasks/sale")
    me.page.get_by_label("Look up its push number").fill("900")
    me.page.get_by_role("button", name="Look", exact=True).click()
    me.page.get_by_role("button", name="Reveal recipient and content").click()

    me.sees("That you looked is in the audit.")
    assert "ada" in me.page.inner_text("main dl")
    assert any(one.subject == "push/sale-900" for one in filled.do(ListAudit()))


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def _traced(backend: Backend) -> None:
    """Two pushes of one trace: the first was tried twice, and the second clock is behind."""
    at_ms = now_ms() - 3_000_000
    quiet = {"quiet": 2_460_000, "slot": 18_000}
    again = quiet | {"tried": 100, "retry": 2_000, "share": 93_000}
    told = [
        body("sale", [7], "retry", at_ms=at_ms, reason="HTTP 503: busy", waits=quiet),
        body("sale", [7], at_ms=at_ms - 4_000, attempt=3, waits=again, trace_id=TRACE),
        body("sale", [7], "clicked", at_ms=at_ms + 90_000, attempt=0),
        body("sale", [8], "dead", at_ms=at_ms, reason="HTTP 410", trace_id=TRACE),
    ]
    await backend.receipts.append(told)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_steps_of_a_push_lead_to_those_of_its_trace(
    filled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    filled.work(_traced)
    me = visitor(filled, colours, WIDTHS[width])
    me.logs_in(filled.token(), "tasks/sale")
    me.goes_to("push")
    me.page.get_by_label("Look up a push or a trace by its id").fill("sale-7")
    me.page.get_by_role("button", name="Look", exact=True).first.click()
    me.sees("waited: quiet hours")
    for name in ("push", "trace"):
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"steps-{name}-{colours}-{width}")
        if name == "push":
            me.page.get_by_role("link", name=TRACE).click()
            me.sees("2 pushes of this trace")
