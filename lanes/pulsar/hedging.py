"""Begins a request anew beside one that takes long, and takes the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Got = TypeVar("Got")


async def hedged(
    attempt: Callable[[], Coroutine[Any, Any, Got]],
    discard: Callable[[Got], None],
    *,
    after_s: float,
    most: int,
) -> Got:
    """Return what the first attempt returns that succeeds; `discard` gets what others return.

    At most `most` begin, each `after_s` after the one before, or when one fails while others go on.
    When all that have begun have failed, the last failure is raised. Hedged requests are from Dean
    and Barroso, The Tail at Scale, 2013.
    """
    waiting: set[asyncio.Task[Got]] = set()
    begun = 0
    try:
        while True:
            if begun < most:
                waiting.add(asyncio.create_task(attempt()))
                begun += 1
            timeout_s = after_s if begun < most else None
            done, waiting = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            got = [one.result() for one in done if one.exception() is None]
            for spare in got[1:]:
                discard(spare)
            if got:
                return got[0]
            if not waiting:
                return done.pop().result()
    finally:
        for one in waiting:
            if not one.cancel() and one.exception() is None:
                discard(one.result())
