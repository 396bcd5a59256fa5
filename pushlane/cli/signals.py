"""Ends a long-running command: by a signal, without its parent, or when its loop stands still.

A process whose event loop has stopped turning has to end by itself, so that others get what it
holds: threads of the broker's client go on answering for it. A call into C that keeps Python's lock
stops the watchdog as well, and only a probe from outside finds that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from pushlane.cli.errors import HUNG, INTERRUPTED, note
from pushlane.cli.health import Health
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


def stop_on_signals(stop: Callable[[], None], *, left: str, stopping: str = STOPPING) -> None:
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


log = logging.getLogger("pushlane.watchdog")

_TICK_S = 1.0
_TELL_S = 5.0
_MOST_STACKS = 50
_MOST_FRAMES = 60


class Watchdog:
    """Counts its own ticks since the loop last turned.

    No clock is asked, so a process that was stopped for an hour is not taken for one that hung.
    """

    def __init__(self, last_beat_s: Callable[[], float | None], patience_s: float) -> None:
        self._last_beat_s = last_beat_s
        self._patience_s = patience_s
        self._seen_s: float | None = None
        self.still_s = 0.0

    def tick(self) -> bool:
        """Count a second; return True once the loop has not turned for as long as it may."""
        beat_s = self._last_beat_s()
        is_still = beat_s is not None and beat_s == self._seen_s
        self._seen_s = beat_s
        self.still_s = self.still_s + _TICK_S if is_still else 0.0
        return self.still_s >= self._patience_s


@contextmanager
def ended_if_hung(health: Health, patience_s: float | None) -> Iterator[None]:
    """End the process once its loop has not turned for so long, None for never, in the block."""
    over = threading.Event()
    if patience_s is not None:
        watchdog = Watchdog(lambda: health.last_beat_s, patience_s)

        def watch() -> None:
            while not over.wait(_TICK_S):
                if watchdog.tick():
                    leave(watchdog.still_s, health.loop_thread)

        threading.Thread(target=watch, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def leave(
    still_s: float, loop_thread: int | None, exit_now: Callable[[int], None] = os._exit
) -> None:
    """Log where each thread is, and end the process; a log that takes nothing delays that by 5 s.

    What the loop holds may be what the log waits for: its lock, or the reader of its pipe.
    """
    at_latest = threading.Timer(_TELL_S, exit_now, (HUNG,))
    at_latest.daemon = True
    try:
        told = stacks(sys._current_frames(), loop_thread)
        at_latest.start()
        log.critical(
            "the event loop has not turned for %.0f s: this process ends with exit code %d, and "
            "other processes take over what it held, as after a kill; run code that blocks for "
            "so long in a thread (a plain `def`), or raise loop_patience_s",
            still_s,
            HUNG,
            extra={"action": "loop_hung"},
        )
        for text in told:
            log.critical("%s", text, extra={"action": "loop_hung_stack"})
        logging.shutdown()
    finally:
        at_latest.cancel()
        exit_now(HUNG)


def stacks(frames: Mapping[int, FrameType], loop_thread: int | None) -> list[str]:
    """Return where threads are, the event loop's first, and those at the same place together.

    A place is a file, a line and a function: no value of a program is among them.
    """
    own = threading.get_ident()
    places = {thread: _places(frame) for thread, frame in frames.items() if thread != own}
    loop = places.pop(loop_thread, None) if loop_thread is not None else None
    others = Counter(places.values()).most_common()
    texts = [] if loop is None else [f"the event loop is at{loop}"]
    texts += [
        f"{count} other {_threads(count)} at{place}" for place, count in others[:_MOST_STACKS]
    ]
    left_out = sum(count for _, count in others[_MOST_STACKS:])
    return [*texts, f"{left_out} other {_threads(left_out)} elsewhere"] if left_out else texts


def _threads(count: int) -> str:
    return "thread is" if count == 1 else "threads are"


def _places(frame: FrameType | None) -> str:
    """Return the innermost frames of a thread, a line for each, the innermost last."""
    lines: list[str] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        code = frame.f_code
        lines.append(f"\n  {code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return "".join(reversed(lines))
