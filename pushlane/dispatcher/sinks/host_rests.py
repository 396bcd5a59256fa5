"""Lets a host rest that fails, so that pushes to it do not hold the slots that others need.

Who names hosts may name one that never answers. After three failures in a row, or where it asks for
a wait, a host rests: 1 s, twice as long after each further failure, a minute at most. Then one push
tries it, until one gets through. It is not kept which hosts are well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from pushlane.core.push import Arrival, Kind, Outcome, Scope

_FAILURES = 3
_REST_S = 1.0
_LONGEST_REST_S = 60.0
_MOST_KNOWN = 10_000


class _Failing:
    __slots__ = ("is_tried", "rest_s", "row", "until_s")

    def __init__(self) -> None:
        self.row = 0
        self.rest_s = 0.0
        self.until_s = 0.0
        self.is_tried = False


class HostRests:
    """Knows the hosts that failed lately. Each push that may go is reported to `landed`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failing: dict[Hashable, _Failing] = {}

    def wait_s(self, host: Hashable) -> float | None:
        """Return how long a push to the host has to wait, None if it goes now."""
        failing = self._failing.get(host)
        if failing is None or not failing.rest_s:
            return None
        left_s = failing.until_s - self._now()
        if left_s > 0 or failing.is_tried:
            return max(left_s, _REST_S)
        failing.is_tried = True
        return None

    def landed(self, host: Hashable, outcome: Outcome | None) -> None:
        """Hear of a push that went; None if it was cancelled."""
        if outcome is not None and _is_failure(outcome):
            self._fail(host, outcome.after_s or 0.0)
        elif outcome is not None:
            self._failing.pop(host, None)
        elif failing := self._failing.get(host):
            failing.is_tried = False

    def _fail(self, host: Hashable, asked_s: float) -> None:
        failing = self._failing.pop(host, None) or _Failing()
        self._failing[host] = failing
        if len(self._failing) > _MOST_KNOWN:
            del self._failing[next(iter(self._failing))]
        now_s = self._now()
        if failing.rest_s and now_s < failing.until_s:
            return  # it went before the host rested
        failing.row += 1
        failing.is_tried = False
        if failing.row >= _FAILURES or asked_s:
            failing.rest_s = min(max(2 * failing.rest_s, _REST_S), _LONGEST_REST_S)
            failing.until_s = now_s + min(max(failing.rest_s, asked_s), _LONGEST_REST_S)


def _is_failure(outcome: Outcome) -> bool:
    """Tell whether the host cannot take pushes, or holds their slots until the time is over."""
    if outcome.kind is Kind.DELIVERED:
        return False
    is_away = outcome.kind is Kind.RETRY and outcome.scope is Scope.HOST
    return is_away or outcome.arrival is Arrival.UNKNOWN
