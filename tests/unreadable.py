"""Tasks that this version cannot read, as other versions may have stored them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from pushlane.backends.ports import TaskStore
from pushlane.core.task import Task
from pushlane.model import task_bytes


@contextmanager
def unchecked() -> Iterator[None]:
    """Let tasks be written that cannot be read back, as a version without that check does."""
    with patch.object(task_bytes, "checked", lambda what, encode, decode: encode()):
        yield


async def store_unreadable(registry: TaskStore, task_id: str, **fields: Any) -> Task:
    """Give a task fields that this version does not understand, like `quota=2.5`, `format=3`."""
    with unchecked():
        return await registry.change(task_id, lambda known: replace(known, **fields))
