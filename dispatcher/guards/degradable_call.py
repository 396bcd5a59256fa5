"""What to do while the ledger is away: wait for it, or go on without, as the settings say."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.dispatcher.backoff import Backoff
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.errors import PushlaneError

log = logging.getLogger("pushlane.ledger")

R = TypeVar("R")


class DegradableCall:
    """Calls the ledger. `waits` is for how long it takes; else pushes go on and are counted."""

    def __init__(self, stats: Stats, *, waits: bool) -> None:
        self._stats = stats
        self._waits = waits
        self._backoff = Backoff(log, "the ledger")
        self._is_away = False

    async def ask(self, call: Callable[[], Awaitable[R]], pushes: int) -> R | None:
        """The ledger's answer; None when it is away and is not waited for."""
        while True:
            try:
                answer = await call()
            except PushlaneError as error:
                if not self._waits:
                    self._degrade(error, pushes)
                    return None
                await self._backoff.wait(error)
                continue
            self._backoff.reset()
            self._is_away = False
            return answer

    def _degrade(self, error: PushlaneError, pushes: int) -> None:
        self._stats.degraded += pushes
        if not self._is_away:
            log.warning(
                "delivering at least once, without the ledger: %s",
                error,
                extra={"action": "ledger_degraded"},
            )
        self._is_away = True
