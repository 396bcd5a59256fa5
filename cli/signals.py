"""When a dispatching process is told to stop: by a signal, or by its parent going away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from cli.errors import INTERRUPTED, note


def stop_on_signals(
    stop: Callable[[], None],
    *,
    stopping: str = "stopping after what is in flight",
    left: str = "what was in flight will be sent again",
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
