"""Times every step of an asyncio event loop: each callback, from its start to its end."""

from __future__ import annotations

import time
from asyncio import events
from types import TracebackType
from typing import Any


class Steps:
    """While it is entered; for asyncio's own loop, whose handles are Python.

    `most_ms` is the longest by the clock on the wall. `longest` also says how much of it the thread
    really ran: the rest is the machine's, or the interpreter lock's.
    """

    def __init__(self) -> None:
        self.most_ms = 0.0
        self.longest = "none"

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
            started, ran = time.perf_counter(), time.thread_time()
            run(handle)
            took_ms = (time.perf_counter() - started) * 1000
            if took_ms > steps.most_ms:
                ran_ms = (time.thread_time() - ran) * 1000
                steps.most_ms = took_ms
                steps.longest = f"{took_ms:.1f} ms, {ran_ms:.1f} of them running: {handle!r}"

        return timed
