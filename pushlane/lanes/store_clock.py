"""The clock by which a leader destroys something: that of the store, watched for steps.

A leader hears the store's time with each grant of its lease; in between the clock goes on by this
machine's monotonic one, so a step of its wall clock changes nothing. Where the store's clock and
this machine's differ by over a minute, or the store's has stepped, nobody can tell which is right:
then whatever destroys something waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pushlane.model import task_changes

_MOST_APART_S = 60.0
_WAIT_AFTER_STEP_S = 600.0


class StoreClock:
    """Tells the store's time.

    `clock_s` is a monotonic clock, `wall_ms` this machine's in Unix milliseconds.
    """

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        self._clock_s = clock_s
        self._wall_ms = wall_ms
        self._ahead_s: float | None = None  # of the monotonic clock, as last heard
        self._steady_s = 0.0  # the same when it had not stepped yet
        self._step_s = 0.0
        self._waits_until_s = 0.0
        self.apart_s = 0.0
        """By how many seconds the store's clock is ahead of this machine's, as last heard."""

    def heard(self, at_ms: int) -> None:
        """Hear the store's time in Unix milliseconds, as it was a moment ago.

        It may have taken long to be heard. Then the clock is behind rather than ahead, so that
        nothing is destroyed too early.
        """
        now_s = self._clock_s()
        self.apart_s = (at_ms - self._wall_ms()) / 1000
        ahead_s = at_ms / 1000 - now_s
        if self._ahead_s is None:
            self._steady_s = ahead_s
        elif abs(ahead_s - self._steady_s) > _MOST_APART_S:
            self._step_s = ahead_s - self._steady_s
            self._steady_s = ahead_s
            self._waits_until_s = now_s + _WAIT_AFTER_STEP_S
        self._ahead_s = ahead_s

    def now_ms(self) -> int:
        """Return the store's time in Unix milliseconds; this machine's before it was ever heard."""
        if self._ahead_s is None:
            return self._wall_ms()
        return round((self._clock_s() + self._ahead_s) * 1000)

    def doubt(self) -> str:
        """Say why nothing may be destroyed by this clock now; empty when something may."""
        if abs(self.apart_s) > _MOST_APART_S:
            side = "ahead of" if self.apart_s > 0 else "behind"
            return f"the store's clock is {abs(self.apart_s):,.0f} s {side} this machine's"
        if self._clock_s() < self._waits_until_s:
            side = "forward" if self._step_s > 0 else "back"
            return f"the clock stepped {side} by {abs(self._step_s):,.0f} s in the last 10 minutes"
        return ""


class SteadyClock:
    """Tells Unix milliseconds as they were at its making, and from then on by a monotonic clock.

    So a step of the wall clock does not change the order of what it told.
    """

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        self._clock_s = clock_s
        self._ahead_s = wall_ms() / 1000 - clock_s()

    def __call__(self) -> int:
        return round((self._clock_s() + self._ahead_s) * 1000)
