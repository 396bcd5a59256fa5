"""Locks on files: held by one process at a time, and released by the kernel when it dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_RETRY_S = 0.002


class FileLock:
    """A lock on a file, which is made when it is not there. Not held before `acquire`.

    Raises OSError when the file cannot be opened.
    """

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, mode)

    @property
    def is_removed(self) -> bool:
        """True when somebody removed the file: others lock another one by its name then."""
        return os.fstat(self._file).st_nlink == 0

    def acquire(self, timeout_s: float = 0.0) -> bool:
        """Take the lock. False when another holds it for that long."""
        deadline_s = time.monotonic() + timeout_s
        while not self._try():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_RETRY_S)
        return True

    def wait(self) -> None:
        """Take the lock, however long another holds it."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock for good; the file stays."""
        os.close(self._file)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_locked(path: Path) -> bool:
    """Return whether a live process holds the lock on this file. Makes no file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
