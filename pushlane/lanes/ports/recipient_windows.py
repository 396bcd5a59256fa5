"""The recipient windows port: dedupe, collapse and caps, per recipient and for a window of time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from pushlane.model.recipients import CapDay, Mark


class RecipientTurn(StrEnum):
    """The answer to a push that wants to go to its recipient."""

    GO = "go"
    """The push is the newest, and nothing else is on its way there."""

    BUSY = "busy"
    """The push is the newest, and an older one is on its way."""

    OVER = "over"
    """There is a newer push."""


class RecipientWindows(Protocol):
    """Remembers by a hash, for a window of time, what was sent to a recipient or waits for it.

    Calls are batches, atomic for each mark, and harmless when repeated. Marks of one call may have
    the same key, but not the same token too.
    """

    async def first(self, marks: Sequence[Mark]) -> Sequence[bool]:
        """Return for each mark whether it is the first with its key; asked again, it still is."""

    async def announce(self, marks: Sequence[Mark]) -> None:
        """Record that pushes with these tokens exist: the highest of a key is the newest."""

    async def enter(
        self, marks: Sequence[Mark], owner: str, ttl_s: float
    ) -> Sequence[RecipientTurn]:
        """Announce the marks, and let the newest of each key go, one at a time.

        The next may enter when that one has left, or after `ttl_s`. The owner of a turn gets the
        same answer again.
        """

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        """Record that these are no longer on their way, as far as they were this owner's."""

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> Collection[str]:
        """Count pushes to recipients on a day, each once; return those for which there is no room.

        `keys` has for each push its token, without spaces and colons, and the key of its recipient.
        A push has room when fewer than the cap allows were counted with its key on that day, of its
        level and in all. One that was counted has room whenever it is asked for again. What was
        counted is forgotten when the day is over everywhere.
        """

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        """Give back the room of pushes that were counted."""
