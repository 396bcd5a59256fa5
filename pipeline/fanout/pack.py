"""Makes the bytes of a push of each row, on a Spark worker, by the same encoder as a submit.

The seq is left open: it is known only when all rows are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lanes.push import MAX_SEQ, head, tail
from lanes.task import Task
from producers.encoder import Encoder
from producers.request import SubmitRequest
from producers.rows import BadRow, Row, Wanted
from producers.template import Template

RECIPIENT = "__recipient"
_RENDERED = {"title": "__title", "body": "__body", "collapse": "__collapse"}

SCHEMA = "packed binary, reason string"

Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass
class Columns:
    """Rows that are known by their columns alone, as an encoder asks for them."""

    name: str
    columns: tuple[str, ...]
    unit: str = "row"
    fixed: bool = True

    def rows(self, wanted: Wanted) -> Iterator[Row]:
        """None: they come from Spark."""
        return iter(())


def templates(request: SubmitRequest) -> dict[str, str]:
    """Those that take something from the row, by the column that they are rendered into."""
    texts = {column: str(getattr(request, name)) for name, column in _RENDERED.items()}
    return {column: text for column, text in texts.items() if Template(text).fields}


def from_rendered(request: SubmitRequest) -> SubmitRequest:
    """The same request of rows that have their recipients and texts in columns already."""
    rendered = templates(request)
    fields: dict[str, Any] = {n: f"{{{c}}}" for n, c in _RENDERED.items() if c in rendered}
    return replace(request, recipient=RECIPIENT, **fields)


def row_encoder(request: SubmitRequest, columns: Sequence[str], name: str = "") -> Encoder:
    """Raises BadInput when a column or a template's field is not there."""
    return Encoder(request, Columns(name, tuple(columns)))


def packing(request: SubmitRequest, task: Task, columns: Sequence[str]) -> Step:
    """A step of mapInArrow: from rows to packed pushes, or the reason why there is none."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = row_encoder(request, columns)
        encode_row = encoder.for_task(task)
        start = head(task.id)
        for batch in batches:
            made = [encode_row(MAX_SEQ, row) for row in values(batch, encoder.wanted)]
            packed = [tail(start, one) if isinstance(one, bytes) else None for one in made]
            reasons = [one.reason if isinstance(one, BadRow) else None for one in made]
            yield pa.record_batch(
                [pa.array(packed, pa.binary()), pa.array(reasons, pa.string())],
                names=["packed", "reason"],
            )

    return step


def values(batch: pa.RecordBatch, wanted: Wanted) -> Iterable[tuple[Any, ...]]:
    """The rows of a batch, each as the values that an encoder wants."""
    return zip(*(batch.column(name).to_pylist() for name in wanted.names), strict=True)
