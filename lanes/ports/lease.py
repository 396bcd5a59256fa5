"""The lease port: one holder at a time for each name."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Fence(NamedTuple):
    """The right of a leader to change something: its lease's name, and the number it was given."""

    lease: str
    number: int


class Lease(Protocol):
    """One holder at a time for each name."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> int | None:
        """Return a fencing number, higher than any before it; None while another holds the name.

        The holder itself gets the same number again, and its time starts anew.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let go of the name, if this holder still has it."""

    async def is_held(self, name: str) -> bool:
        """Return whether anybody holds the name now."""
