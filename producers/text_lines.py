"""Reads lines of bounded length, so that a file without line ends cannot fill the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import AnyStr

from pushlane.lanes.errors import BadInput

MAX_LINE = 1 << 20


def bounded_lines(readline: Callable[[int], AnyStr], name: str) -> Iterator[AnyStr]:
    """Yield the lines of a file, read by its `readline`.

    Raises:
        BadInput: a line is longer than 1 MiB.
    """
    number = 0
    while line := readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise BadInput(
                f"{name}:{number} is a line of over {MAX_LINE} characters; is the format right?"
            )
        yield line
