"""Deals with rows that cannot be used: the submit stops, or a file lists each of them.

A listed row is its number and the reason, never what the row holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from pushlane.lanes.errors import BadInput
from pushlane.producers.rows import BadRow, RowSource


class Stop:
    """Refuses the file at its first bad row."""

    count = 0
    path: Path | None = None

    def __init__(self, source: RowSource, hint: str) -> None:
        self._source = source
        self._hint = hint

    def add(self, number: int, bad: BadRow) -> None:
        place = f":{number}" if self._source.unit == "line" else f", row {number},"
        raise bad.error(
            f"{self._source.name}{place} {bad.reason}{self._hint}. Nothing was published; correct "
            "the row, or leave bad rows out with --bad-rows skip"
        )

    def close(self) -> None:
        return


class RejectsFile:
    """Lists bad rows as JSON lines. The file is made with the first of them."""

    def __init__(self, source: RowSource, path: Path) -> None:
        self._unit = source.unit
        self._target = path
        self._file: IO[bytes] | None = None
        self.count = 0

    @property
    def path(self) -> Path | None:
        return self._target if self.count else None

    def add(self, number: int, bad: BadRow) -> None:
        try:
            if self._file is None:
                self._file = self._target.open("wb")
            self._file.write(
                msgspec.json.encode({self._unit: number, "reason": bad.reason}) + b"\n"
            )
        except OSError as error:
            raise self._unwritable(error) from error
        self.count += 1

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> BadInput:
        return BadInput(
            f"bad rows cannot be listed in {self._target}: {error.strerror or error}; "
            "give another file with --rejects"
        )
