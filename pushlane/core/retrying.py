"""Waiting for a service that is away: longer each time, and said once when it goes and comes back.

Each wait is cut by chance, so that many processes do not come back at once. Every side task of a
dispatcher works through a `Backoff`: what a service answers, or does not, is a `PushlaneError` and
is tried again for ever, and any other exception is a fault of ours and ends the process. Producers
wait with `until_reachable`, which tells their user, and tries again only what did not get through.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pushlane.core.errors import PushlaneError, StorageFull, Superseded, Unreachable

_FIRST_S = 0.05
_LONGEST_S = 2.0
_PRODUCER_FIRST_S = 0.1
_PRODUCER_LONGEST_S = 5.0
_MOST_DOUBLED = 30
_MOST_SAID = 10

_MOST_IN_A_ROW = 16

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[None]]


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
        sleep: Sleep | None = None,
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


async def until_reachable(
    action: Callable[[], Awaitable[T]],
    tell: Callable[[str], None],
    sleep: Sleep,
    *,
    on_try: Callable[[str], None] = lambda trouble: None,
    waits_for_space: bool = False,
) -> T:
    """Return the result of an action, which is repeated until its service answers.

    `tell` is told once that it waits, and once that the service is back; `on_try` after every try
    what went wrong, which is empty when nothing did.

    Raises:
        StorageFull: at once, since waiting frees no space; unless `waits_for_space`, for others
            may free some.
    """

    async def tried() -> T:
        try:
            result = await action()
        except Unreachable as error:
            on_try(str(error))
            raise
        on_try("")
        return result

    def is_tried_again(error: PushlaneError) -> bool:
        is_full = isinstance(error, StorageFull)
        return isinstance(error, Unreachable) and (waits_for_space or not is_full)

    retry = Retry(
        lambda error: tell(f"waiting: {error}"),
        lambda: tell("the service is back"),
        first_s=_PRODUCER_FIRST_S,
        longest_s=_PRODUCER_LONGEST_S,
    )
    return await retry.until_done(tried, sleep, is_tried_again)


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
