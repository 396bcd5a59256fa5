"""What the receiving end's log says about a row of faults: lost, twice, how long until it went on.

Pure accounting over arrivals; it knows nothing of processes or brokers. Only a push that the
receiving end has kept counts as delivered: one that it refused or left without an answer does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

NOT_COUNTED_S = 0.05

Push = tuple[str, int]


class Arrival(NamedTuple):
    """One request at the receiving end, and what it did with it. `at_s` is Unix time in seconds."""

    task: str
    seq: int
    attempt: int
    answer: str
    at_s: float

    @property
    def is_kept(self) -> bool:
        return self.answer in ("kept", "cut", "held")


class Tally:
    """Counts arrivals as they come. `arrivals` counts requests, whatever became of them.

    `last_of` is when the last of each task came (Unix seconds). `closest_s` is the least time
    between two of them since `watch` was called.
    """

    def __init__(self) -> None:
        self.kept: set[Push] = set()
        self.duplicates = 0
        self.arrivals = 0
        self.answers: dict[str, int] = {}
        self.busiest_window = 0
        self.first_s = 0.0
        self.last_new_s = 0.0
        self.last_of: dict[str, float] = {}
        self._marked_s = float("inf")
        self.first_since_mark_s: float | None = None
        self._window: deque[float] = deque()
        self.watch()

    def watch(self) -> None:
        """From now on `closest_s` counts."""
        self.closest_s = float("inf")
        self._before_s = -float("inf")

    def mark(self, at_s: float) -> None:
        """From now on `first_since_mark_s` is when the first new push came after `at_s`."""
        self._marked_s = at_s
        self.first_since_mark_s = None

    def add(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self.arrivals += 1
            self.answers[arrival.answer] = self.answers.get(arrival.answer, 0) + 1
            self.closest_s = min(self.closest_s, arrival.at_s - self._before_s)
            self._before_s = arrival.at_s
            self.last_of[arrival.task] = arrival.at_s
            if arrival.is_kept:
                self._keep(arrival)

    def _keep(self, arrival: Arrival) -> None:
        push = (arrival.task, arrival.seq)
        if push in self.kept:
            self.duplicates += 1
        else:
            self.kept.add(push)
            self.first_s = self.first_s or arrival.at_s
            self.last_new_s = arrival.at_s
            if self.first_since_mark_s is None and arrival.at_s > self._marked_s:
                self.first_since_mark_s = arrival.at_s
        self._slide(arrival.at_s)

    def _slide(self, at_s: float) -> None:
        window = self._window
        window.append(at_s)
        while window[0] < at_s - NOT_COUNTED_S:
            window.popleft()
        self.busiest_window = max(self.busiest_window, len(window))

    def lost(self, totals: dict[str, int]) -> list[Push]:
        """The pushes of these tasks (seqs from 1) that were never kept."""
        return [
            (task, seq)
            for task, total in totals.items()
            for seq in range(1, total + 1)
            if (task, seq) not in self.kept
        ]


class Bound(NamedTuple):
    """The most that a row may lose and repeat."""

    lost: int
    duplicates: int


class Row(NamedTuple):
    """One line of the fault table.

    `recovery_s` is the worst, infinite when it never went on; it is to be at most `within_s`.
    `buried` pushes are on the dead-letter lane, `unfinished` tasks have not ended, and `deaths` are
    dispatchers that ended by themselves, or badly when they were told to stop. `broken` is what a
    fault itself saw broken.
    """

    fault: str
    mode: str
    broker: str
    runs: int
    pushes: int
    lost: int
    duplicates: int
    bound: Bound
    buried: int
    unfinished: int
    recovery_s: float
    rate_per_s: float
    deaths: int = 0
    broken: tuple[str, ...] = ()
    within_s: float = float("inf")

    @property
    def breaches(self) -> list[str]:
        """What it promised and did not keep, in words."""
        found = list(self.broken)
        if self.lost > self.bound.lost:
            found.append(f"lost {self.lost:,} of {self.pushes:,}, bound {self.bound.lost:,}")
        if self.lost > self.buried:
            found.append(
                f"lost {self.lost:,}, of which {self.buried:,} are on the dead-letter lane"
            )
        if self.duplicates > self.bound.duplicates:
            found.append(f"repeated {self.duplicates:,}, bound {self.bound.duplicates:,}")
        if self.unfinished:
            found.append(f"{self.unfinished} tasks did not end")
        if self.deaths:
            found.append(f"{self.deaths} dispatchers ended by themselves, or badly")
        if self.recovery_s == float("inf"):
            found.append("did not go on after a fault")
        elif self.recovery_s > self.within_s:
            found.append(f"on again after {self.recovery_s:.1f} s, bound {self.within_s:g} s")
        return found
