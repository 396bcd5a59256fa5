"""The frozen values of a submit (request, progress, result), and its rows as a file.

Standard input, a stream or rows in memory are copied to a temporary file, which can be read more
than once. It is bounded by the disk alone (TMPDIR says which), and removed in the end.
"""

from __future__ import annotations

import io
import os
import select
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress, Task
from pushlane.producers.rows import format_of, prefetched
from pushlane.producers.task_options import TaskOptions, read_payload_file
from pushlane.producers.text_file import Dialect, delimiter_of, encoding_of, without_gz
from pushlane.util.conversion import kind_of, path, text

_STDIN = Path("-")
LONGEST_LABEL = 200
"""The most characters of a name, a key or an app."""

RowsInput = Path | BinaryIO | Iterable[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SubmitRequest(TaskOptions):
    """One task to be made of a file's rows: the task's options, and where the rows come from.

    `source` is the path of a file, `-` or an open binary stream (which need a `format`), or rows in
    memory; all but a file are copied to a temporary file first, since every row is checked before
    the first is published. The task of a file has its name unless it is given one: `sale` for
    `sale.parquet`.
    An empty `key` is none: each submit then makes another task. `delimiter` stands between the
    columns of CSV: a comma unless given, another character or a word such as `tab`. `encoding` is
    that of CSV and JSON Lines: UTF-8 unless given, or what else Python can read text in. `rejects`
    is where bad rows are listed with `bad_rows="skip"`: `FILE.rejects.jsonl` unless given.
    """

    source: RowsInput
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    rejects: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", _source(self.source))
        if self.format is not None:
            object.__setattr__(self, "format", text("format", self.format))
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", delimiter_of(self.delimiter))
        if self.encoding is not None:
            object.__setattr__(self, "encoding", encoding_of(self.encoding))
        if self.rejects is not None:
            object.__setattr__(self, "rejects", path("rejects", self.rejects))

    def complete(self) -> SubmitRequest:
        """Return the request with its payload read, and with its file's name unless it has one.

        A stream has no name, and a file's that no task may have is left out. Raises BadInput when
        the file of the payload cannot be read, or is no JSON object.
        """
        source, name = self.source, self.name
        if not name and isinstance(source, Path) and source != _STDIN and source.is_file():
            stem = without_gz(source).stem.strip()
            name = stem if stem.isprintable() and len(stem) <= LONGEST_LABEL else ""
        if isinstance(self.payload, Path):
            return replace(self, name=name, payload=read_payload_file(self.payload))
        return replace(self, name=name)


def _source(given: Any) -> RowsInput:
    """Raises BadInput for what is no file, no stream and no rows."""
    if isinstance(given, str | PathLike):
        return path("source", given)
    if isinstance(given, Mapping | bytes) or not (
        isinstance(given, Iterable) or hasattr(given, "read")
    ):
        raise BadInput(
            f"source is {kind_of(given)}; give a path, an open binary stream, or rows: an "
            "iterable of mappings"
        )
    return cast(RowsInput, given)


class SubmitStage(StrEnum):
    """A stage of a submit, or of a fan-out, which freezes its rows before it publishes them.

    A list of suppressions is read in the same way, and one of dead addresses is written so.
    """

    READING = "reading"
    CHECKING = "checking"
    FREEZING = "freezing"
    PUBLISHING = "publishing"
    SEALING = "sealing"
    SUPPRESSING = "suppressing"
    LISTING = "listing"


@dataclass(frozen=True)
class SubmitProgress:
    """How far a submit is. `total` is known once all rows are checked; `note` is for the user."""

    stage: SubmitStage
    rows: int = 0
    total: int | None = None
    task_id: str = ""
    note: str = ""


@dataclass(frozen=True)
class SubmitResult:
    """The sealed task of a submit, and what the call did for it.

    `published` counts the rows this call sent, of which the broker keeps each once. `resumed`
    says that an earlier submit of the key had stopped half-way, `already_done` that it had not:
    `progress` is then what has become of that one's pushes, else None.
    `spooled` counts the pushes that wait in a spool, of a task that no dispatcher knows of yet.
    `rejects` is None when no row was bad.
    """

    task: Task
    published: int
    rejected: int = 0
    rejects: Path | None = None
    resumed: bool = False
    already_done: bool = False
    spooled: int = 0
    progress: Progress | None = None


OnProgress = Callable[[SubmitProgress], None]

_BLOCK_BYTES = 1 << 20
_ROWS = 4_096
_PATIENCE_S = 0.2


class RowFile(NamedTuple):
    """A file of rows, its format, what messages call it, and how its text is written."""

    path: Path
    kind: str
    name: str
    dialect: Dialect


@asynccontextmanager
async def as_file(request: SubmitRequest, tell: OnProgress) -> AsyncIterator[RowFile]:
    """Give a file of the request's rows. Raises BadInput without rows."""
    given = request.source
    if isinstance(given, Path) and given != _STDIN and not given.is_fifo():
        if not given.exists():
            raise BadInput(f"{given} does not exist; check the path")
        kind = format_of(given, request.format)
        yield RowFile(given, kind, str(given), _dialect(request, kind))
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
            dialect = _dialect(request, kind)
            copying = copy_stream(_opened(given, opened), copy)
        else:
            kind, name, dialect = "jsonl", "the rows given", _dialect(request, "rows in memory")
            copying = _copy_rows(cast("Iterable[Any]", given), copy)
        async with prefetched(copying) as copied:
            async for _ in copied:
                tell(SubmitProgress(SubmitStage.READING))
        yield RowFile(Path(copy.name), kind, name, dialect)


def _dialect(request: SubmitRequest, kind: str) -> Dialect:
    """Raises BadInput for a delimiter or an encoding of what has none."""
    given = {"delimiter": request.delimiter, "encoding": request.encoding}
    has = {"csv": tuple(given), "jsonl": ("encoding",)}.get(kind, ())
    for name, value in given.items():
        if value is not None and name not in has:
            of = "CSV" if name == "delimiter" else "CSV and JSON Lines"
            raise BadInput(f"--{name} is for {of}, and this is {kind}; leave it out")
    return Dialect(**{name: value for name, value in given.items() if value is not None})


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
    """Copy rows as JSON Lines; yield how many so far. Raises BadInput for what JSON cannot hold."""
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
