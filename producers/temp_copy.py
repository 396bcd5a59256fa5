"""Copies standard input or rows in memory to a temporary file, so that they can be read twice.

It is bounded by the disk alone (TMPDIR says which), and removed in the end.
"""

from __future__ import annotations

import io
import select
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from pushlane.lanes.errors import BadInput

_BLOCK_BYTES = 1 << 20
_PATIENCE_S = 0.2
_ROWS = 4_096


@contextmanager
def spool_file() -> Iterator[IO[bytes]]:
    """Give an empty file with a name, which is removed after use."""
    with tempfile.NamedTemporaryFile(prefix="pushlane-", suffix=".spool") as file:
        yield file


def standard_input() -> BinaryIO:
    return sys.stdin.buffer


def copy_stream(stream: BinaryIO, file: IO[bytes]) -> Generator[int, None, None]:
    """Copy block by block; yield the bytes so far, also while there is nothing to read.

    So a Ctrl-C is heeded while somebody types, or while a pipe is silent.
    """
    copied = 0
    while True:
        if _has_input(stream):
            block = _read(stream)
            if not block:
                break
            with _told_when_full(file):
                copied += file.write(block)
        yield copied
    with _told_when_full(file):
        file.flush()


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
    return stream.read(_BLOCK_BYTES)


def copy_rows(rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> Generator[int, None, None]:
    """Copy rows as JSON Lines; yield how many were copied so far.

    Raises:
        BadInput: a row is not a mapping, or holds what JSON cannot.
    """
    encode = msgspec.json.Encoder().encode
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} is a {type(row).__name__}, not a mapping")
        try:
            line = encode(dict(row))
        except (TypeError, ValueError) as error:
            raise BadInput(f"row {number} holds a value that JSON cannot") from error
        with _told_when_full(file):
            file.write(line + b"\n")
        if number % _ROWS == 0:
            yield number
    with _told_when_full(file):
        file.flush()


@contextmanager
def _told_when_full(file: IO[bytes]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"the rows cannot be copied to {Path(file.name).parent}: {error.strerror or error}; "
            "free space there, set TMPDIR to another folder, or submit from a file"
        ) from error
