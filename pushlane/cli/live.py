"""One line at the bottom of the terminal that says how it goes, while a command runs.

It goes out of the way of whatever Python writes there: logs, what a sink or a processor prints.
Where stderr is no terminal, or one that cannot clear a line, there is none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO

from pushlane.dispatcher.progress import DispatchProgress, counts_texts

_CLEAR = "\r\x1b[K"
_EVERY_S = 1.0
_RATE_OF_S = 5.0
_PLAIN_TERMINALS = ("", "dumb", "unknown")


def _between(terminal: TextIO) -> str:
    """Return what stands between the parts of a line, in letters that the terminal has."""
    try:
        " · ".encode(terminal.encoding)
    except UnicodeEncodeError:
        return ", "
    return " · "


@contextmanager
def live_line(*, wanted: bool) -> Iterator[LiveLine | None]:
    """Make a line on stderr for the block, None where it is not `wanted` or cannot be shown."""
    can_clear = os.environ.get("TERM", "") not in _PLAIN_TERMINALS
    if not (wanted and can_clear and sys.stderr.isatty()):
        yield None
        return
    line = LiveLine(sys.stderr)
    stdout, stderr = sys.stdout, sys.stderr
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is stderr
    ]
    sys.stderr = _Above(stderr, line, "\n")
    if stdout.isatty():
        sys.stdout = _Above(stdout, line, "\n")
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield line
    finally:
        line.close()
        above = [one for one in (sys.stdout, sys.stderr) if isinstance(one, _Above)]
        sys.stdout, sys.stderr = stdout, stderr
        with suppress(OSError):
            for stream in above:
                stream.flush()
        for handler in handlers:
            handler.setStream(stderr)


class LiveLine:
    """A line on a terminal below all else. Any thread may call it."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._between = _between(terminal)
        self._lock = threading.RLock()
        self._text = ""
        self._is_shown = False
        self._is_closed = False
        self._at_start = True

    async def keep(self, parts: Callable[[], Sequence[str]]) -> None:
        """Show these parts of a text, anew each second, until the terminal takes no more.

        It writes on a thread: a terminal that is stopped (Ctrl-S) must not stop the loop.
        """
        with suppress(OSError):
            while True:
                await asyncio.to_thread(self.show_parts, parts())
                await asyncio.sleep(_EVERY_S)

    def show_parts(self, parts: Sequence[str]) -> None:
        """Show these from now on, side by side."""
        self.show(self._between.join(parts))

    def show(self, text: str) -> None:
        """Show this text from now on."""
        with self._lock:
            self._text = text
            self._draw()

    def close(self) -> None:
        """Clear the line for good."""
        with self._lock, suppress(OSError):
            self._is_closed = True
            self._clear()

    def write_above(self, stream: IO[Any], data: Any, *, ends_line: bool) -> None:
        """Write to a stream of the same terminal; the line is drawn again once a line has ended."""
        with self._lock:
            self._clear()
            stream.write(data)
            stream.flush()
            self._at_start = ends_line
            self._draw()

    def _draw(self) -> None:
        if self._is_closed or not self._at_start:
            return
        self._is_shown = True
        self._terminal.write(f"\r{self._text[: self._columns() - 1]}\x1b[K")
        self._terminal.flush()

    def _clear(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._terminal.write(_CLEAR)
            self._terminal.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


class _Above:
    """A stream of the terminal of a line, which writes whole lines above that one.

    What is flushed before its line has ended is written, too, and the line waits for that end.
    """

    def __init__(self, stream: IO[Any], line: LiveLine, end: str | bytes) -> None:
        self._stream = stream
        self._line = line
        self._end: Any = end
        self._held: Any = end[:0]
        self._lock = threading.Lock()
        raw = getattr(stream, "buffer", None) if isinstance(end, str) else None
        self.buffer = None if raw is None else _Above(raw, line, b"\n")

    def write(self, data: Any) -> int:
        with self._lock:
            ended, found, rest = (self._held + _plain(data)).rpartition(self._end)
            self._held = rest
            if found:
                self._line.write_above(self._stream, ended + found, ends_line=True)
        return len(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            held, self._held = self._held, self._held[:0]
            if held:
                self._line.write_above(self._stream, held, ends_line=False)
        if self.buffer is not None:
            self.buffer.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _plain(data: Any) -> str | bytes:
    """Return what a stream was given in a form that can be added to: it may be any buffer."""
    return data if isinstance(data, str | bytes) else bytes(data)


def closing(line: LiveLine, stop: Callable[[], None]) -> Callable[[], None]:
    """Return a `stop` that clears the line for good: the process may end at once after it."""

    def stop_and_close() -> None:
        stop()
        line.close()

    return stop_and_close


class LiveText:
    """Says in parts what a dispatcher has done, how fast it is now, and what is left."""

    def __init__(
        self,
        look: Callable[[], DispatchProgress],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._clock_s = clock_s
        self._looks = deque([(clock_s(), look().ended)])

    def __call__(self) -> Sequence[str]:
        now, now_s = self._look(), self._clock_s()
        self._looks.append((now_s, now.ended))
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - _RATE_OF_S:
            self._looks.popleft()
        before_s, before = self._looks[0]
        per_s = (now.ended - before) / max(1.0, now_s - before_s)
        left = [] if now.left is None else [f"{now.left:,} left"]
        return (*counts_texts(now.outcomes), f"{per_s:,.0f}/s", *left, *now.resting)
