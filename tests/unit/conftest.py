"""What unit tests may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane.dispatcher.sinks import http_client
from pushlane.settings import Settings


@pytest.fixture
def settings(own_environment: None, tmp_path: Path) -> Settings:
    """Those of an embedded store of the test's own."""
    return Settings(broker="embedded", data_dir=tmp_path / "store")


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_threads_of_a_client() -> Iterator[None]:
    """A sink that closes waits 0.1 s, so that its process can end; here the process goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_client, "_THREADS_END_S", 0.0)
        yield
