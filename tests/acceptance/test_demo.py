"""`pushlane demo --json`: the promise of the README, in one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT

DEADLINE_S = 600
ENTITLED = {"high": 0.6, "medium": 0.3, "low": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """What the demo printed, run once for all tests, in an empty folder."""
    return played(folder)


def played(folder: Path, *flags: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "pushlane", "demo", "--json", *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


pytestmark = [pytest.mark.measures, pytest.mark.timeout(DEADLINE_S + 20)]


def test_nothing_is_lost_or_sent_twice(report) -> None:
    assert (report["lost"], report["duplicates"]) == (0, 0)


def test_levels_share_the_sink_6_3_1(report) -> None:
    assert report["share"] == pytest.approx(ENTITLED, abs=0.02)


def test_the_late_task_starts_at_once_where_one_queue_a_level_lets_it_wait(report) -> None:
    assert report["queue_per_level_first_push_s"] > 10 * report["late_first_push_s"]


def test_a_new_quota_moves_the_share_of_its_task(report) -> None:
    assert report["quota_share_after"] > report["quota_share_before"] + 0.1


def test_a_sink_that_rests_takes_nothing_from_the_other_one(report) -> None:
    assert report["app_share_meanwhile"] == pytest.approx(ENTITLED, abs=0.02)
    assert report["app_rate_kept"] > 0.5  # what the machine has else to do falls into it
    assert report["mail_per_s_while_it_rested"] < 50
    assert report["mail_goes_on_s"] is not None


def test_the_plot_is_a_picture(report, folder: Path) -> None:
    assert (folder / report["plot"]).read_bytes().startswith(b"\x89PNG")


def test_a_provider_receives_the_same(tmp_path: Path) -> None:
    report = played(tmp_path, "--provider", "fcm")
    assert (report["lost"], report["duplicates"]) == (0, 0)
    assert report["share"] == pytest.approx(ENTITLED, abs=0.02)
