"""Tells a live process from a dead one, whatever its pid has become.

An owner holds a lock on a file of its own as long as its process lives, frozen or not; the kernel
lets go of it when the process dies. Whether a live one works, `heartbeats` tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from pushlane.lanes.embedded.vendor_errors import translated

FOLDER = "owners"


class Owner:
    """This process' side: alive from `start()` to `end()`."""

    def __init__(self, folder: Path) -> None:
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._lock: int | None = None

    def start(self) -> None:
        with translated(self._folder):
            path = _lock_file(self._folder, self.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def end(self) -> None:
        if self._lock is not None:
            forget(self._folder, self.name)
            os.close(self._lock)
            self._lock = None


def is_alive(folder: Path, name: str) -> bool:
    """Whether that owner's process still holds its lock."""
    try:
        lock = os.open(_lock_file(folder, name), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def forget(folder: Path, name: str) -> None:
    """Take away the lock file of an owner that has ended."""
    with contextlib.suppress(FileNotFoundError):
        _lock_file(folder, name).unlink()


def _lock_file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.lock"
