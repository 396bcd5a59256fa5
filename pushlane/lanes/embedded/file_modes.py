"""Keeps the store's files to the user who runs pushlane, and tells what is open to others.

The folders of receipts and of owners are made for that user alone; this is about the database.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from contextlib import suppress
from os import stat_result
from pathlib import Path
from typing import NamedTuple

from pushlane.lanes.durable import create_durably
from pushlane.util.checks import Remark

_PRIVATE = 0o600
_GROUPS = 0o070
_OTHERS = 0o007
_WRITABLE = 0o022

log = logging.getLogger("pushlane.embedded")


class StoreModes(NamedTuple):
    """The permissions of a store's folder, and of those of its files that are there, by name."""

    folder: int
    files: dict[str, int]


def keep_private(path: Path) -> None:
    """Make the database's file when it is not there, and close it and its logs to others.

    What a folder shares with its group stays shared. What stays open, and what cannot be changed,
    is said in the log. An existing file is not opened: to close it again would release what this
    process's other connections have locked (https://sqlite.org/howtocorrupt.html, 2.2).

    Raises:
        OSError: the file cannot be made.
    """
    if not path.exists():
        with suppress(FileExistsError):
            create_durably(path, b"", _PRIVATE)
    for file in _files(path):
        with suppress(OSError):  # it is gone, or not ours: then the mode that it has is told
            _close(file)
    for remark in openings(path.parent, modes_of(path)):
        if remark.severity == "warning":
            text = f"{remark.what}; {remark.mend}"
            log.warning("%s", text, extra={"action": "store_open"})


def modes_of(path: Path) -> StoreModes:
    """Return the modes of a store by the path of its database."""
    files = {}
    for file in _files(path):
        with suppress(FileNotFoundError):
            files[file.name] = _mode(file.stat())
    return StoreModes(_mode(path.parent.stat()), files)


def openings(folder: Path, modes: StoreModes) -> Iterator[Remark]:
    """Remark on what others than the owner can do with the store."""
    found = {name: mode for name, mode in modes.files.items() if mode & (_GROUPS | _OTHERS)}
    if found:
        is_for_all = any(mode & _OTHERS for mode in found.values())
        who = "all users of this machine" if is_for_all else "its group"
        what = f"{', '.join(found)} in {folder}: open to {who}, with all that pushes hold"
        files = " ".join(str(folder / name) for name in found)
        yield Remark("warning", what, f"as their owner: chmod 600 {files}, unless it is on purpose")
    if modes.folder & _WRITABLE and not modes.folder & stat.S_ISVTX:
        who = "all users of this machine" if modes.folder & _OTHERS & _WRITABLE else "its group"
        what = f"the folder {folder} can be written to by {who}: they can replace the store"
        yield Remark("warning", what, f"chmod go-w {folder}, unless it is on purpose")
    elif modes.folder & (_GROUPS | _OTHERS):
        what = f"the folder {folder} is open to others: they see the names and sizes of its files"
        yield Remark("note", what, f"chmod 700 {folder} (systemd: StateDirectoryMode=0700)")


def _close(file: Path) -> None:
    """Take a file's permissions from others, and from its group unless the folder is shared."""
    found = file.stat()
    mode, kept = _mode(found), _PRIVATE
    if _is_shared(file.parent.stat(), found):
        kept |= _GROUPS
    if mode & ~kept:
        file.chmod(mode & kept)


def _is_shared(folder: stat_result, file: stat_result) -> bool:
    """Return whether a folder is shared with its group on purpose, and a file in it with that."""
    return folder.st_gid == file.st_gid and bool(folder.st_mode & (stat.S_ISGID | stat.S_IWGRP))


def _files(path: Path) -> list[Path]:
    """Return the database, and the files that SQLite keeps beside it: they have its mode."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))]


def _mode(found: stat_result) -> int:
    return stat.S_IMODE(found.st_mode)
