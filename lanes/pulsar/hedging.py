"""Begins a request anew beside one that takes long, and takes the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Got = TypeVar("Got")


async def hedged(
    attempt: Callable[[], Coroutine[Any, Any, Got]],
    discard: Callable[[Got], object] = lambda _: None,
    *,
    after_s: float,
    most: int,
) -> Got:
    """Return what the first attempt returns that succeeds; `discard` gets what others return.

    One begins `after_s` after the one before, while fewer than `most` are under way: each has to
    end by itself. When all that have begun have failed, the last failure is raised. Hedged requests
    are from Dean and Barroso, The Tail at Scale, 2013.
    """
    clock_s = asyncio.get_running_loop().time
    waiting: set[asyncio.Task[Got]] = set()
    next_s = clock_s()
    try:
        while True:
            if len(waiting) < most and clock_s() >= next_s:
                waiting.add(asyncio.create_task(attempt()))
                next_s = clock_s() + after_s
            timeout_s = max(0.0, next_s - clock_s()) if len(waiting) < most else None
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
