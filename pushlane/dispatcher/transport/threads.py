"""Knows whether this process may have a client with threads, which need Python's lock often.

What is embedded in somebody's program changes nothing of that program by itself.
"""

from __future__ import annotations

from threading import Event

_in_use = Event()


def note_threads() -> None:
    """Note that there is such a client, or will be when it is needed."""
    _in_use.set()


def has_threads() -> bool:
    """Tell whether one was noted."""
    return _in_use.is_set()
