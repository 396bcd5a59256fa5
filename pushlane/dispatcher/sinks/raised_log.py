"""Logs what a user's own function raises: the first at once, then one line a minute for each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pushlane.util.texts import Raised

log = logging.getLogger("pushlane.processor")

_EVERY_S = 60.0
_MOST = 50
_OTHERS = Raised("other errors")


class RaisedLog:
    """Counts errors by type and place; of more than 50 the rest is counted together."""

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now_s = now_s
        self._told_s: dict[Raised, float] = {}
        self._untold: dict[Raised, int] = {}

    def hear(self, error: Raised) -> None:
        """Count an error, and log it when it is new or a minute has passed since its last line."""
        if error not in self._told_s and len(self._told_s) >= _MOST:
            error = _OTHERS
        now_s, told_s = self._now_s(), self._told_s.get(error)
        if told_s is None:
            self._told_s[error] = now_s
            self._tell(error, "")
            return
        self._untold[error] = self._untold.get(error, 0) + 1
        if now_s - told_s >= _EVERY_S:
            self._tell_count(error, now_s)

    def tell_rest(self) -> None:
        """Log what was counted since the last line of each error."""
        for error in list(self._untold):
            self._tell_count(error, self._now_s())

    def _tell_count(self, error: Raised, now_s: float) -> None:
        count = self._untold.pop(error)
        times = "once more" if count == 1 else f"{count:,} more times"
        self._tell(error, f"; {times} in the last {max(1.0, now_s - self._told_s[error]):.0f} s")
        self._told_s[error] = now_s

    def _tell(self, error: Raised, count: str) -> None:
        log.warning(
            "processor %s raised %s%s",
            self._name,
            error.told,
            count,
            extra={"action": "processor_raised"},
        )
