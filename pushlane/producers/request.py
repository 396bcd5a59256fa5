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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress, Task
from pushlane.model.limits import Limit, given_rate
from pushlane.producers.rows import format_of, prefetched
from pushlane.producers.task_options import TaskOptions, read_payload_file
from pushlane.producers.text_file import Dialect, delimiter_of, encoding_of, without_gz
from pushlane.util.conversion import (
    instance,
    kind_of,
    path,
    text,
    texts,
    whole,
)

_STDIN = Path("-")
LONGEST_LABEL = 200
"""The most characters of a name, a key or an app."""

MOST_TESTED = 20
"""The most addresses that one test goes to."""

RowsInput = Path | BinaryIO | Iterable[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SubmitRequest(TaskOptions):
    """One task to be made of a file's rows: the task's options, and where the rows come from.

    `source` is the path of a file, `-` or an open binary stream (which need a `format`), or rows in
    memory; all but a file are copied to a temporary file first. Every row is checked before the
    first is published. The task of a file has its name unless it is given one: `sale` for
    `sale.parquet`. An empty `key` is none: each submit then makes another task. `delimiter` stands
    between the columns of CSV: a comma unless given, another character or a word such as `tab`.
    `encoding` is that of CSV and JSON Lines: UTF-8 unless given, or what else Python can read text
    in. `rejects` is where bad rows are listed with `bad_rows="skip"`: `FILE.rejects.jsonl` unless
    given; all of them, or the first `most_rejects`. `called` is what a file is named by, in
    messages and as its task, where its path is not what it was.

    `rate_per_s` and `in_flight` are limits that the task has before anything of it can go; the rate
    may be a text like `100/s`. One that is `paused` sends nothing until it is resumed. With `first`
    only so many of the rows are published, and the task stays open: the same request without it
    continues with the rest, so it needs a key. With `test_to` only these addresses get something,
    in a small task of its own (`producers.trial`). `traceparent` (W3C) is the place of the submit
    in a trace: the current span of OpenTelemetry unless given; an invalid one is ignored.
    """

    source: RowsInput
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    rejects: Path | None = None
    most_rejects: int | None = None
    called: str = ""
    rate_per_s: float | None = None
    in_flight: int | None = None
    paused: bool = False
    first: int | None = None
    test_to: tuple[str, ...] = field(default=(), repr=False)
    traceparent: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, converted in _CONVERSIONS.items():
            object.__setattr__(self, name, converted(getattr(self, name)))
        _refuse_together(self)
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
            stem = without_gz(Path(self.called or source)).stem.strip()
            name = stem if stem.isprintable() and len(stem) <= LONGEST_LABEL else ""
        if isinstance(self.payload, Path):
            return replace(self, name=name, payload=read_payload_file(self.payload))
        return replace(self, name=name)

    @property
    def limit(self) -> Limit:
        """The limits of its task, none unless given."""
        return Limit(rate_per_s=self.rate_per_s, in_flight=self.in_flight)

    @property
    def needs_own_lane(self) -> bool:
        """True when its task may have to wait, which no task on a shared lane is to wait for."""
        return self.paused or not self.limit.is_none


def _rate(given: Any) -> float | None:
    if given is None:
        return None
    return _above_0("rate", given_rate("rate", given))


def _above_0(name: str, value: float) -> float:
    if value == 0:
        raise BadInput(
            f"{name} 0 would send nothing of the task; to hold it until you resume it, submit it "
            "--paused (`paused=True`)"
        )
    return value


def _in_flight(given: Any) -> int | None:
    return None if given is None else int(_above_0("in flight", whole("in flight", given, 0)))


def _first(given: Any) -> int | None:
    hint = "; to look at rows and send none: --dry-run"
    return None if given is None else whole("first", given, 1, hint=hint)


def _most_rejects(given: Any) -> int | None:
    return None if given is None else whole("most rejects", given, 1)


def _test_to(given: Any) -> tuple[str, ...]:
    """Raises BadInput without any of the addresses in it."""
    found = tuple(dict.fromkeys(one.strip() for one in texts("test_to", given)))
    if not all(found):
        raise BadInput("an address to test with is empty; give one, or several between commas")
    if len(found) > MOST_TESTED:
        raise BadInput(f"{len(found)} addresses to test with; give at most {MOST_TESTED}")
    return found


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "rate_per_s": _rate,
    "in_flight": _in_flight,
    "paused": lambda given: instance("paused", given, bool),
    "first": _first,
    "most_rejects": _most_rejects,
    "test_to": _test_to,
    "traceparent": lambda given: text("traceparent", given),
}


def _refuse_together(request: SubmitRequest) -> None:
    if request.first is not None and request.test_to:
        raise BadInput(
            f"--first {request.first} sends to the first recipients of the file, --test-to to none "
            "of them; leave one of the two out"
        )
    if request.first is not None and not request.key:
        raise BadInput(
            f"--first {request.first} needs a --key: by that the same command without --first goes "
            "on with the rest, each push once; add one, like --key sale-1"
        )


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
class Submitted:
    """The task of a submit, and what the call did for it. With `first` the task stays open.

    `published` counts the rows this call sent, of which the broker keeps each once. `resumed`
    says that an earlier submit of the key had stopped half-way, `already_done` that it had not:
    `progress` is then what has become of that one's pushes, else None.
    `spooled` counts the pushes that wait in a spool, of a task that no dispatcher knows of yet.
    `rejects` is None when no row was bad. `part` is, with `first`, how many of the task's pushes,
    `accepted` in all, are submitted by now; else None. `limit` is what a task for which limits were
    asked is limited to: those that it had stay.
    """

    task: Task
    published: int
    rejected: int = 0
    rejects: Path | None = None
    resumed: bool = False
    already_done: bool = False
    spooled: int = 0
    progress: Progress | None = None
    part: int | None = None
    accepted: int = 0
    limit: Limit | None = None


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
    if (file := file_in_place(request)) is not None:
        yield file
        return
    given = request.source
    is_stream = isinstance(given, Path) or hasattr(given, "read")
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


def file_in_place(request: SubmitRequest) -> RowFile | None:
    """Return the file that is read where it is, None for rows that are copied first.

    Raises BadInput when there is no such file, or when the format is not known.
    """
    given = request.source
    if isinstance(given, Path) and given != _STDIN and not given.is_fifo():
        if not given.exists():
            raise BadInput(f"{given} does not exist; check the path")
        return row_file(request, given)
    is_stream = isinstance(given, Path) or hasattr(given, "read")
    if is_stream and request.format is None:
        raise BadInput(
            "stdin has no file name that shows its format: add --format csv, jsonl or parquet"
        )
    return None


def row_file(request: SubmitRequest, path: Path) -> RowFile:
    """Return the file at a path, as the request says that it is written. Raises BadInput."""
    name = request.called or str(path)
    kind = format_of(Path(name), request.format)
    return RowFile(path, kind, name, _dialect(request, kind))


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
    for count, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {count} is a {type(row).__name__}, not a mapping")
        try:
            lines.append(encode(dict(row)) + b"\n")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"row {count} holds a value that JSON cannot") from error
        if count % _ROWS == 0:
            _write(file, b"".join(lines))
            lines.clear()
            yield count
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
