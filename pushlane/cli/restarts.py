"""Says when a worker that has ended is started again, and when that is of no use any more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_FIRST_S = 1.0
_LONGEST_S = 60.0
_MOST_ENDS = 5
_WITHIN_S = 600.0


class Restarts:
    """The ends of one worker: each doubles the wait, ten minutes without one make it short again.

    The fifth within ten minutes is the last.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._ends_s: deque[float] = deque(maxlen=_MOST_ENDS)
        self._wait_s = 0.0

    def wait_s(self) -> float | None:
        """Note that the worker has ended now; return how long to wait, None to give up."""
        now_s = self._clock_s()
        well = not self._ends_s or now_s - self._ends_s[-1] > _WITHIN_S
        self._ends_s.append(now_s)
        if len(self._ends_s) == _MOST_ENDS and now_s - self._ends_s[0] <= _WITHIN_S:
            return None
        self._wait_s = _FIRST_S if well else min(_LONGEST_S, 2 * self._wait_s)
        return self._wait_s
