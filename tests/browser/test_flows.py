"""Flows from their first click to what counts, and two operators in the same one."""

from __future__ import annotations

import pytest

from pushlane.operations.processes import ListAudit
from pushlane.operations.tasks import GetTask
from tests.browser.conftest import Served, Visitor
from tests.browser.test_console import Come
from tests.browser.test_tasks import filled

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
