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

    At most `most` begin, each `after_s` after the one before, or when all before have failed. A
    failure is raised when it comes before there is a second, or once all have begun: the caller may
    begin anew. Hedged requests are from Dean and Barroso, The Tail at Scale, 2013.
    """
    clock_s = asyncio.get_running_loop().time
    waiting: set[asyncio.Task[Got]] = set()
    begun, next_s = 0, clock_s()
    try:
        while True:
            if begun < most and clock_s() >= next_s:
                waiting.add(asyncio.create_task(attempt()))
                begun, next_s = begun + 1, clock_s() + after_s
            timeout_s = max(0.0, next_s - clock_s()) if begun < most else None
            done, waiting = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            got = [one.result() for one in done if one.exception() is None]
            for spare in got[1:]:
                discard(spare)
            if got:
                return got[0]
            if done and begun in {1, most}:
                return done.pop().result()
            if not waiting:
                next_s = clock_s()
    finally:
        for one in waiting:
            if not one.cancel() and one.exception() is None:
                discard(one.result())
