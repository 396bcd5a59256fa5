"""What unit tests may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs commands in an empty folder, with a store and no settings but its own."""
    for name in os.environ:
        if name.startswith("PUSHLANE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PUSHLANE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return Command(tmp_path)
