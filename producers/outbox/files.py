"""Writes at a place in an open file."""

from __future__ import annotations

import os


def write_all(handle: int, content: bytes, offset: int) -> None:
    """All of it, or OSError."""
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
