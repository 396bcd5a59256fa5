"""What unit tests may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.settings import Settings


@pytest.fixture
def settings(own_environment: None, tmp_path: Path) -> Settings:
    """Those of an embedded store of the test's own."""
    return Settings(broker="embedded", data_dir=tmp_path / "store")
