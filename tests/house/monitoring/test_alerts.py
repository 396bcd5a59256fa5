"""Each alert as `promtool test rules` tries it: where it fires and what it says, and where not.

Series are in promtool's notation, a value a minute: `0x30` is 0 for 30 minutes, `0+5x30` grows by 5
each minute, `_` is a minute in which nothing was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.monitoring.alerts import alerts
from scripts.monitoring.files import CHART
from tests.house.monitoring.series import (
    disks,
    late,
    looked,
    outcomes,
    refused,
    restarts,
    shares,
    states,
    two,
    versions,
    waits,
)
from tests.prometheus import Promtool

RULES = CHART / "rules" / "pushlane.yaml"
ALERTS = {alert.name: alert for alert in alerts()}
SINK = {"sink": "app"}
HIGH = {"level": "high", "sink": "app"}


@dataclass(frozen=True)
class Case:
    """What Prometheus has read, and what fires at a minute: nothing unless it `says` something."""

    alert: str
    series: Mapping[str, str]
    minute: int = 30
    says: str = ""
    of: Mapping[str, str] = field(default_factory=dict)


NEVER = " ".join(["+Inf"] * 60)
NEWER = 'pushlane_unknown_format_total{sink="app", job="pushlane", pod="a"}'
LAG = 'pushlane_receipts_lag_seconds{job="pushlane"}'
BEHIND = 'pushlane_receipts_behind_seconds{sink="app", job="pushlane", pod="a"}'
LOST = 'pushlane_receipts_lost_total{reason="full", sink="app", job="pushlane", pod="a"}'
SKEWED = "processes of several versions run side by side"
NO_LOOK = "nobody has looked at the {} lately"
LATE = "the backlog of sink app needs {} and does not fall"

CASES = (
    # Nobody there at all; there, and one of two gone; gone for longer than a restart takes.
    Case("PushlaneNoDispatcher", {}, says="no dispatcher runs"),
    Case("PushlaneNoDispatcher", two("pushlane_leader", "1x60", "0x10 _x50")),
    Case(
        "PushlaneNoDispatcher",
        {**two("pushlane_leader", "1x20 _x40"), 'pushlane_leader{job="other"}': "1x60"},
        says="no dispatcher runs",
        of={"job": "pushlane"},
    ),
    Case("PushlaneNoDispatcher", two("pushlane_leader", "1x27 _ _ 1x30")),
    # The lead goes over; it does not.
    Case("PushlaneNoLeader", two("pushlane_leader", "1x29 0x30", "0x30 1x30")),
    Case(
        "PushlaneNoLeader",
        two("pushlane_leader", "1x20 0x40", "0x60"),
        says="none of the dispatchers leads",
        of={"job": "pushlane"},
    ),
    Case("PushlaneBrokerLost", two("pushlane_broker_up", "1x60", "1x28 0 0 1x30")),
    Case(
        "PushlaneBrokerLost",
        two("pushlane_broker_up", "1x60", "1x20 0x40"),
        says="dispatchers that do not reach the broker: 1",
        of={"job": "pushlane"},
    ),
    Case("PushlaneRedisLost", two("pushlane_registry_up", "1x60")),
    Case(
        "PushlaneRedisLost",
        two("pushlane_registry_up", "1x20 0x40"),
        says="dispatchers that do not reach the registry: 2",
        of={"job": "pushlane"},
    ),
    # One by mistake; a parent that was started anew; one that dies again and again.
    Case("PushlaneWorkersRestart", restarts("0x20 1x40", "0x60")),
    Case("PushlaneWorkersRestart", restarts("7x20 0x40", "0x60")),
    Case(
        "PushlaneWorkersRestart",
        restarts("0+1x60", "0x60"),
        says="workers were started again 30 times in 30 minutes",
        of={"job": "pushlane"},
    ),
    # A single step; clocks that go on to differ.
    Case("PushlaneClocksApart", two("pushlane_housekeeping_waits", "0x20 1x10 0x30", "0x60")),
    Case(
        "PushlaneClocksApart",
        two("pushlane_housekeeping_waits", "0x10 1x50", "0x60"),
        says="clocks differ, so nothing expires, is dropped or forgotten",
        of={"job": "pushlane"},
    ),
    Case("PushlaneSinkRefuses", refused("0x60")),
    Case(
        "PushlaneSinkRefuses",
        refused("0x60", "0x20 1x40"),
        says="sink app refuses our credentials",
        of=SINK,
    ),
    # At one of two; throttled, which is no rest; held, of which another tells; at both.
    Case("PushlaneSinkRests", states("open", "0x60", "1x60")),
    Case("PushlaneSinkRests", states("throttled", "1x60")),
    Case("PushlaneSinkRests", {**states("open", "1x60"), **refused("1x60")}),
    Case(
        "PushlaneSinkRests",
        states("open", "1x60"),
        says="sink app rests at 100% of the dispatchers",
        of=SINK,
    ),
    # A small part; a large part of next to nothing; a large part.
    Case("PushlanePushesDie", outcomes(delivered=980, dead=20)),
    Case("PushlanePushesDie", outcomes(delivered=0, dead=1)),
    Case(
        "PushlanePushesDie",
        outcomes(delivered=900, dead=100),
        says="10% of the pushes of sink app die",
        of=SINK,
    ),
    # Soon done; held back by a limit; a large task that is being sent; more comes than goes;
    # nothing goes.
    Case("PushlaneLagGrows", late("200x60", "1000+10x60")),
    Case("PushlaneLagGrows", late("301x60", "1000x60")),
    Case("PushlaneLagGrows", late("5000-50x60", "1000000-10000x60")),
    Case(
        "PushlaneLagGrows", late("400+10x60", "1000+100x60"), says=LATE.format("11m 40s"), of=SINK
    ),
    Case("PushlaneLagGrows", late(NEVER, "1000x60"), says=LATE.format("+Inf"), of=SINK),
    # A level that is being sent; one that stands, of high and of low; a short wait.
    Case("PushlaneTaskWaits", waits("high", "0+60x60", "100000-1000x60")),
    Case("PushlaneTaskWaits", waits("high", "200x60", "5x60")),
    Case("PushlaneTaskWaits", waits("low", "0+60x60", "5x60")),
    Case(
        "PushlaneTaskWaits",
        waits("high", "0+60x60", "5x60"),
        says="a task of level high for sink app waits for 30m 0s",
        of=HIGH,
    ),
    # A little; more than its part; nothing is sent at all; a stream that is sent as it comes; much.
    Case("PushlaneLevelShort", shares(entitled=0.6, observed=0.55)),
    Case("PushlaneLevelShort", shares(entitled=0.3, observed=0.6)),
    Case("PushlaneLevelShort", shares(entitled=0.6, observed=0)),
    Case("PushlaneLevelShort", shares(entitled=0.6, observed=0.01, backlog=3)),
    Case(
        "PushlaneLevelShort",
        shares(entitled=0.6, observed=0.35),
        says="level high lacks 25% of sink app",
        of=HIGH,
    ),
    Case("PushlaneDiskFull", disks("500x60")),
    Case(
        "PushlaneDiskFull",
        disks("500-20x22 50x40"),
        says="the volume of data has 5% left",
        of={"dir": "data"},
    ),
    # An upgrade of 40 minutes; one that was never ended; messages of a newer version.
    Case("PushlaneVersionSkew", versions("1x90 _x30", "_x50 1x70"), minute=120),
    Case(
        "PushlaneVersionSkew",
        versions("1x180", "_x30 1x150"),
        minute=120,
        says=SKEWED,
        of={"job": "pushlane"},
    ),
    Case("PushlaneVersionSkew", {NEWER: "7x60"}),
    Case("PushlaneVersionSkew", {NEWER: "0x10 0+3x50"}, says=SKEWED, of={"job": "pushlane"}),
    Case("PushlaneReceiptsLag", {LAG: "0x20 900 0x60"}),
    Case(
        "PushlaneReceiptsLag",
        {LAG: "0+60x60"},
        minute=40,
        says="reports are 40m 0s behind",
        of={"job": "pushlane"},
    ),
    Case("PushlaneReceiptsBehind", {BEHIND: "0x20 30 0x60"}),
    Case(
        "PushlaneReceiptsBehind",
        {BEHIND: "0x10 0+60x60"},
        says="the log of receipts has taken none for 19m 0s",
        of={"job": "pushlane"},
    ),
    Case("PushlaneReceiptsLost", {LOST: "7x60"}),
    Case(
        "PushlaneReceiptsLost",
        {LOST: "0x25 100x60"},
        says="100 receipts were lost within 10 minutes",
        of={"job": "pushlane"},
    ),
    # Promtool's clock begins at 0, so a look at 60 s was in the first minute.
    Case("PushlaneRulesDoNotRun", looked("rules", "0+60x60")),
    Case("PushlaneRulesDoNotRun", {}),
    Case(
        "PushlaneRulesDoNotRun",
        looked("rules", "60x60"),
        says=NO_LOOK.format("rules"),
        of={"job": "pushlane"},
    ),
    Case(
        "PushlaneRulesDoNotRun",
        looked("rules", "0+60x20 _x40"),
        minute=40,
        says=NO_LOOK.format("rules"),
        of={"job": "pushlane"},
    ),
    Case("PushlaneAlertsDoNotRun", looked("alerts", "0+60x60")),
    Case(
        "PushlaneAlertsDoNotRun",
        looked("alerts", "60x60"),
        says=NO_LOOK.format("alerts of reports"),
        of={"job": "pushlane"},
    ),
)


def as_test(case: Case) -> dict[str, Any]:
    """The case for promtool."""
    alert = ALERTS[case.alert]
    labels = {"job": "pushlane"} if case.of and "job" in alert.expression.labels else {}
    fired = {
        "exp_labels": {**labels, **case.of, "severity": str(alert.severity)},
        "exp_annotations": {
            "summary": case.says,
            "description": alert.description,
            "runbook_url": f"docs/operations.md#{alert.runbook}",
        },
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": of} for name, of in case.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minute}m",
                "alertname": case.alert,
                "exp_alerts": [fired] if case.says else [],
            }
        ],
    }


def run(promtool: Promtool, folder: Path, *cases: Case) -> str:
    path = folder / "rules_test.json"
    tests = [as_test(case) for case in cases]
    path.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    return promtool("test", "rules", path)


def test_alerts_fire_when_they_should_and_not_when_not(promtool: Promtool, tmp_path: Path) -> None:
    assert "SUCCESS" in run(promtool, tmp_path, *CASES)


def test_an_alert_that_does_not_fire_as_said_is_noticed(promtool: Promtool, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="PushlaneNoDispatcher"):
        run(promtool, tmp_path, Case("PushlaneNoDispatcher", {}))


def test_each_alert_is_tried_where_it_fires_and_where_not() -> None:
    assert {case.alert for case in CASES if case.says} == set(ALERTS)
    assert {case.alert for case in CASES if not case.says} == set(ALERTS)
