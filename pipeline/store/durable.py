"""What outlives a power cut: a file and the folders that name it, down on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sync(path: Path) -> None:
    """A file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path, paths: Iterable[str]) -> None:
    """These files, and every folder from each of them up to this one."""
    files = [folder / path for path in paths]
    above = {each for file in files for each in file.parents if each.is_relative_to(folder)}
    for each in (*files, *sorted(above, reverse=True)):
        sync(each)
