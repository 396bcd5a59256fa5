"""What the receiving end's log says about a row of faults: lost, twice, how long until it went on.

Pure accounting over arrivals; it knows nothing of processes or brokers. Only a push that the
receiving end has kept counts as delivered: one that it refused or left without an answer does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NOT_COUNTED_S = 0.05
_READ_LATE_S = 0.5  # what came before a kill may be read after it

TOLD = "told"

Push = tuple[str, int]


class Arrival(NamedTuple):
    """One request at the receiving end, and what it did with it.

    It came at `at_s` (Unix time in seconds). With the answer `TOLD` it is no request: what had been
    kept was answered then.
    """

    task: str
    seq: int
    attempt: int
    answer: str
    at_s: float

    @property
    def is_kept(self) -> bool:
        return self.answer in ("kept", "cut", "held")


class Repeat(NamedTuple):
    """A push that was kept again: when it first came, was answered, and came now.

    `answered_s` is infinite if the copy before had no answer yet.
    What was refused before a fault may be there twice after it: its retry was published, and that
    was not counted yet.
    """

    first_s: float
    answered_s: float
    at_s: float

    def age_s(self, struck_s: Sequence[float]) -> float:
        """Return how long before a fault it had been answered: 0 for one in flight at the fault.

        It is infinite when no fault came between the two arrivals.
        """
        ages = [
            max(0.0, at_s - self.answered_s)
            for at_s in struck_s
            if self.first_s - _READ_LATE_S <= at_s <= self.at_s
        ]
        return min(ages, default=float("inf"))


class Tally:
    """Counts arrivals as they come. `arrivals` counts requests, whatever became of them.

    `repeats` are those that were kept again, `sent_again` counts requests for what had been kept,
    or refused as failed, before.
    `last_of` is when the last of each task came (Unix seconds). `closest_s` is the least time
    between two of them since `watch` was called.
    """

    def __init__(self) -> None:
        self.kept: set[Push] = set()
        self.repeats: list[Repeat] = []
        self.sent_again = 0
        self._taken: set[Push] = set()
        self._first_s: dict[Push, float] = {}
        self._told_s: dict[Push, float] = {}
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

    @property
    def duplicates(self) -> int:
        return len(self.repeats)

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
            if arrival.answer == TOLD:
                self._told_s[arrival.task, arrival.seq] = arrival.at_s
                continue
            self.arrivals += 1
            self.answers[arrival.answer] = self.answers.get(arrival.answer, 0) + 1
            self.closest_s = min(self.closest_s, arrival.at_s - self._before_s)
            self._before_s = arrival.at_s
            self.last_of[arrival.task] = arrival.at_s
            self._first_s.setdefault((arrival.task, arrival.seq), arrival.at_s)
            if arrival.is_kept or arrival.answer == "500":
                self._take(arrival)
            if arrival.is_kept:
                self._keep(arrival)

    def _take(self, arrival: Arrival) -> None:
        push = (arrival.task, arrival.seq)
        self.sent_again += push in self._taken
        self._taken.add(push)

    def _keep(self, arrival: Arrival) -> None:
        push = (arrival.task, arrival.seq)
        answered_s = self._told_s.pop(push, float("inf"))
        if push in self.kept:
            self.repeats.append(Repeat(self._first_s[push], answered_s, arrival.at_s))
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
    fault itself saw broken. `oldest_s` is how long before a fault had been answered what came again
    after it, `unprompted` what came again without one, `sent_again` how many requests were for what
    must not be.
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
    oldest_s: float = 0.0
    unprompted: int = 0
    sent_again: int = 0

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
        if self.unprompted:
            found.append(f"repeated {self.unprompted:,} with no fault between")
        if self.sent_again:
            found.append(f"sent {self.sent_again:,} again, of those that may have arrived")
        if self.unfinished:
            found.append(f"{self.unfinished} tasks did not end")
        if self.deaths:
            found.append(f"{self.deaths} dispatchers ended by themselves, or badly")
        if self.recovery_s == float("inf"):
            found.append("did not go on after a fault")
        elif self.recovery_s > self.within_s:
            found.append(f"on again after {self.recovery_s:.1f} s, bound {self.within_s:g} s")
        return found
