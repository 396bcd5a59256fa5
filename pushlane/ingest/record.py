"""A record of a source, by its partition and offset there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pushlane.core.errors import PushlaneError
from pushlane.util.trace_context import given_traceparent


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

    @property
    def traceparent(self) -> str:
        """Its place in a trace by its last header of that name; empty for none, or a bad one."""
        given = [value or b"" for name, value in self.headers if name == "traceparent"]
        return given_traceparent(given[-1].decode("latin-1")) if given else ""

    @property
    def tracestate(self) -> str:
        """What its headers of that name say together, whether it may travel or not."""
        given = (value or b"" for name, value in self.headers if name == "tracestate")
        return b",".join(given).decode("latin-1")

    def __repr__(self) -> str:
        return f"Record({self.partition}, {self.offset})"


class BadRecord(PushlaneError):
    """Why a record cannot be a push: names fields, never what they hold."""
