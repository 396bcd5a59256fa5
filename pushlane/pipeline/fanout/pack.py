"""Packs rows into bundles on a Spark worker, with the same encoder as a submit.

The first seq of each bundle is left open, because it is known only when all rows are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task
from pushlane.producers.encoder import Encoder
from pushlane.producers.request import SubmitRequest
from pushlane.producers.rows import BadRow, Row, Wanted
from pushlane.producers.template import Template
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.wire import fields_of, fits, unnumbered

RECIPIENT = "__recipient"
_RENDERED = {"title": "__title", "body": "__body", "collapse": "__collapse"}

SCHEMA = "packed binary, place bigint, pushes int, reason string"
"""The columns of a packed row: a bundle without its beginning, how many pushes come before it in
its partition, and how many it has; or else the reason why a row cannot be used.
"""

Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass
class Columns:
    """A source that knows its columns but holds no rows, as an encoder needs it."""

    name: str
    columns: tuple[str, ...]
    unit: str = "row"
    fixed: bool = True

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        """Return no rows: they come from Spark."""
        return iter(())


def templates(request: SubmitRequest) -> dict[str, str]:
    """Return the templates that use fields of the row, by the column they are rendered into."""
    texts = {column: str(getattr(request, name)) for name, column in _RENDERED.items()}
    return {column: text for column, text in texts.items() if Template(text).fields}


def from_rendered(request: SubmitRequest) -> SubmitRequest:
    """Return the same request for rows whose recipients and texts are in columns already."""
    rendered = templates(request)
    fields: dict[str, Any] = {n: f"{{{c}}}" for n, c in _RENDERED.items() if c in rendered}
    return replace(request, recipient=RECIPIENT, **fields)


def row_encoder(request: SubmitRequest, columns: Sequence[str], name: str = "") -> Encoder:
    """Make an encoder for these columns; raises BadInput if one that is used is not there."""
    return Encoder(request, Columns(name, tuple(columns)))


def packing(
    request: SubmitRequest, task: Task, limits: PayloadLimits, columns: Sequence[str]
) -> Step:
    """Return a step for mapInArrow that turns the rows of a partition into bundles and bad rows."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = row_encoder(request, columns)
        encode_row = encoder.for_task(task, limits)
        bundles = _Bundles(task.bundle)
        for batch in batches:
            for row in values(batch, encoder.wanted):
                bundles.add(encode_row(MAX_SEQ, row))
            yield bundles.flush()
        bundles.close()
        yield bundles.flush()

    return step


class _Bundles:
    """Collects the bundles of a partition; `flush` returns those that are complete."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: list[bytes] = []
        self._bytes = 0
        self._place = 0
        self._rows: list[tuple[bytes | None, int, int, str | None]] = []

    def add(self, made: bytes | BadRow) -> None:
        if isinstance(made, BadRow):
            self._rows.append((None, 0, 0, made.reason))
            return
        fields = fields_of(made)
        if self._open and not fits(self._bytes, fields):
            self.close()
        self._open.append(fields)
        self._bytes += len(fields)
        if len(self._open) == self._most:
            self.close()

    def close(self) -> None:
        if not self._open:
            return
        count = len(self._open)
        self._rows.append((unnumbered(self._open), self._place, count, None))
        self._place += count
        self._open, self._bytes = [], 0

    def flush(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, []
        columns = zip(*rows, strict=True) if rows else ([], [], [], [])
        return pa.record_batch(
            [pa.array(list(values), kind) for values, kind in zip(columns, _TYPES, strict=True)],
            names=["packed", "place", "pushes", "reason"],
        )


_TYPES = (pa.binary(), pa.int64(), pa.int32(), pa.string())


def values(batch: pa.RecordBatch, wanted: Wanted) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a batch, each as the values that an encoder wants."""
    return zip(*(batch.column(name).to_pylist() for name in wanted.names), strict=True)
