"""The frozen values of a submit: its request, the progress it reports, and its result.

`producers.submit` acts on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress, Task
from pushlane.producers.payload_file import read_payload_file
from pushlane.producers.task_options import TaskOptions
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
    An empty `key` is none: each submit then makes another task. `rejects` is where bad rows are
    listed with `bad_rows="skip"`: `FILE.rejects.jsonl` unless given.
    """

    source: RowsInput
    format: str | None = None
    rejects: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", _source(self.source))
        if self.format is not None:
            object.__setattr__(self, "format", text("format", self.format))
        if self.rejects is not None:
            object.__setattr__(self, "rejects", path("rejects", self.rejects))

    def complete(self) -> SubmitRequest:
        """Return the request with its payload read, and with its file's name unless it has one.

        A stream has no name, and a file's that no task may have is left out.

        Raises:
            BadInput: the file of the payload cannot be read, or is no JSON object.
        """
        name = self.name or _name_of(self.source)
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


def _name_of(source: RowsInput) -> str:
    if not isinstance(source, Path) or source == _STDIN or not source.is_file():
        return ""
    name = source.stem.strip()
    return name if name.isprintable() and len(name) <= LONGEST_LABEL else ""


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
