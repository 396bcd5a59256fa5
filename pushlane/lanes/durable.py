"""Files that outlive a kill and a power cut: written whole beside their place, then named."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_BY_UMASK = 0o666


def write_durably(path: Path, content: bytes, mode: int = _BY_UMASK) -> None:
    """Replace the file as a whole: whatever happens, it has its old content or this one."""
    with _unfinished(path, content, mode) as unfinished:
        unfinished.replace(path)
    sync(path.parent)


def create_durably(path: Path, content: bytes, mode: int = _BY_UMASK) -> None:
    """Make the file, whole or not at all. Of several processes that make it, one succeeds.

    Raises:
        FileExistsError: it is there already; it is durable then too.
        FileNotFoundError: somebody took the unfinished file away.
    """
    with _unfinished(path, content, mode) as unfinished:
        try:
            os.link(unfinished, path)
        finally:  # another may have made it, and not synced it yet
            sync(path.parent)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path, paths: Iterable[str]) -> None:
    """Make these files durable, and every folder from each of them up to this one."""
    files = [folder / path for path in paths]
    above = {each for file in files for each in file.parents if each.is_relative_to(folder)}
    for each in (*files, *sorted(above, reverse=True)):
        sync(each)


@contextmanager
def _unfinished(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Write the content beside its place, synced, under a hidden name that nobody else has."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unfinished, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)
