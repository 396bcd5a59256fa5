"""Keeps records that cannot be a push in a file, with where they were and why."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from pushlane.core.errors import BadInput, Unreachable, UserError
from pushlane.ingest.record import Record

MOST_BYTES = 1 << 30
MOST_IN_A_ROW = 1_000
_KEPT = 64 * 1024


class BadRecords(UserError):
    """So many records cannot be a push that something else is wrong."""


class Bad(NamedTuple):
    """A record that cannot be a push, and why."""

    record: Record
    why: str


class _Line(msgspec.Struct, frozen=True):
    source: str
    partition: str
    offset: int
    reason: str
    bytes: int
    key: str | None
    value: str


@dataclass(eq=False)
class BadRecordFile:
    """The file of bad records of one source; without a path the first one ends it.

    It holds the first 64 KiB of each in base64, is readable by its owner alone, and has at most
    1 GiB. Several processes of one machine may share it.
    """

    source: str
    path: Path | None
    count: int = 0
    _in_a_row: int = 0

    def good(self) -> None:
        """Note that a record became a push, or was left out."""
        self._in_a_row = 0

    def keep(self, some: Sequence[Bad]) -> None:
        """Return once all of these are durable.

        Raises:
            BadRecords: no bad one is to be passed over, or these are too many in a row.
            BadInput: the file is full.
            Unreachable: the disk does not take them now.
        """
        first = some[0]
        where = f"record {first.record.offset} of partition {first.record.partition}"
        if self.path is None:
            raise BadRecords(
                f"{where} of {self.source} {first.why}; fix the mapping or the source, or keep "
                "bad records in a file: --bad FILE"
            )
        self._append(self.path, some)
        self.count += len(some)
        self._in_a_row += len(some)
        if self._in_a_row >= MOST_IN_A_ROW:
            raise BadRecords(
                f"{self._in_a_row:,} records of {self.source} in a row cannot become pushes; "
                f"{where} {first.why}. They are in {self.path}; fix the mapping, or leave them "
                "out with `when`"
            )

    def _append(self, path: Path, some: Sequence[Bad]) -> None:
        lines = b"".join(msgspec.json.encode(self._line(bad)) + b"\n" for bad in some)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(file).st_size + len(lines) > MOST_BYTES:
                    raise BadInput(
                        f"{path} has {MOST_BYTES >> 30} GiB of bad records, and takes no more; "
                        "look at them, and move it away"
                    )
                with open(file, "ab", closefd=False) as writing:
                    writing.write(lines)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise Unreachable(
                f"{path}: bad records cannot be written: {error.strerror or error}"
            ) from error

    def _line(self, bad: Bad) -> _Line:
        record, value = bad.record, bad.record.value or b""
        key = None if record.key is None else base64.b64encode(record.key[:_KEPT]).decode()
        cut = base64.b64encode(value[:_KEPT]).decode()
        of = self.source, record.partition, record.offset, bad.why, len(value), key, cut
        return _Line(*of)
