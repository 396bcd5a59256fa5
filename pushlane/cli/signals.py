"""Stops a process that runs on: by a signal, or when its parent goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from pushlane.cli.errors import INTERRUPTED, note
from pushlane.core.errors import PushlaneError

STOPPING = "stopping after what is in flight"
REPEATED = "what was in flight will be sent again"


def at_latest(stop: Callable[[], None], within_s: float, left: str) -> Callable[[], None]:
    """Return a `stop` that also ends the process if it has not ended by itself in this time.

    A broker that is away, for instance, could keep it waiting for ever. `left` tells the user what
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
    stopping: str = STOPPING,
) -> None:
    """Call `stop` at SIGTERM and Ctrl-C; a second Ctrl-C leaves without waiting for anything.

    The texts say what then becomes of the work.
    """
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            tell_left(left)
            os._exit(INTERRUPTED)
        interrupted = True
        tell_stopping(stopping)
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)


def tell_stopping(stopping: str = STOPPING) -> None:
    """Say what the first Ctrl-C does."""
    note(f"{stopping}; Ctrl-C again leaves at once")


def tell_left(left: str = REPEATED) -> None:
    """Say what the second Ctrl-C leaves behind."""
    note(f"left at once; {left}")


def stop_with_stdin(stop: Callable[[], None]) -> None:
    """Call `stop` when stdin ends, a pipe that closes however the parent dies."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, readable)
