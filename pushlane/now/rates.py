"""How fast tasks go, by what the registry counts from look to look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushlane.core.task import Progress

MOST_AT_ONCE = 1_000
"""So many tasks are counted at each look, of more the others in turns."""

_LOOKS = 6
_LEAST_S = 0.5


class Rate(NamedTuple):
    """Pushes a second, counted over so many seconds."""

    per_s: float
    over_s: float


class Rates:
    """What is counted of tasks at the last looks. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.latest: dict[str, Progress] = {}
        self._counted: dict[str, deque[tuple[float, int]]] = {}
        self._next = 0

    def to_count(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of these tasks to count now: all, or of very many the new and some others.

        These are the next in turn.
        """
        if len(ids) <= MOST_AT_ONCE:
            return ids
        new = [task_id for task_id in ids if task_id not in self.latest]
        start = self._next % len(ids)
        self._next = start + MOST_AT_ONCE
        some = [*ids[start : self._next], *ids[: max(0, self._next - len(ids))]]
        return [*dict.fromkeys([*new, *some])]

    def take(self, found: Sequence[Progress], at_s: float) -> dict[str, float]:
        """Note what was counted at a time.

        Return the tasks of which the first push has ended since they were counted before, and how
        many seconds ago that was.
        """
        begun: dict[str, float] = {}
        for one in found:
            self.latest[one.task_id] = one
            counted = self._counted.setdefault(one.task_id, deque(maxlen=_LOOKS))
            if one.finished and counted and not counted[-1][1]:
                begun[one.task_id] = at_s - counted[-1][0]
            counted.append((at_s, one.finished))
        return begun

    def keep_only(self, ids: Mapping[str, object]) -> None:
        """Forget all other tasks."""
        for task_id in [one for one in self._counted if one not in ids]:
            del self._counted[task_id], self.latest[task_id]

    def of(self, task_id: str) -> Rate | None:
        """Return how many pushes of a task ended at the last looks; None if not known yet."""
        counted = self._counted.get(task_id)
        if not counted:
            return None
        (from_s, before), (to_s, after) = counted[0], counted[-1]
        passed_s = to_s - from_s
        return Rate(max(0, after - before) / passed_s, passed_s) if passed_s >= _LEAST_S else None
