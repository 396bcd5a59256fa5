"""Passes settings to Spark's workers in a file that only this user can read.

So they are never in a plan or a log. The workers get the file's path, which is beside the store
that they share with the driver.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pushlane.lanes.secret import Secret
from pushlane.lanes.settings import Settings, made

_PREFIX = ".settings-"


@contextmanager
def settings_file(settings: Settings, folder: Path) -> Iterator[Path]:
    """Write the settings to a file for this context, and remove it at the end.

    The caller must hold the right to write the store: files that killed processes have left are
    removed, since they may hold a token.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"{_PREFIX}*"):
        left.unlink(missing_ok=True)
    path = folder / f"{_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode({name: _plain(value) for name, value in settings.items()}))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def read_settings(content: bytes) -> Settings:
    """Return the settings in the content of such a file."""
    return msgspec.convert(msgspec.json.decode(content), Settings, dec_hook=made)


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    return str(value) if isinstance(value, Path) else value
