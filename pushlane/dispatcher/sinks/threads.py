"""Runs blocking calls in threads of its own, which a call that never returns cannot use up.

Threads are daemons: one that hangs does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from pushlane.util.texts import raised


class _Call(NamedTuple):
    function: Callable[[Any], Any]
    argument: Any
    done: asyncio.Future[Any]


class Threads:
    """At most `limit` threads, made when needed. Owned by the event loop's thread.

    `hung` counts calls that nobody waits for any more and that have not come back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self.hung = 0

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What the call returns, or the `Raised` of what it raised.

        Cancelling leaves the call behind as hung.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        if self._threads < min(self._busy, self._limit):
            self._threads += 1
            threading.Thread(
                target=self._work, args=(loop,), name="pushlane-processor", daemon=True
            ).start()
        self._calls.put(_Call(function, argument, done))
        try:
            return await done
        except asyncio.CancelledError:
            self.hung += 1
            raise

    def close(self) -> None:
        """Let idle threads end, and the others once their call comes back."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            result: Any
            try:
                result = call.function(call.argument)
            except BaseException as error:  # noqa: BLE001 - somebody else's code, even its sys.exit
                result = raised(error)
            try:
                loop.call_soon_threadsafe(self._settle, call.done, result)
            except RuntimeError:  # the loop is closed: nobody waits
                return

    def _settle(self, done: asyncio.Future[Any], result: Any) -> None:
        self._busy -= 1
        if done.cancelled():
            self.hung -= 1
        else:
            done.set_result(result)
