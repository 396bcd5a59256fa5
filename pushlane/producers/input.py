"""Brings the rows of a request into a file that can be read more than once.

Standard input, a stream or rows in memory are copied to a temporary file. It is bounded by the disk
alone (TMPDIR says which), and removed in the end.
"""

from __future__ import annotations

import io
import os
import select
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import msgspec

from pushlane.core.errors import BadInput
from pushlane.producers.prefetch import prefetched
from pushlane.producers.request import RowsInput, SubmitProgress, SubmitRequest, SubmitStage
from pushlane.producers.sources import format_of

OnProgress = Callable[[SubmitProgress], None]

_STDIN = Path("-")
_BLOCK_BYTES = 1 << 20
_PATIENCE_S = 0.2
_ROWS = 4_096


@asynccontextmanager
async def as_file(request: SubmitRequest, tell: OnProgress) -> AsyncIterator[tuple[Path, str, str]]:
    """Give a file of the request's rows, its format, and what messages call it.

    Raises:
        BadInput: there is no such file, its format is not known, or the copy cannot be made.
    """
    given = request.source
    if isinstance(given, Path) and given != _STDIN and not given.is_fifo():
        if not given.exists():
            raise BadInput(f"{given} does not exist; check the path")
        yield given, format_of(given, request.format), str(given)
        return
    is_stream = isinstance(given, Path) or hasattr(given, "read")
    if is_stream and request.format is None:
        raise BadInput(
            "a stream has no file name to tell its format: add --format csv, jsonl or parquet"
        )
    with ExitStack() as opened:
        copy = opened.enter_context(
            tempfile.NamedTemporaryFile(prefix="pushlane-", suffix=".spool")
        )
        if is_stream:
            kind, name = format_of(_STDIN, request.format), "standard input"
            copying = copy_stream(_opened(given, opened), copy)
        else:
            kind, name = "jsonl", "the rows given"
            copying = _copy_rows(cast("Iterable[Any]", given), copy)
        async with prefetched(copying) as copied:
            async for _ in copied:
                tell(SubmitProgress(SubmitStage.READING))
        yield Path(copy.name), kind, name


def _opened(given: RowsInput, opened: ExitStack) -> BinaryIO:
    """Return the stream to be copied: that given, standard input, or a named pipe.

    A pipe, as `<(command)` makes them, is opened at once, for `open` waits for a writer, deaf to
    Ctrl-C; copying waits.
    """
    if not isinstance(given, Path):
        return cast(BinaryIO, given)
    if given == _STDIN:
        return sys.stdin.buffer
    pipe = opened.enter_context(os.fdopen(os.open(given, os.O_RDONLY | os.O_NONBLOCK), "rb"))
    os.set_blocking(pipe.fileno(), True)
    return pipe


def copy_stream(stream: BinaryIO, file: IO[bytes]) -> Generator[int, None, None]:
    """Copy block by block; yield the bytes so far, also while there is nothing to read.

    So a Ctrl-C is heeded while somebody types, or while a pipe is silent.
    """
    copied = 0
    while True:
        if _has_input(stream):
            block = _read(stream)
            if not block:
                return
            _write(file, block)
            copied += len(block)
        yield copied


def _has_input(stream: BinaryIO) -> bool:
    """Wait a moment for input; return whether there is some, True for what is no file of the OS."""
    try:
        readable, _, _ = select.select([stream], [], [], _PATIENCE_S)
    except (OSError, ValueError):
        return True
    return bool(readable)


def _read(stream: BinaryIO) -> bytes:
    """Read what is there, if the stream can say so, since a full block could be long in coming."""
    if isinstance(stream, io.BufferedReader):
        return stream.read1(_BLOCK_BYTES)
    block = stream.read(_BLOCK_BYTES)
    if not isinstance(block, bytes):
        raise BadInput(f"a stream gave a {type(block).__name__}, not bytes; open it as binary")
    return block


def _copy_rows(rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> Generator[int, None, None]:
    """Copy rows as JSON Lines; yield how many were copied so far.

    Raises:
        BadInput: a row is not a mapping, or holds what JSON cannot.
    """
    encode = msgspec.json.Encoder().encode
    lines: list[bytes] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} is a {type(row).__name__}, not a mapping")
        try:
            lines.append(encode(dict(row)) + b"\n")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"row {number} holds a value that JSON cannot") from error
        if number % _ROWS == 0:
            _write(file, b"".join(lines))
            lines.clear()
            yield number
    _write(file, b"".join(lines))


def _write(file: IO[bytes], block: bytes) -> None:
    try:
        file.write(block)
        file.flush()
    except OSError as error:
        raise BadInput(
            f"the rows cannot be copied to {Path(file.name).parent}: {error.strerror or error}; "
            "free space there, set TMPDIR to another folder, or submit from a file"
        ) from error
