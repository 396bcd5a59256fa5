"""`python -m bench fairness`: nothing lost on both brokers, and on embedded the goals for shares.

At full speed shares on Pulsar depend on how fast its broker refills a lane, so those are for the
benchmark alone; tests/integration/test_order_of_deliveries holds them behind a slower sink.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.processes import ROOT

DEADLINE_S = 600


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("pulsar", marks=pytest.mark.pulsar)]
)
def fairness(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the benchmark printed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PUSHLANE_")}
    if request.param == "pulsar":
        pulsar = request.getfixturevalue("pulsar_urls")
        redis = request.getfixturevalue("redis_url")
        env |= {
            "PUSHLANE_BROKER": pulsar.broker,
            "PUSHLANE_ADMIN_URL": pulsar.admin,
            "PUSHLANE_REDIS_URL": redis,
        }
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "fairness", "--broker", request.param, "--json"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


on_embedded = pytest.mark.parametrize("fairness", ["embedded"], indirect=True)
pytestmark = [pytest.mark.measures, pytest.mark.timeout(DEADLINE_S + 20)]


def test_nothing_is_lost_or_sent_twice(fairness) -> None:
    assert (fairness["lost"], fairness["duplicates"]) == (0, 0)


@on_embedded
def test_no_window_of_100_is_off_by_more_than_a_pick(fairness) -> None:
    assert fairness["share_error_max"] <= 1


@on_embedded
def test_no_level_waits_longer_than_its_gap(fairness) -> None:
    gaps = fairness["gap_max"]
    assert (gaps["high"] <= 2, gaps["medium"] <= 4, gaps["low"] <= 10) == (True,) * 3, gaps


@on_embedded
def test_tasks_of_a_level_get_the_same(fairness) -> None:
    assert fairness["jain"] >= 0.99
