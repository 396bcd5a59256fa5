"""Ends the process of a command with the command's own exit code.

The HTTP client and Pulsar's client have threads of their own. One that needs Python's lock while
the interpreter takes itself apart aborts the process (exit code 134), so a command ends without
that: what the interpreter does before is done here, and the process leaves at once.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TextIO

_UNWRITTEN = 1


def run_and_end(command: Callable[[], object]) -> NoReturn:
    """Run a command, which may end by `SystemExit`, and end the process with its exit code.

    Under a tracer or a profiler the interpreter ends as it always does, since they write their
    results after the program.
    """
    try:
        command()
        code = 0
    except SystemExit as end:
        code = _number(end.code)
    if sys.gettrace() is not None or sys.getprofile() is not None:
        raise SystemExit(code)
    leave(code)


def leave(code: int, exit_now: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """Wait for threads that are no daemons, run the exit functions, flush, and end the process.

    What cannot be written turns exit code 0 into 1.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    written = [_flushed(sys.stdout), _flushed(sys.stderr)]
    exit_now(code or (0 if all(written) else _UNWRITTEN))


def _number(code: object) -> int:
    """Return the exit code that Python makes of what `SystemExit` holds."""
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1


def _flushed(stream: TextIO | None) -> bool:
    """Write what the stream holds. False when who reads it has gone, or the disk is full."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        return False
    return True
