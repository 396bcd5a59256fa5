"""A folder for files that were uploaded, of this process alone: it goes with the process.

What a killed process has left goes when the next one makes its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from stat import S_ISDIR
from tempfile import gettempdir, mkdtemp

_PREFIX = "pushlane-submit-"
_LOCK = "lock"


class UploadFolder:
    """The folder, among the temporary files of the system (TMPDIR). Raises OSError without any."""

    def __init__(self) -> None:
        remove_left(Path(gettempdir()))
        self.path = Path(mkdtemp(prefix=_PREFIX))
        new = self.path / f"{_LOCK}.new"  # `remove_left` of others sees the lock once it is held
        self._lock = os.open(new, os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK)

    @property
    def is_there(self) -> bool:
        """False when somebody has removed it, as cleaners of temporary files do."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return S_ISDIR(found.st_mode) and found.st_uid == os.getuid()

    def close(self) -> None:
        """Remove it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_left(within: Path) -> None:
    """Remove our folders there whose processes are gone: nobody holds their lock."""
    for folder in within.glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
