"""What the ports in memory have in common: one lock, one clock, and how a waiting loop is woken.

A call is one step: it holds the lock from its first line to its last, so no other call sees it half
done. That holds for callers in other threads too, such as the thread of a `Producer`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial, wraps
from itertools import takewhile
from types import coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from pushlane.core.task import now_ms

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class LockAndClock:
    """The lock and the clock of one backend. `clock_ms` tells Unix milliseconds."""

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        self.lock = threading.RLock()
        self.clock_ms = clock_ms


class MemoryPort:
    """The base of every port: it knows what all of them share."""

    def __init__(self, shared: LockAndClock) -> None:
        self._shared = shared

    @property
    def _now_ms(self) -> int:
        return self._shared.clock_ms()


S = TypeVar("S", bound=MemoryPort)


def one_step(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine function of a method: it gives others their turn, then does all at once."""

    @wraps(method)
    async def call(port: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        await others_turn()
        with port._shared.lock:
            return method(port, *args, **kwargs)

    return call


@coroutine
def others_turn() -> Generator[None, None, None]:
    """Let all else run that can, once: what `asyncio.sleep(0)` does."""
    yield


def call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Have a loop call this soon, whichever thread we are in. A loop that is closed is left out."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class Bell:
    """Wakes all who wait for it, each on the event loop that it waits on."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def next_ring(self) -> asyncio.Future[None]:
        """Return a future that is done at the next ring. Cancel it when it is not awaited."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in list(waiting):
            call_on(future.get_loop(), partial(_finish, future))


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def pop_over(rows: dict[K, V], is_over: Callable[[V], bool]) -> list[K]:
    """Remove rows that are over from the front of a dict; return their keys.

    It stops at the first that is not over, so that a call costs little however many rows there are.
    """
    over = [key for key, _ in takewhile(lambda row: is_over(row[1]), rows.items())]
    for key in over:
        del rows[key]
    return over
