"""Tells a live process from a dead one, even when its pid was given to another.

An owner holds a lock on a file of its own as long as its process lives, frozen or not; the kernel
releases it when the process dies. Whether a live process works is told by `heartbeats`.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from pushlane.lanes.embedded.vendor_errors import translated
from pushlane.lanes.file_lock import FileLock, is_locked

FOLDER = "owners"


class Owner:
    """The side of the process itself: alive from `start()` to `end()`."""

    def __init__(self, folder: Path) -> None:
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._lock: FileLock | None = None

    def start(self) -> None:
        with translated(self._folder):
            path = _lock_file(self._folder, self.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lock = FileLock(path)
            self._lock.wait()

    def end(self) -> None:
        if self._lock is not None:
            forget(self._folder, self.name)
            self._lock.close()
            self._lock = None


def is_alive(folder: Path, name: str) -> bool:
    """Return whether that owner's process still holds its lock."""
    return is_locked(_lock_file(folder, name))


def forget(folder: Path, name: str) -> None:
    """Remove the lock file of an owner that has ended."""
    with contextlib.suppress(FileNotFoundError):
        _lock_file(folder, name).unlink()


def _lock_file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.lock"
