"""What a submit is asked for, what it reports on its way, and what it comes to.

Plain frozen values; producers.submit acts on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pushlane.lanes.task import DeliveryMode, Level, OnUnknown, Task

RowsInput = Path | BinaryIO | Iterable[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SubmitRequest:
    """One task to be made of a file's rows.

    `source` is a file, `-` or an open binary stream (which need a `format`), or rows in memory; all
    but a file are copied to a temporary file first, since every row is checked before the first is
    published. `data` names columns that go along in `Push.data`; rows with the same value in the
    column `ordered_by` are sent one after another. `dedupe` leaves out later rows of a recipient.
    `collapse` is a template: of an app's pushes to a recipient for which it gives the same text,
    only the newest that waits is sent. `attributes` and `trace_id` name columns for its receipts
    alone, by which reports can tell pushes apart. `rejects` is where bad rows are listed with
    `bad_rows="skip"`: `FILE.rejects.jsonl` unless given. `max_attempts` is the settings' own unless
    given. `not_before_ms` is when the task starts, 0 for now; an expiry of 0 means never. The
    columns of start and expiry are for single pushes. The lane is kept for `retention_s` after the
    task's end, the settings' own time unless given; a low task that is given one has a lane of its
    own. In the hours `quiet` (like 22:00-08:00)
    recipients are left alone, by the clock of `zone_column`, else of `zone`, else UTC. `delivery`
    is what is promised of each push (docs/guarantees.md), and `on_unknown` what becomes of a `once`
    push of which nobody can tell whether it arrived: it is sent again unless given.
    """

    source: RowsInput
    level: Level
    recipient: str = "recipient"
    title: str = ""
    body: str = ""
    data: tuple[str, ...] = ()
    ordered_by: str = ""
    dedupe: Literal["", "recipient"] = ""
    collapse: str = ""
    attributes: tuple[str, ...] = ()
    trace_id: str = ""
    format: str | None = None
    quota: int = 1
    name: str = ""
    key: str = ""
    app: str = "default"
    not_before_ms: int = 0
    not_before_column: str = ""
    expires_column: str = ""
    quiet: str = ""
    zone: str = ""
    zone_column: str = ""
    expires_at_ms: int = 0
    retention_s: float | None = None
    max_attempts: int | None = None
    delivery: DeliveryMode = DeliveryMode.AT_LEAST_ONCE
    on_unknown: OnUnknown | None = None
    bad_rows: Literal["stop", "skip"] = "stop"
    rejects: Path | None = None


class SubmitStage(StrEnum):
    """Of a submit, or of a fan-out, which freezes its rows before it publishes them."""

    READING = "reading"
    CHECKING = "checking"
    FREEZING = "freezing"
    PUBLISHING = "publishing"
    SEALING = "sealing"


@dataclass(frozen=True)
class SubmitProgress:
    """How far it is. `total` is known once all rows are checked; a `note` is for the user."""

    stage: SubmitStage
    rows: int = 0
    total: int | None = None
    task_id: str = ""
    note: str = ""


@dataclass(frozen=True)
class SubmitResult:
    """The sealed task.

    `published` counts the rows this call sent, of which the broker keeps each once. `resumed`
    says that an earlier submit of the key had stopped half-way, `already_done` that it had not.
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
