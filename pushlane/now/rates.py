"""How fast tasks go, by what the registry counts from look to look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from pushlane.core.task import Progress

MOST_AT_ONCE = 1_000
"""So many tasks are counted at each look, of more the others in turns."""

_LOOKS = 6
_LEAST_S = 0.5


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The newest counts of a task, and how many of its pushes ended a second.

    The rate is over the last `over_s` seconds; while it is not known yet, `per_s` is None and
    `over_s` is 0.
    """

    progress: Progress
    finished: int
    per_s: float | None
    over_s: float


class Rates:
    """What is counted of tasks at the last looks. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.latest: dict[str, Counted] = {}
        self._looks: dict[str, deque[tuple[float, int]]] = {}
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
            task_id, finished = one.task_id, one.finished
            if (looks := self._looks.get(task_id)) is None:
                looks = self._looks[task_id] = deque(maxlen=_LOOKS)
            elif finished and not looks[-1][1]:
                begun[task_id] = at_s - looks[-1][0]
            looks.append((at_s, finished))
            from_s, before = looks[0]
            if (over_s := at_s - from_s) >= _LEAST_S:
                per_s = max(0, finished - before) / over_s
                self.latest[task_id] = Counted(one, finished, per_s, over_s)
            else:
                self.latest[task_id] = Counted(one, finished, None, 0.0)
        return begun

    def keep_only(self, ids: Mapping[str, object]) -> None:
        """Forget all other tasks."""
        for task_id in [one for one in self._looks if one not in ids]:
            del self._looks[task_id], self.latest[task_id]
