"""Calls in threads that no exit waits for, and long work beside the event loop."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class Threads:
    """At most `limit` daemon threads, called `name`, made when needed.

    No exit waits for them: a call that hangs keeps no process alive. Owned by the event loop's
    thread. `hung` counts calls that nobody waits for any more and that have not come back.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self.hung = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Return what the call returns, or raise what it raises.

        Cancelling leaves the call behind as hung.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._busy += 1
        if self._threads < min(self._busy, self._limit):
            self._threads += 1
            threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True).start()
        self._calls.put((call, done))
        try:
            return await done
        except asyncio.CancelledError:
            self.hung += not done.done() or done.cancelled()
            raise

    def close(self) -> None:
        """Let idle threads end, and the others once their call comes back."""
        for _ in range(self._threads):
            self._calls.put(None)
        self._threads = 0

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (asked := self._calls.get()) is not None:
            call, done = asked
            result: Any = None
            raised: BaseException | None = None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it goes to who has asked
                raised = error
            try:
                loop.call_soon_threadsafe(self._settle, done, result, raised)
            except RuntimeError:  # the loop is closed: nobody waits
                return

    def _settle(self, done: asyncio.Future[Any], result: Any, raised: BaseException | None) -> None:
        self._busy -= 1
        if done.cancelled():
            self.hung -= 1
        elif raised is not None:
            done.set_exception(raised)
        else:
            done.set_result(result)


async def aside(work: Callable[[], T]) -> T:
    """Do the work on another thread and return what it returns.

    The garbage collector waits for it. Else it would look, again and again and with all threads
    stopped, at what the work makes of 100,000 tasks; nothing of that is garbage.
    """

    def run() -> T:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return work()
        finally:
            if was_on:
                gc.enable()

    return await asyncio.to_thread(run)
