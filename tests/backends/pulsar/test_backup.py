"""A copy of a registry that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pushlane.backends.pulsar.backup import back_up
from pushlane.core.errors import BadInput
from pushlane.settings import Settings
from tests.backends.pulsar.test_admin import serving


async def test_a_registry_that_is_not_there_is_neither_copied_nor_made(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with serving({}) as server:
        settings = Settings(
            broker="pulsar://127.0.0.1:1", admin_url=server.url, namespace="pushlane/typo"
        )
        with pytest.raises(BadInput, match="there is no registry of pushlane/typo"):
            await back_up(settings, copy)

    assert server.changes() == []
    assert os.listdir(tmp_path) == []
