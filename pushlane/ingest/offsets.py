"""Tells how far a partition is done, whatever order its records end in."""

from __future__ import annotations

from heapq import heappop, heappush


class Offsets:
    """The records of one partition that are in progress, and those that are done.

    It knows the records that came alone, so offsets may have holes. A record that is read again
    after a seek is in progress again, and lowers what may be committed.
    """

    def __init__(self, first: int) -> None:
        self._begun: list[int] = []
        self._done: list[int] = []
        self._next = first

    @property
    def in_progress(self) -> int:
        """The number of records that have begun, and may not be done."""
        return len(self._begun)

    def begin(self, offset: int) -> None:
        """Note a record that came."""
        heappush(self._begun, offset)

    def end(self, offset: int) -> None:
        """Note a record that is done: nothing of it can be lost any more."""
        heappush(self._done, offset)

    def committable(self) -> int:
        """Return the offset up to which all is done: the lowest in progress, or behind the last."""
        begun, done = self._begun, self._done
        while begun and done:
            if done[0] > begun[0]:
                break
            if heappop(done) == begun[0]:
                self._next = heappop(begun) + 1
            # else it is done and was not in progress: from before a replay
        return begun[0] if begun else self._next

    def empty(self, first: int) -> None:
        """Forget all of it: the partition is somebody else's now, or is read from elsewhere."""
        self._begun.clear()
        self._done.clear()
        self._next = first
