"""Handles Ctrl-C while Spark works: another thread stops the work, then the interrupt goes on.

An exception raised by a signal in the middle of a call to Java breaks the connection to Java, and
under asyncio the interrupt would wait until the job is done. This module avoids both.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeGuard

Handler = Callable[[int, FrameType | None], object]


_PATIENCE_S = 20.0


@contextmanager
def interrupt_stops(
    stop: Callable[[], None], kill: Callable[[], None], patience_s: float = _PATIENCE_S
) -> Iterator[None]:
    """Make Ctrl-C inside this context call `stop`, which makes the running calls to Spark fail.

    A job that is handed to Spark at that moment may wait for ever: if the block has not ended after
    `patience_s`, `kill` is called, which makes any waiting call fail. A handler that the caller has
    installed stays in place. Signals reach the main thread only, so in another thread this does
    nothing.

    Raises:
        KeyboardInterrupt: it came, and the block has ended.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not _is_default_handler(before):
        yield
        return
    stopping: threading.Thread | None = None
    killing = threading.Timer(patience_s, _quietly, (kill,))
    killing.daemon = True

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        is_first = stopping is None
        if is_first:
            stopping = threading.Thread(target=_quietly, args=(stop,), name="stop-spark")
            stopping.daemon = True
            stopping.start()
            killing.start()
        if not (is_first and before is signal.default_int_handler and _is_in_java(frame)):
            before(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        try:
            yield
        except Exception:
            if stopping is None:
                raise
        finally:
            if stopping is not None:
                stopping.join()  # Java may go only once it has been stopped
                killing.cancel()
    finally:
        signal.signal(signal.SIGINT, before)
    if stopping is not None:
        raise KeyboardInterrupt


@contextmanager
def interrupt_waits() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block of seconds that must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    before = signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(signal.SIGINT, came[0])


@contextmanager
def interrupt_kept() -> Iterator[None]:
    """Restore the SIGINT handler after the block, since Spark's handler outlives its context."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def py4j_silent() -> Iterator[None]:
    """Keep py4j from writing tracebacks when Java is gone: the error that is raised says it."""
    root = logging.getLogger()
    root.addFilter(_is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(_is_not_py4j)


def _quietly(stop: Callable[[], None]) -> None:
    """Call `stop` and ignore its errors: then the work is gone, and its caller reports that."""
    with suppress(Exception):
        stop()


def _is_default_handler(handler: object) -> TypeGuard[Handler]:
    """Return True if the handler is Python's default one or that of asyncio.run."""
    runner = handler.func if isinstance(handler, functools.partial) else None
    return handler is signal.default_int_handler or isinstance(
        getattr(runner, "__self__", None), asyncio.Runner
    )


def _is_in_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.f_back
    return False


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
