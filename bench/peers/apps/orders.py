"""The orders that a feeder gets on stdin, one a line; it answers each with `ok` when it is done.

`task NAME LEVEL PUSHES` submits a task, `weights H:M:L` changes the levels' weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

BODY = "x" * 150

Send = Callable[[str, str, int], None]


def follow(send: Send, reweigh: Callable[[list[int]], None] | None = None) -> None:
    for line in sys.stdin:
        kind, *words = line.split()
        if kind == "task":
            task, level, pushes = words
            send(task, level, int(pushes))
        elif reweigh is not None:
            reweigh([int(weight) for weight in words[0].split(":")])
        sys.stdout.write("ok\n")
        sys.stdout.flush()
