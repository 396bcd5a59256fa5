"""Doing work in the face of services that are away: again and again, or as far as it goes."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pushlane.core.errors import PushlaneError, Unreachable
from pushlane.core.retrying import Backoff, Retry
from pushlane.util.errors import StorageFull, Superseded

_MOST_IN_A_ROW = 16
T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


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
    what went wrong, which is empty when nothing did. Raises StorageFull at once, since waiting
    frees no space; unless `waits_for_space`, for others may free some.
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
        first_s=0.1,
        longest_s=5.0,
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


def backoff(first_s: float, longest_s: float) -> Callable[[int], float]:
    """Double the wait with each attempt, with jitter over its upper half: retries make no waves."""

    def wait_s(attempt: int) -> float:
        most: float = min(longest_s, first_s * 2 ** min(attempt - 1, 30))
        return most * random.uniform(0.5, 1.0)

    return wait_s
