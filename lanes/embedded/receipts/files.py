"""Small files that are there whole, or not at all, whatever happens meanwhile."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from pushlane.lanes.durable import sync_folder


def replace(path: Path, content: bytes) -> None:
    """Whoever opens it finds the old content or the new one."""
    _made(path, content).replace(path)
    sync_folder(path.parent)


def put_new(path: Path, content: bytes) -> None:
    """Of several who put one there, the first one's stays."""
    made = _made(path, content)
    with suppress(FileExistsError):
        os.link(made, path)
    made.unlink()
    sync_folder(path.parent)


def _made(path: Path, content: bytes) -> Path:
    made = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(file)
    return made
