"""Waiting for a service that is away: longer each time, said once when it goes and comes back.

Every side task of a dispatcher does its work through here. What a service answers, or does not, is
a `PushlaneError` and is tried again for ever; any other exception is a fault of ours and ends the
process.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pushlane.lanes.errors import PushlaneError, Superseded

_FIRST_S = 0.05
_LONGEST_S = 2.0
_MOST_SAID = 10

_MOST_IN_A_ROW = 16

T = TypeVar("T")


class Backoff:
    """Counts failures in a row of one service, and waits accordingly."""

    def __init__(self, log: logging.Logger, service: str) -> None:
        self._log = log
        self._service = service
        self._failures = 0

    async def until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try the work until the service lets it through; returns its result."""
        while True:
            try:
                result = await work()
            except PushlaneError as error:
                await self.wait(error)
                continue
            self.reset()
            return result

    async def wait(self, error: Exception) -> None:
        await asyncio.sleep(self.failed(error))

    def failed(self, error: Exception) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        if self._failures == 0:
            self._log.warning(
                "waiting for %s: %s", self._service, error, extra={"action": "service_lost"}
            )
        longest_s: float = min(_LONGEST_S, _FIRST_S * 2**self._failures)
        self._failures = min(self._failures + 1, 30)
        return longest_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        if self._failures:
            self._log.info("%s is back", self._service, extra={"action": "service_back"})
        self._failures = 0


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


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int = 1
) -> None:
    """Do the work for each, so many side by side. One that fails keeps none of the others from it.

    What failed first is raised in the end, or when so many fail in a row that a service is away.
    """
    first: PushlaneError | None = None
    in_a_row = 0
    waiting = iter(items)
    while some := list(itertools.islice(waiting, at_once)):
        for result in await asyncio.gather(*map(work, some), return_exceptions=True):
            if result is None:
                in_a_row = 0
            elif not isinstance(result, PushlaneError) or isinstance(result, Superseded):
                raise result
            else:
                first = first or result
                in_a_row += 1
        if in_a_row >= _MOST_IN_A_ROW:
            break
    if first is not None:
        raise first


def raise_first(results: Iterable[object]) -> None:
    """Raise the first error among what was gathered; one of our own before one of a service."""
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, PushlaneError)):
        raise error


async def whenever(
    due: asyncio.Event, work: Callable[[], Awaitable[None]], backoff: Backoff
) -> None:
    """Do the work each time it is due, for ever, and again after a wait when it failed.

    The event is cleared before the work begins, so what becomes due meanwhile is not missed.
    """
    while True:
        await due.wait()
        due.clear()
        await backoff.until_done(work)
