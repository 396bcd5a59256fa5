"""`python -m bench faults`, the short form: a few faults of each kind, every promise kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.processes import ROOT

DEADLINE_S = 800
RUNS = "3"
ON_EMBEDDED = (
    "kill-random",
    "kill-before-answer",
    "kill-before-ack",
    "kill-after-republish",
    "rolling-restart",
    "worker-hung",
    "sink-500",
    "sink-cut",
)
ON_PULSAR = ("kill-random", "rolling-restart", "broker-cut", "redis-cut")


def struck(broker: str, faults: Sequence[str]) -> dict[str, Any]:
    """What the benchmark printed; it succeeded."""
    command = [sys.executable, "-m", "bench", "faults", "--json", "--broker", broker]
    only = [word for fault in faults for word in ("--only", fault)]
    ran = subprocess.run(
        [*command, "--runs", RUNS, *only],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


pytestmark = [pytest.mark.measures, pytest.mark.timeout(DEADLINE_S + 20)]


def test_on_the_embedded_store() -> None:
    rows = struck("embedded", ON_EMBEDDED)["rows"]

    assert {row["fault"] for row in rows} == set(ON_EMBEDDED)
    assert all(row["lost"] <= row["lost_bound"] for row in rows)
    assert all(row["duplicates"] <= row["bound"] for row in rows)


@pytest.mark.pulsar
def test_on_a_pulsar_of_its_own() -> None:
    result = struck("pulsar", ON_PULSAR)

    if result["skipped"] and not os.environ.get("CI"):
        pytest.skip(result["skipped"]["pulsar"])
    assert {row["fault"] for row in result["rows"]} == set(ON_PULSAR)
    assert all(row["lost"] <= row["lost_bound"] for row in result["rows"])
    assert all(row["duplicates"] <= row["bound"] for row in result["rows"])
