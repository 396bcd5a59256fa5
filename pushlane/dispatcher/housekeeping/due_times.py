"""Keeps times, and finds the next ones that are due without a look at the others."""

from __future__ import annotations

import heapq

_SPARE = 1_024


class DueTimes:
    """Names, each with the Unix ms at which it is due."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # with what was put elsewhere, or away, since

    def __len__(self) -> int:
        return len(self._times)

    def put(self, name: str, at_ms: int) -> None:
        """It is due then, whenever it was due before."""
        if self._times.get(name) != at_ms:
            self._times[name] = at_ms
            heapq.heappush(self._heap, (at_ms, name))

    def discard(self, name: str) -> None:
        self._times.pop(name, None)
        if len(self._heap) > 2 * len(self._times) + _SPARE:
            self._heap = [(at_ms, name) for name, at_ms in self._times.items()]
            heapq.heapify(self._heap)

    def take(self, now_ms: int, most: int) -> list[str]:
        """At most so many of those that are due, the longest due first; they are put away."""
        taken: list[str] = []
        while len(taken) < most and (soonest_ms := self.soonest_ms()) is not None:
            if soonest_ms > now_ms:
                break
            _, name = heapq.heappop(self._heap)
            del self._times[name]
            taken.append(name)
        return taken

    def soonest_ms(self) -> int | None:
        while self._heap:
            at_ms, name = self._heap[0]
            if self._times.get(name) == at_ms:
                return at_ms
            heapq.heappop(self._heap)
        return None
