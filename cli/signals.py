"""When a process that runs on is told to stop: by a signal, or by its parent going away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from pushlane.cli.errors import INTERRUPTED, note
from pushlane.lanes.errors import PushlaneError


def at_latest(stop: Callable[[], None], within_s: float, left: str) -> Callable[[], None]:
    """Return `stop` with a clock: a process that has not ended so long after the call is ended.

    What it waits for then, be it a broker that is away, would keep it for ever. `left` says what
    becomes of its work.
    """

    def leave() -> None:
        note(f"it has not ended within {within_s:g} s and is left as it is; {left}")
        os._exit(PushlaneError.exit_code)

    clock = threading.Timer(within_s, leave)
    clock.daemon = True
    started = threading.Lock()

    def stop_in_time() -> None:
        if started.acquire(blocking=False):
            clock.start()
        stop()

    return stop_in_time


def stop_on_signals(
    stop: Callable[[], None],
    *,
    left: str,
    stopping: str = "stopping after what is in flight",
) -> None:
    """Call `stop` at SIGTERM and Ctrl-C; a second Ctrl-C leaves without waiting for anything.

    The texts say what then becomes of the work.
    """
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            note(f"left at once; {left}")
            os._exit(INTERRUPTED)
        interrupted = True
        note(f"{stopping}; Ctrl-C again leaves at once")
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)


def stop_with_stdin(stop: Callable[[], None]) -> None:
    """Call `stop` when stdin ends: it is a pipe from the parent, which closes however that dies."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, readable)
