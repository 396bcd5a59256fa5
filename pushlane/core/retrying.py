"""Waiting for a service that is away: longer each time, and said once when it goes and comes back.

Each wait is cut by chance, so that many processes do not come back at once. Every side task of a
dispatcher works through a `Backoff`: what a service answers, or does not, is a `PushlaneError` and
is tried again for ever, and any other exception is a fault of ours and ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.core.errors import PushlaneError

_FIRST_S = 0.05
_LONGEST_S = 2.0
_MOST_DOUBLED = 30
_MOST_SAID = 10

T = TypeVar("T")


class Retry:
    """Counts failures in a row of one service, and waits accordingly: at most `longest_s`.

    `lost` is told the first error in a row, `back` that the service works again.
    """

    def __init__(
        self,
        lost: Callable[[Exception], None],
        back: Callable[[], None],
        *,
        first_s: float,
        longest_s: float,
    ) -> None:
        self._lost = lost
        self._back = back
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    async def until_done(
        self,
        work: Callable[[], Awaitable[T]],
        sleep: Callable[[float], Awaitable[None]] | None = None,
        is_tried_again: Callable[[PushlaneError], bool] = lambda error: True,
    ) -> T:
        """Try the work until the service lets it through; returns its result."""
        while True:
            try:
                result = await work()
            except PushlaneError as error:
                if not is_tried_again(error):
                    raise
                await (sleep or asyncio.sleep)(self.failed(error))
                continue
            self.reset()
            return result

    async def wait(self, error: Exception) -> None:
        await asyncio.sleep(self.failed(error))

    def failed(self, error: Exception) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        if self._failures == 0:
            self._lost(error)
        longest_s: float = min(self._longest_s, self._first_s * 2**self._failures)
        self._failures = min(self._failures + 1, _MOST_DOUBLED)
        return longest_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        if self._failures:
            self._back()
        self._failures = 0


class Backoff(Retry):
    """A `Retry` that says in the log when the service goes and comes back."""

    def __init__(self, log: logging.Logger, service: str) -> None:
        super().__init__(self._log_lost, self._log_back, first_s=_FIRST_S, longest_s=_LONGEST_S)
        self._log = log
        self._service = service

    def _log_lost(self, error: Exception) -> None:
        self._log.warning(
            "waiting for %s: %s", self._service, error, extra={"action": "service_lost"}
        )

    def _log_back(self) -> None:
        self._log.info("%s is back", self._service, extra={"action": "service_back"})


class Backoffs:
    """A `Backoff` for each of many lanes: one that fails makes no other wait.

    Only the first ten that fail at a time are named in the log.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._silent = logging.Logger("silent", logging.CRITICAL + 1)
        self._failing: dict[str, Backoff] = {}

    async def wait(self, lane: str, error: Exception) -> None:
        await asyncio.sleep(self.failed(lane, error))

    def failed(self, lane: str, error: Exception) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        backoff = self._failing.get(lane)
        if backoff is None:
            log = self._log if len(self._failing) < _MOST_SAID else self._silent
            backoff = self._failing[lane] = Backoff(log, f"lane {lane}")
        return backoff.failed(error)

    def forget(self, lane: str) -> None:
        """Forget a lane that is gone."""
        self._failing.pop(lane, None)

    def reset(self, lane: str) -> None:
        if (backoff := self._failing.pop(lane, None)) is not None:
            backoff.reset()
