"""`pushlane top` in a terminal of 80 columns by 24 lines, whose output nobody reads."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl

from pushlane.core.errors import PushlaneError

_LINES, _COLUMNS = 24, 80
_START_S, _STOP_S = 30.0, 10.0
_SHOWN = b"ENTITLED"


@contextmanager
def top_open(env: Mapping[str, str]) -> Iterator[int]:
    """Run it meanwhile, from when it shows shares on; give its process id.

    Raises PushlaneError when it does not show them within 30 s.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "pushlane", "top"],
        env={**os.environ, **env, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = threading.Event()
    reading = threading.Thread(target=_read, args=(ours, shown))
    reading.start()
    try:
        if not shown.wait(_START_S):
            raise PushlaneError(f"top did not show shares within {_START_S:g} s")
        yield process.pid
    finally:
        process.terminate()
        process.wait(_STOP_S)
        reading.join()
        os.close(ours)


def _read(terminal: int, shown: threading.Event) -> None:
    """Read all that is drawn, until the end; tell once shares are seen."""
    kept = b""
    while True:
        try:
            some = os.read(terminal, 65_536)
        except OSError:  # Linux's word for the end of a terminal
            return
        kept = kept[-len(_SHOWN) :] + some
        if _SHOWN in kept:
            shown.set()
