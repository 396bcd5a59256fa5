"""The page of sinks in a real browser: a limit that is typed, and what it would do."""

from __future__ import annotations

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.operations.shares import GetLimit, SetLimit
from tests.browser.conftest import Served
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown

pytestmark = pytest.mark.xdist_group("browser")

RESTS = Resting("sink push (open)", 1_000, f"final answers {SCRIPT}", 61_000, is_unproven=True)
SERVING = Process(
    id="d1",
    kind="dispatcher",
    pid=7,
    version="1",
    serves=("default", "push"),
    served=(
        ServedSink(name="default", slots=10, in_flight=10, delivery_s=0.1),
        ServedSink(name="push", target=SinkTarget("webhook", SCRIPT, "5d1f"), resting=RESTS),
    ),
)


async def _fill(backend: Backend) -> None:
    await backend.presence.announce(SERVING, 600.0)
    made = Task(
        id="sale",
        level=Level.MEDIUM,
        lane=own_lane("sale"),
        state=State.RUNNING,
        total=90_000,
        created_at_ms=now_ms(),
    )
    await backend.registry.add(made)


@pytest.fixture
def filled(served: Served) -> Served:
    served.work(_fill)
    return served


def test_ends_move_while_a_limit_is_typed_and_nothing_counts_until_it_is_pressed(
    filled: Served, visitor: Come
) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "sinks")
    me.page.get_by_role("link", name="Limit sink default").click()

    rate = me.page.get_by_label("Rate")
    rate.fill("fast")
    me.page.locator("#preview [role=alert]").wait_for()
    assert me.page.locator("#preview button").count() == 0
    rate.fill("5/s")
    me.sees("Limit sink/default to rate 5/s: 1 task ends later.")
    assert filled.do(GetLimit(subject="sink/default")).limit.rate_per_s is None
    me.page.get_by_role("button", name="Limit sink/default to rate 5/s").click()

    me.sees("set-limit is done.")
    assert filled.do(GetLimit(subject="sink/default")).limit.rate_per_s == 5
    me.page.get_by_role("link", name="Undo set-limit of sink/default").click()
    me.page.get_by_role("button", name="Limit sink/default to rate none").click()
    me.sees("set-limit is done.")
    assert filled.do(GetLimit(subject="sink/default")).limit.rate_per_s is None


def test_what_is_typed_stays_while_the_page_changes(filled: Served, visitor: Come) -> None:
    me = visitor(filled)
    me.logs_in(filled.token(), "sinks")
    me.goes_to("sinks?limit=sink/default#limit")
    me.sees_state("live")
    me.page.get_by_label("Rate").fill("7/s")

    filled.do(SetLimit.made(subject="sink/push", in_flight=3))
    me.sees("0 of 3 in flight")
    assert me.page.get_by_label("Rate").input_value() == "7/s"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_its_panels(
    filled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    filled.do(SetLimit.made(subject=f"app/{SCRIPT}", a_day=3))
    filled.do(SetLimit.made(subject="sale", rate_per_s=900))
    me = visitor(filled, colours, WIDTHS[width])
    me.logs_in(filled.token(), "sinks")

    for path in ("sinks", "sinks?limit=sale", "sinks?accept=push", "sinks?accept=none"):
        me.goes_to(path)
        me.sees_state("live")
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"{path.replace('?', '-')}-{colours}-{width}")
