"""The page of alerts in a real browser: what fires is acknowledged while it changes."""

from __future__ import annotations

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.task import now_ms
from pushlane.operations.alerts import GetAlert, PutAlert
from pushlane.pipeline.alerts.alert_store import AlertGroup, AlertStore
from tests.browser.conftest import Served
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown

pytestmark = pytest.mark.xdist_group("browser")

TO = "https://hooks.example.com/alerts"


async def _fire(backend: Backend) -> None:
    store, now = AlertStore(backend.documents), now_ms()
    groups = {
        '["fcm","shop"]': AlertGroup(now - 900_000, told=True, told_at_ms=now - 890_000),
        '["apns","news"]': AlertGroup(now - 60_000),
    }
    await store.save_state("failing", groups, await store.load_state("failing"))
    odd = {f'["{SCRIPT}"]': AlertGroup(now - 5_000, told=True)}
    await store.save_state("slow", odd, await store.load_state("slow"))


@pytest.fixture
def firing(served: Served) -> Served:
    failing = {"metric": "failure_rate", "when": "> 5%", "by": "sink,app", "at_least": 200}
    served.do(PutAlert.made(name="failing", to=TO, for_s="10m", remind_s="4h", **failing))
    served.do(PutAlert.made(name="slow", to=TO, metric="p99_wait_ms", when="> 2x", by="level"))
    served.do(PutAlert.made(name="quiet", to=TO, metric="rate", when="< 10", app=SCRIPT))
    served.work(_fire)
    return served


def test_what_fires_is_acknowledged(firing: Served, visitor: Come) -> None:
    me, other = visitor(firing), visitor(firing)
    me.logs_in(firing.token(name="ada"), "alerts")
    other.logs_in(firing.token("viewer", "bob"), "alerts")
    me.page.get_by_role("link", name="Acknowledge failing, sink fcm, app shop").click()
    me.page.get_by_label("What is done about it").fill("fcm knows")
    me.page.get_by_role("button", name="Acknowledge").click()

    me.sees("acknowledge-alert is done.")
    other.sees("fcm knows")
    me.page.get_by_role("button", name="Take back the acknowledgement of failing, sink fcm").click()
    me.page.get_by_role("link", name="Acknowledge failing, sink fcm, app shop").wait_for()
    assert not firing.do(GetAlert(name="failing")).groups['["fcm","shop"]'].acknowledged_by


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_it(
    firing: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    me = visitor(firing, colours, WIDTHS[width])
    me.logs_in(firing.token(), "alerts")

    for path in ("alerts", "alerts?acknowledge=slow", "alerts/failing"):
        me.goes_to(path)
        if path != "alerts/failing":
            me.sees_state("live")
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"{path.replace('?', '-').replace('/', '-')}-{colours}-{width}")
