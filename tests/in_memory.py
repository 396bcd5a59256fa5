"""Folders of tests in memory, where there is room: SQLite waits for a disk several times a test.

What is there goes when its test has passed (`tmp_path_retention_policy`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
_TEMP_ROOT = "PYTEST_DEBUG_TEMPROOT"


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest make its folders there, unless somebody has said where."""
    if _TEMP_ROOT not in os.environ and has_room(MEMORY):
        os.environ[_TEMP_ROOT] = str(MEMORY)


def has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= ROOM
