"""The presence port: which processes are alive, by their own word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pushlane.model.presence import Process


class Presence(Protocol):
    """Lists live processes: each announces itself again before its time is over, or leaves."""

    async def announce(self, process: Process, ttl_s: float) -> None:
        """Show this process, with all that it tells of itself, for `ttl_s` from now on."""

    async def list(self) -> list[Process]:
        """Return the processes whose time is not over, in the order of their starts."""

    async def newer(self) -> Sequence[str]:
        """Name the live processes of a newer version than ours, or that this one cannot read."""

    async def leave(self, process_id: str) -> None:
        """Show this process no more. Harmless when it was not there."""
