"""The first pass over the rows makes every one into a push as it will be, and counts them.

Publishes nothing. So a file with a bad row is refused whole, and the total is known from the start.
A second pass gives the same pushes in the same chunks, unless the file has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from pushlane.core.errors import BadInput
from pushlane.core.publish import chunk_size
from pushlane.core.task import Task
from pushlane.producers.encoder import Encoder, EncodeRow, recipient_hint, shown_columns
from pushlane.producers.request import (
    OnProgress,
    RowFile,
    SubmitProgress,
    SubmitRequest,
    SubmitStage,
    as_file,
    file_in_place,
)
from pushlane.producers.rows import (
    BadRow,
    RowSource,
    Wanted,
    content,
    open_source,
    prefetched,
)
from pushlane.producers.task_builder import (
    DESCRIBED,
    describe,
    described,
    new_task,
    other_content,
    short_hashes,
)
from pushlane.producers.trial import TrialRows, trial_of
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits, payload_limits
from pushlane.util.trace_context import submitters_traceparent

_POSSIBLE = (
    "rows or options (level, quota, app, columns, order, dedupe, quiet hours, templates, delivery, "
    "bad rows, batch)"
)

OnBad = Callable[[int, BadRow], None]
LimitsOf = Callable[[SubmitRequest, Task], Awaitable[PayloadLimits]]
"""Returns the limits of a new task's sinks. Raises BadInput when nobody knows one of them."""


@dataclass(frozen=True)
class CheckedRows:
    """Rows of which every one can be published as it was checked, unless the file changes.

    `rejects` is None when no row was bad; `empty` counts bad ones that only a silent task may have.
    """

    path: Path
    signature: tuple[int, int, int]
    source: RowSource
    encoder: Encoder
    limits: PayloadLimits
    accepted: int
    rejected: int
    empty: int
    rejects: Path | None

    def chunks(self, task: Task, size: int) -> Generator[list[bytes], None, None]:
        """Yield the pushes for the task again. Raises BadInput when the file cannot be read."""
        encode_row = self.encoder.for_task(task, self.limits)
        return _chunks(self.source, self.encoder.wanted, encode_row, size, lambda *_: None)

    def refuse_changed(self, read: int, advice: str = "") -> None:
        """Raises BadInput when what was `read` of the file are not the rows that were checked."""
        if _signature(self.path) != self.signature or read != self.accepted:
            raise BadInput(f"{self.source.name} changed while it was submitted{advice}")


@asynccontextmanager
async def first_pass(
    request: SubmitRequest, settings: Settings, tell: OnProgress, limits_of: LimitsOf | None = None
) -> AsyncIterator[tuple[SubmitRequest, Task, CheckedRows]]:
    """Give the request as it is submitted, its task, and its rows, checked.

    The limits of sinks are those of the settings, unless `limits_of` asks others for them. The task
    has a fingerprint of the rows if it has a key. Rows that cannot be used are listed, or stop it
    all at the first of them. Raises BadInput for a task that cannot be made, a file or column that
    is not there, a bad row not to be skipped, or no good row.
    """
    request, task = _prepared(request, settings)
    task = replace(task, traceparent=submitters_traceparent(request.traceparent))
    own = payload_limits(settings, task.chain)
    limits = own if limits_of is None else await limits_of(request, task)
    async with as_file(request, tell) as file:
        source = await asyncio.to_thread(_opened, request, file)
        rows = await _checked(request, file.path, source, task, limits, tell)
        if request.key:
            task = await _fingerprinted(task, request, settings, file, rows)
        yield request, task, rows


def refuse_at_once(request: SubmitRequest, settings: Settings) -> None:
    """Raise BadInput for options or a file that cannot be used, before any connection.

    Where a store would be made for it, the file's columns are looked at, too; rows never are.
    """
    request, _ = _prepared(request, settings)
    if (file := file_in_place(request)) is not None:
        source = _opened(request, file)
        if settings.is_store_missing:
            Encoder(request, source)


def _prepared(request: SubmitRequest, settings: Settings) -> tuple[SubmitRequest, Task]:
    """Return the request as it is submitted, and its task. Raises BadInput for a bad option."""
    request = request.complete()
    if request.test_to:
        request = trial_of(request)
    return request, new_task(request, settings, on_own_lane=request.needs_own_lane)


def _opened(request: SubmitRequest, file: RowFile) -> RowSource:
    source = open_source(*file)
    return TrialRows(source, request) if request.test_to else source


