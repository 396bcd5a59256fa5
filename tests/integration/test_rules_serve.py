"""`rules serve` as processes: one leads, another takes over, and both end when they are told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import Pushlane

pytest.importorskip("cronsim")


@pytest.fixture
def pushlane(tmp_path: Path):
    commands = Pushlane(tmp_path, {"data_dir": str(tmp_path / "store"), "log_format": "json"})
    yield commands
    commands.end_all()


def test_one_leads_until_it_is_stopped_and_then_the_other_does(pushlane: Pushlane):
    first = pushlane.start("rules", "serve")
    first.until("leads")
    second = pushlane.start("rules", "serve")
    second.until("stands_by")

    assert first.stop() == 0

    second.until("leads")
    assert second.stop() == 0


def test_once_ends_when_nothing_is_due(pushlane: Pushlane):
    serving = pushlane.start("rules", "serve", "--once")

    assert serving.wait() == 0
    assert serving.times("leads") == 1
