"""A record of a source, by its partition and offset there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pushlane.core.errors import PushlaneError


class Record(NamedTuple):
    """One record. Offsets rise within a partition, and need not follow each other.

    `timestamp_ms` is when the source got it, in Unix milliseconds, 0 where it does not say. A
    record without a `value` is a tombstone.
    """

    partition: str
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()

    def __repr__(self) -> str:
        return f"Record({self.partition}, {self.offset})"


class BadRecord(PushlaneError):
    """Why a record cannot be a push: names fields, never what they hold."""
