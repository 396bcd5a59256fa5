"""Waiting for a service that is away: longer each time, said once when it goes and comes back."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from lanes.errors import TaskConflict, Unreachable

_FIRST_S = 0.05
_LONGEST_S = 2.0


class Backoff:
    """Counts failures in a row of one service, and waits accordingly."""

    def __init__(self, log: logging.Logger, service: str) -> None:
        self._log = log
        self._service = service
        self._failures = 0

    async def wait(self, error: Exception) -> None:
        if self._failures == 0:
            self._log.warning(
                "waiting for %s: %s", self._service, error, extra={"action": "service_lost"}
            )
        longest = min(_LONGEST_S, _FIRST_S * 2**self._failures)
        self._failures = min(self._failures + 1, 30)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        if self._failures:
            self._log.info("%s is back", self._service, extra={"action": "service_back"})
        self._failures = 0


async def whenever(
    due: asyncio.Event, work: Callable[[], Awaitable[None]], backoff: Backoff
) -> None:
    """Do the work each time it is due, for ever, and again after a wait while the service is away.

    The event is cleared before the work begins, so what becomes due meanwhile is not missed.
    """
    while True:
        await due.wait()
        due.clear()
        try:
            await work()
        except (Unreachable, TaskConflict) as error:
            due.set()
            await backoff.wait(error)
        else:
            backoff.reset()
