"""Turns errors of SQLite and the file system into errors that say what to do.

The only place that knows SQLite's error codes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pushlane.core.errors import PushlaneError, StorageFull, Unreachable

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process holds it; find one that is stopped and let it go on",
    sqlite3.SQLITE_CANTOPEN: "check that the folder can be written, or use another --data-dir",
    sqlite3.SQLITE_READONLY: "make the folder and its files writable, or use another --data-dir",
    sqlite3.SQLITE_NOTADB: "this is not a pushlane store; use another --data-dir",
    sqlite3.SQLITE_IOERR: "check the disk, or use another --data-dir",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it, or use another --data-dir",
}


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code; the extended one says more than any advice depends on."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Raise StorageFull or Unreachable, naming the folder, for errors of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, folder) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Unreachable(
            f"the store in {folder} cannot be opened: {reason}; "
            "check the path and its permissions, or use another --data-dir"
        ) from error


def translate(error: sqlite3.Error, folder: Path) -> PushlaneError:
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(
            f"the disk that holds {folder} is full: what it has is safe, nothing more fits; free "
            "some space, and it goes on"
        )
    if advice := _ADVICE.get(code):
        return Unreachable(f"the store in {folder} does not answer ({error}); {advice}")
    return PushlaneError(f"the store in {folder} refused a statement ({error}); please report this")
