"""Brings the rows of a request into a file that can be read more than once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from pushlane.lanes.errors import BadInput
from pushlane.producers.prefetch import prefetched
from pushlane.producers.request import SubmitProgress, SubmitRequest, SubmitStage
from pushlane.producers.sources import format_of
from pushlane.producers.temp_copy import copy_rows, copy_stream, spool_file, standard_input

OnProgress = Callable[[SubmitProgress], None]

_STDIN = Path("-")


@dataclass(frozen=True)
class InputFile:
    """A file of rows, its format, and what messages call it."""

    path: Path
    format: str
    name: str

    def signature(self) -> tuple[int, int, int]:
        """Return numbers that change when the file does."""
        found = self.path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns


def _opened(path: Path) -> BinaryIO:
    """Open a named pipe at once, for `open` waits for a writer, deaf to Ctrl-C; copying waits."""
    pipe = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    os.set_blocking(pipe.fileno(), True)
    return pipe


@asynccontextmanager
async def as_file(request: SubmitRequest, tell: OnProgress) -> AsyncIterator[InputFile]:
    """Give the request's own file, or a temporary copy of its stream or rows.

    Raises:
        BadInput: the format is not known, or the copy cannot be made.
    """
    given = request.source
    if isinstance(given, Path) and given.is_fifo():  # as `<(command)` makes them
        with _opened(given) as pipe:
            async with as_file(replace(request, source=pipe), tell) as copied:
                yield copied
        return
    if isinstance(given, Path) and given != _STDIN:
        yield InputFile(given, format_of(given, request.format), str(given))
        return
    is_stream = isinstance(given, Path) or hasattr(given, "read")
    if is_stream and request.format is None:
        raise BadInput(
            "a stream has no file name to tell its format: add --format csv, jsonl or parquet"
        )
    with spool_file() as file:
        if is_stream:
            stream = standard_input() if given == _STDIN else cast(BinaryIO, given)
            copying, kind = copy_stream(stream, file), format_of(_STDIN, request.format)
        else:
            copying, kind = copy_rows(cast("Iterable[Any]", given), file), "jsonl"
        async with prefetched(copying) as copied:
            async for _ in copied:
                tell(SubmitProgress(SubmitStage.READING))
        yield InputFile(Path(file.name), kind, "standard input" if is_stream else "the rows given")
