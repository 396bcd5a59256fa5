"""Access in a real browser: what is folded away can be read, and a new token opens the console."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Served
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_token_is_made_and_used(served: Served, visitor: Come, axe: str, colours: str) -> None:
    me = visitor(served, colours, WIDTHS["wide"])
    me.logs_in(served.token())
    me.goes_to("access")
    for one in me.page.locator("summary").all():
        one.click()
    assert found_by_axe(me, axe) == []

    me.page.get_by_label("Whose it is").fill(SCRIPT)
    me.page.get_by_label("Apps").fill("shop")
    me.page.get_by_role("button", name="Make it").click()
    me.sees("It is shown once")
    assert found_by_axe(me, axe) == []
    shown(me, f"made-{colours}")
    text = me.page.inner_text(".secret").strip()

    me.page.get_by_role("link", name="I have kept it").click()
    me.page.get_by_role("link", name="Revoke token").last.click()
    assert found_by_axe(me, axe) == []
    other = visitor(served)
    other.logs_in(text, "tasks")
    me.page.get_by_role("button", name="Revoke it").click()
    me.sees("revoke-token is done.")
    other.sees_state("ended")
