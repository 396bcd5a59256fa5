"""The lease port: one holder at a time for each name."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Fence(NamedTuple):
    """The right of a leader to change something: its lease's name, and the number it was given."""

    lease: str
    number: int


class Grant(NamedTuple):
    """A lease that is held: its fencing number, and the store's Unix time in ms when it was given.

    The time is that of the clock by which the store counts the lease's time to live.
    """

    number: int
    at_ms: int


class Lease(Protocol):
    """One holder at a time for each name."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        """Take the name; None while another holds it. Its number is higher than any before it.

        The holder itself gets the same number again, and its time starts anew.
        """

    async def release(self, name: str, holder: str) -> None:
        """Let go of the name, if this holder still has it."""

    async def is_held(self, name: str) -> bool:
        """Return whether anybody holds the name now."""
