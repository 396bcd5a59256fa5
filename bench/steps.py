"""Times every step of an asyncio event loop: each callback, from its start to its end."""

from __future__ import annotations

import asyncio
import time
from asyncio import events
from collections.abc import Iterator
from functools import partial
from resource import RUSAGE_THREAD, getrusage
from types import TracebackType
from typing import Any


class Steps:
    """While it is entered; for asyncio's own loop, whose handles are Python.

    `most_ms` is the longest of them. One in which the machine gave the core to somebody else counts
    as long as its thread ran: that is not the step's doing. `longest` says all there is of it,
    `longest_of` whose it was, and `wall_ms` is the longest of all by the clock on the wall. A step
    that waits for another thread is long, too, so `cpu_ms` is the most that the thread ran in one,
    and `busiest_of` whose that was.
    """

    def __init__(self) -> None:
        self.most_ms = 0.0
        self.wall_ms = 0.0
        self.longest = "none"
        self.longest_of = "none"
        self.cpu_ms = 0.0
        self.busiest_of = "none"

    def __enter__(self) -> Steps:
        self._run = events.Handle._run
        events.Handle._run = self._timed()  # type: ignore[method-assign]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]

    def _timed(self) -> Any:
        run, steps = self._run, self

        def timed(handle: events.Handle) -> None:
            started, ran, lost = time.perf_counter(), time.thread_time(), _lost_the_core()
            run(handle)
            took_ms = (time.perf_counter() - started) * 1000
            if took_ms > steps.cpu_ms:  # which is never above most_ms
                ran_ms = (time.thread_time() - ran) * 1000
                own_ms = ran_ms if _lost_the_core() > lost else took_ms
                steps._note(own_ms, took_ms, ran_ms, handle)

        return timed

    def _note(self, own_ms: float, took_ms: float, ran_ms: float, handle: events.Handle) -> None:
        self.wall_ms = max(self.wall_ms, took_ms)
        if ran_ms > self.cpu_ms:
            self.cpu_ms = ran_ms
            self.busiest_of = name_of(handle)
        if own_ms > self.most_ms:
            self.most_ms = own_ms
            self.longest_of = name_of(handle)
            self.longest = f"{took_ms:.1f} ms, {ran_ms:.1f} of them running: {self.longest_of}"


def name_of(handle: events.Handle) -> str:
    """Return whose step this was: a task and where its coroutines wait now, or a function."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()}: {' > '.join(_awaited(owner.get_coro()))}"
    return str(getattr(callback, "__qualname__", callback))


def _awaited(coroutine: Any) -> Iterator[str]:
    """Yield the names of a coroutine and of those that it awaits, from the outside in."""
    while (name := getattr(coroutine, "__qualname__", None)) is not None:
        yield name
        coroutine = getattr(coroutine, "cr_await", None)


def _lost_the_core() -> int:
    """Count how often the machine took the core from this thread while it could have gone on."""
    return getrusage(RUSAGE_THREAD).ru_nivcsw
