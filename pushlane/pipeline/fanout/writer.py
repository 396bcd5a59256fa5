"""Packs rows into bundles on a Spark worker, as a submit does, and publishes a partition of them.

The first seq of a bundle is left open until all rows are counted. The pushes of a partition have
consecutive seqs, of which the first names its producer, so the broker keeps one copy of a second
attempt or a whole second run. An attempt that meets another one still at work waits for its end.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pushlane.backends.backend import Backend, connect
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.publish import Ended, Publication
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task
from pushlane.model.names import submit_lease
from pushlane.producers.encoder import Encoder
from pushlane.producers.published import announcing
from pushlane.producers.request import SubmitRequest
from pushlane.producers.rows import BadRow, Row, Wanted, prefetched
from pushlane.producers.template import Template
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.util.retrying import Sleep, until_reachable
from pushlane.wire import Packed, fields_of, fits, unnumbered

T = TypeVar("T")

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
    misfit: str = "not UTF-8"
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


_CHUNK_PUSHES = 131_072
_CHUNK_BYTES = 16 * 1024 * 1024
_BUSY_S = 600.0
_BUSY_STEP_S = 0.5

SEQS_DO_NOT_FOLLOW = (
    "the seqs of a partition do not follow each other from row to row, counted from 1; sort each "
    "partition by seq"
)

Chunk = list[Packed]


def chunks(bundles: Iterable[Packed]) -> Generator[Chunk, None, None]:
    """Group a partition's bundles for one publish each; raises BadInput if a seq is left out."""
    chunk: Chunk = []
    pushes = size = last_seq = 0
    for bundle in bundles:
        first_seq = bundle.last_seq - bundle.pushes + 1
        if first_seq < 1 or (last_seq and first_seq != last_seq + 1):
            raise BadInput(SEQS_DO_NOT_FOLLOW)
        chunk.append(bundle)
        last_seq = bundle.last_seq
        pushes += bundle.pushes
        size += len(bundle.message)
        if pushes >= _CHUNK_PUSHES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, pushes, size = [], 0, 0
    if chunk:
        yield chunk


@dataclass(frozen=True, eq=False, repr=False)
class PartWriter:
    """Publishes a partition, and stores its progress in the folder `progress`.

    With a `holder`, all writers of the task hold its lease together; without one, the caller holds
    it.
    """

    settings: Settings
    task_id: str
    collapses: bool
    progress: Path | None = None
    holder: str = ""
    sleep: Sleep = asyncio.sleep

    async def run(self, bundles: Iterable[Packed]) -> int:
        """Publish the bundles and return how many pushes they had.

        A service that goes away meanwhile is waited for. Raises what `chunks` does, and
        TaskConflict if the task has ended, or another writer keeps the partition.
        """
        async with connect(self.settings) as backend, prefetched(chunks(bundles)) as coming:
            if not self.holder:
                return await self._send_all(backend, coming)
            busy = f"task {self.task_id} is published by another; wait for its end"
            lease = submit_lease(self.task_id)
            hold = LeaseGuard(backend.lease, lease, busy, self.sleep, self.holder, lapses=True)
            return await hold.run(lambda: self._send_all(backend, coming), lambda: None)

    async def _send_all(self, backend: Backend, coming: AsyncIterator[Chunk]) -> int:
        task = await self._patiently(partial(backend.registry.get, self.task_id))
        publication = Publication(backend, task, announce=announcing(backend, self.collapses))
        first_seq = 0
        async for chunk in coming:
            if not first_seq:
                first_seq = chunk[0].last_seq - chunk[0].pushes + 1
                self._reach(first_seq, 0)
            name = f"fanout-{self.task_id}-{first_seq}"
            publish = partial(publication.publish_packed, chunk, name)
            await self._patiently(partial(_when_free, publish, self.sleep))
            self._reach(first_seq, chunk[-1].last_seq)
        return publication.published

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        return await until_reachable(work, lambda trouble: None, self.sleep)

    def _reach(self, begun_with: int, last_seq: int) -> None:
        if self.progress is None:
            return
        path = self.progress / str(begun_with)
        if path.exists() and int(path.read_text() or 0) >= last_seq:
            path.touch()  # another attempt was further already
            return
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        beside.write_text(str(last_seq))
        beside.replace(path)


async def _when_free(publish: Callable[[], Awaitable[None]], sleep: Sleep) -> None:
    """Publish once the producer's name is free: another attempt may be at work, or dying."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            return await publish()
        except Ended:
            raise
        except TaskConflict:
            if time.monotonic() > deadline:
                raise
        await sleep(_BUSY_STEP_S)
