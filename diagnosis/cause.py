"""One thing that a task waits for, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Cause:
    """One thing that a task waits for. `name` is for programs, `since_ms` 0 where not known."""

    name: str
    detail: str
    do: str = ""
    since_ms: int = 0
    final: bool = False


def clock(at_ms: int) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
