"""The pages of rules in a real browser: one is run by hand while another reader looks on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.task import now_ms
from pushlane.operations.rules import GetRule, PutRule
from pushlane.pipeline.rules.history import Run, RunState
from pushlane.pipeline.rules.rule_store import RuleStore
from tests.browser.conftest import Served
from tests.browser.test_console import SCRIPT, WIDTHS, Come, found_by_axe, shown

pytestmark = pytest.mark.xdist_group("browser")


async def _run(backend: Backend) -> None:
    now = now_ms() // 60_000 * 60_000
    runs = [
        Run(at_ms=now - 3_600_000).ended(
            RunState.DONE, now - 3_500_000, task_id="019a-7c", total=48_210
        ),
        Run(at_ms=now - 60_000).ended(RunState.FAILED, now - 30_000, f"no such column {SCRIPT}"),
        Run(at_ms=now - 30_500, state=RunState.WAITING, retry_at_ms=now + 90_000, reason="away"),
    ]
    store = RuleStore(backend.documents)
    await store.change_history("weekly", lambda history: history.with_runs(*runs))


@pytest.fixture
def ruled(served: Served) -> Served:
    task: dict[str, Any] = {"level": "low", "title": SCRIPT, "app": "shop"}
    weekly = {"audience": "/data/users.parquet", "cron": "0 9 * * MON", "zone": "Europe/Berlin"}
    weekly |= {"where": "country = 'IT' AND last_seen > current_date() - 30"}
    served.do(PutRule.made(name="weekly", task=task, budget_day=250_000, **weekly))
    daily = {"audience": SCRIPT, "exclude": (SCRIPT,), "cron": "0 6 * * *", "paused": True}
    served.do(PutRule.made(name="daily", task=task, **daily))
    served.work(_run)
    return served


def test_a_rule_is_run_by_hand_and_all_see_it(ruled: Served, visitor: Come) -> None:
    me, other = visitor(ruled), visitor(ruled)
    me.logs_in(ruled.token(name="ada"), "rules")
    other.logs_in(ruled.token("viewer", "bob"), "rules/daily")
    me.page.get_by_role("link", name="Run now: rule daily").press("Enter")
    me.page.get_by_role("button", name="Run it").press("Enter")

    other.sees("by hand")
    me.page.get_by_role("button", name=re.compile("^Withdraw the run of .* of rule daily$")).press(
        "Enter"
    )
    other.sees("There were no runs yet.")
    me.page.get_by_role("button", name="Resume rule daily").press("Enter")
    other.sees("It runs next")
    assert not ruled.do(GetRule(name="daily")).open_runs


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_it(
    ruled: Served, visitor: Come, axe: str, colours: str, width: str
) -> None:
    me = visitor(ruled, colours, WIDTHS[width])
    me.logs_in(ruled.token(), "rules")

    for path in ("rules", "rules/weekly", "rules?run=daily"):
        me.goes_to(path)
        me.sees_state("live")
        assert found_by_axe(me, axe) == []
        assert me.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        shown(me, f"{path.replace('?', '-').replace('/', '-')}-{colours}-{width}")
