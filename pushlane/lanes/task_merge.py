"""The rule by which one of several stored values of a task stands, whoever wrote them.

Two servers of Redis may each take changes of a task for a while, without the other's. A cancelled
value stands over any other, so that nothing cancelled is sent; else the higher version does, and of
equal ones the later in the journal.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from pushlane.core.task import State
from pushlane.model.task_bytes import decode, encode, glimpse


class Precedence(NamedTuple):
    """What one value has against another."""

    is_cancelled: bool = False
    version: int = -1


class Merged(NamedTuple):
    """What values of one task come to, in the order of the journal.

    `body` is the one that stands, as it was written: empty when the task was removed, or there was
    none. `last` is the latest, `top` the highest version of those since the last removal.
    """

    body: bytes = b""
    rank: Precedence = Precedence()
    last: bytes = b""
    top: int = -1

    def then(self, later: bytes) -> Merged:
        """Return what comes of it with a later value; an empty one removes the task."""
        return merged(later).behind(self) if later else Merged()

    def behind(self, earlier: Merged) -> Merged:
        """Return what these values come to behind earlier ones."""
        body, rank = self[:2] if self.rank >= earlier.rank else earlier[:2]
        return Merged(body, rank, self.last, max(earlier.top, self.top))

    def standing(self, task_id: str) -> bytes:
        """Return the value to keep: what was cancelled as the newest version of all.

        Whoever knows the task under a higher version takes no notice of an older one.

        Raises:
            UnknownFormat: only a newer version of pushlane could write it so.
        """
        if not self.rank.is_cancelled or self.rank.version >= self.top:
            return self.body
        return encode(replace(decode(task_id, self.body), version=self.top + 1))


def merged(body: bytes) -> Merged:
    """Return what a single value comes to; nothing when it is empty."""
    if not body:
        return Merged()
    found = glimpse(body)
    rank = Precedence(found.state == State.CANCELLED, found.version)
    return Merged(body, rank, body, found.version)
