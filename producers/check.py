"""The first pass over the rows makes every one into a push as it will be, and counts them.

Publishes nothing. So a file with a bad row is refused whole, and the total is known from the start.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pushlane.lanes.errors import BadInput
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.producers.chunks import chunk_size, chunks
from pushlane.producers.encoder import Encoder, shown_columns
from pushlane.producers.input import InputFile, OnProgress
from pushlane.producers.prefetch import prefetched
from pushlane.producers.rejects import RejectsFile, Stop
from pushlane.producers.request import SubmitProgress, SubmitRequest, SubmitStage
from pushlane.producers.rows import RowSource
from pushlane.producers.task_builder import describe, hash_file


@dataclass(frozen=True)
class CheckedRows:
    """Rows of which every one can be published as it was checked, unless the file changes.

    `rejects` is None when no row was bad.
    """

    file: InputFile
    signature: tuple[int, int, int]
    source: RowSource
    encoder: Encoder
    accepted: int
    rejected: int
    rejects: Path | None


async def check_rows(
    request: SubmitRequest, file: InputFile, source: RowSource, task: Task, tell: OnProgress
) -> CheckedRows:
    """Count the rows that can be used, and list the others or stop at the first of them.

    Raises:
        BadInput: a column that is not there, a bad row not to be skipped, or no good row.
    """
    signature = file.signature()
    encoder = Encoder(request, source)
    bad = _policy(request, source)
    accepted = 0
    try:
        passes = chunks(source, encoder.wanted, encoder.for_task(task), chunk_size(1), bad.add)
        async with prefetched(passes) as checked:
            async for chunk in checked:
                accepted += len(chunk)
                tell(SubmitProgress(SubmitStage.CHECKING, accepted))
    finally:
        bad.close()
    if accepted == 0:
        raise _nothing_left(source, bad)
    return CheckedRows(file, signature, source, encoder, accepted, bad.count, bad.path)


async def fingerprint(request: SubmitRequest, settings: Settings, file: InputFile) -> str:
    """Return a hash of all that a repeat of the same submit must have in common."""
    digest = hashlib.sha256(describe(request, settings))
    async with prefetched(hash_file(digest, file.path)) as blocks:
        async for _ in blocks:
            pass
    return digest.hexdigest()


def _policy(request: SubmitRequest, source: RowSource) -> Stop | RejectsFile:
    if request.bad_rows == "stop":
        is_varying = source.columns and not source.fixed
        hint = f" (the first row has: {shown_columns(source)})" if is_varying else ""
        return Stop(source, hint)
    given = request.source
    name = str(given) if isinstance(given, Path) and given != Path("-") else "pushlane-submit"
    return RejectsFile(source, request.rejects or Path(f"{name}.rejects.jsonl"))


def _nothing_left(source: RowSource, bad: Stop | RejectsFile) -> BadInput:
    if bad.count == 0:
        return BadInput(f"{source.name} has no rows: there is nothing to submit")
    return BadInput(
        f"no row of {source.name} can be used; {bad.path} says why of each. "
        f"Its columns are: {shown_columns(source)}"
    )