async def _checked(
    request: SubmitRequest,
    path: Path,
    source: RowSource,
    task: Task,
    limits: PayloadLimits,
    tell: OnProgress,
) -> CheckedRows:
    signature = _signature(path)
    encoder = Encoder(request, source)
    given = request.source
    name = str(given) if isinstance(given, Path) and given != Path("-") else "pushlane-submit"
    path_of_rejects = request.rejects or Path(f"{name}.rejects.jsonl")
    rejects = RejectsFile(path_of_rejects, source.unit, request.most_rejects)
    on_bad = rejects.add if request.bad_rows == "skip" else _stop(source, request.recipient)
    accepted = 0
    try:
        encode_row = encoder.for_task(task, limits)
        passes = _chunks(source, encoder.wanted, encode_row, chunk_size(1), on_bad)
        async with prefetched(passes) as checked:
            async for chunk in checked:
                accepted += len(chunk)
                tell(SubmitProgress(SubmitStage.CHECKING, accepted))
    finally:
        rejects.close()
    listed = rejects.path if rejects.count else None
    if accepted == 0 and listed is None:
        raise BadInput(f"{source.name} has no rows: there is nothing to submit")
    if accepted == 0:
        raise BadInput(
            f"no row of {source.name} can be used; {listed} says why for each. Its columns are: "
            f"{shown_columns(source)}"
        )
    counts = accepted, rejects.count, rejects.empty
    return CheckedRows(path, signature, source, encoder, limits, *counts, listed)


def _chunks(
    source: RowSource, wanted: Wanted, encode_row: EncodeRow, size: int, on_bad: OnBad
) -> Generator[list[bytes], None, None]:
    """Yield encoded rows, numbered from 1; bad ones go to `on_bad` and take no number."""
    chunk: list[bytes] = []
    seq = 1
    try:
        for number, values in source.rows(wanted):
            packed = values if isinstance(values, BadRow) else encode_row(seq, values)
            if isinstance(packed, BadRow):
                on_bad(number, packed)
                continue
            chunk.append(packed)
            seq += 1
            if len(chunk) == size:
                yield chunk
                chunk = []
    except OSError as error:
        raise BadInput(
            f"{source.name} cannot be read any further: {error.strerror or error}"
        ) from error
    if chunk:
        yield chunk


def _signature(path: Path) -> tuple[int, int, int]:
    """Return numbers that change when the file does."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


async def _fingerprinted(
    task: Task, request: SubmitRequest, settings: Settings, file: RowFile, checked: CheckedRows
) -> Task:
    """Return the task with hashes of all that a repeat of the same submit must have in common.

    Whether it is silent counts only where rows were left out, so that a submit which an older
    version has begun, and which takes such rows, can be gone on with.
    """
    digest = hashlib.sha256(describe(request, settings, checked.limits))
    rows = 0

    def add_file() -> Generator[None, None, None]:
        nonlocal rows
        for block in content(*file):
            digest.update(block)
            rows = zlib.crc32(block, rows)
            yield

    async with prefetched(add_file()) as blocks:
        async for _ in blocks:
            pass
    if checked.empty:
        digest.update(b"without empty rows")
    made_of = described(request, settings, checked.limits)
    parts = (rows, bool(checked.empty), *made_of.values())
    return replace(task, fingerprint=digest.hexdigest(), made_of=short_hashes(parts))


def refuse_other(task: Task, kept: Task) -> None:
    """Raise TaskConflict, with what differs, if the `kept` task of the key was made otherwise."""
    if kept.fingerprint != task.fingerprint:
        raise other_content(task, kept, ("rows", "silent", *DESCRIBED), _POSSIBLE)


def _stop(source: RowSource, recipient: str) -> OnBad:
    """Return what refuses the file at its first bad row."""
    hint = ""
    if source.columns and not source.fixed:
        lacks = recipient not in source.columns
        add = recipient_hint(recipient, source.columns) if lacks else ""
        hint = f" (the first row has: {shown_columns(source)}{add})"

    def stop(number: int, bad: BadRow) -> None:
        place = f":{number}" if source.unit == "line" else f", row {number},"
        raise bad.error(
            f"{source.name}{place} {bad.reason}{hint}. Nothing was published; correct the row, or "
            "leave bad rows out with --bad-rows skip"
        )

    return stop


class RejectsFile:
    """Lists bad rows as JSON lines, number and reason alone; the first of them makes the file.

    With `most` only so many are listed; `count` has all.
    """

    def __init__(self, path: Path, unit: str, most: int | None = None) -> None:
        self.path = path
        self._most = most
        self.count = self.empty = 0
        self._unit = unit
        self._file: IO[bytes] | None = None

    def add(self, number: int, bad: BadRow) -> None:
        self.count += 1
        self.empty += bad.is_empty
        if self._most is not None and self.count > self._most:
            return
        line = msgspec.json.encode({self._unit: number, "reason": bad.reason})
        try:
            if self._file is None:
                self._file = self.path.open("wb")
            self._file.write(line + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> BadInput:
        return BadInput(
            f"bad rows cannot be listed in {self.path}: {error.strerror or error}; "
            "give another file with --rejects"
        )
