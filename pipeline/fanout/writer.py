"""Publishes one Spark partition, on a worker: always the same batches of the same rows.

The rows of a partition have seqs that follow each other. Its first seq names its producer, so a
second attempt at it, or a whole second run, is kept once by the broker. An attempt that meets
another one still at work waits for its end.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lanes.backend import Backend, connect
from lanes.errors import BadInput, TaskConflict
from lanes.naming import submit_lease
from lanes.ports import Source
from lanes.settings import Settings
from producers.ahead import ahead
from producers.hold import Hold, Sleep
from producers.patience import patiently
from producers.publish import Ended, Publication

CHUNK_ROWS = 32_768
_CHUNK_BYTES = 16 * 1024 * 1024
_BUSY_S = 600.0
_BUSY_STEP_S = 0.5

Encode = Callable[[pa.RecordBatch, int], list[bytes]]


class Chunk(list[bytes]):
    """Bodies with seqs from `first_seq` on; ends with a whole batch, but for a partition's last."""

    def __init__(self, first_seq: int, bodies: Iterable[bytes]) -> None:
        super().__init__(bodies)
        self.first_seq = first_seq

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self) - 1


def chunks(
    batches: Iterable[pa.RecordBatch], encode: Encode, batch: int
) -> Generator[Chunk, None, None]:
    """The rows of a partition, cut at multiples of the batch.

    Raises:
        BadInput: seqs that do not follow each other.
    """
    pending: list[bytes] = []
    first_seq = size = 0
    for rows in batches:
        if not rows.num_rows:
            continue
        begins = _first_seq(rows, first_seq + len(pending) if first_seq else 0)
        first_seq = first_seq or begins
        bodies = encode(rows, begins)
        pending += bodies
        size += sum(map(len, bodies))
        if len(pending) >= CHUNK_ROWS or size >= _CHUNK_BYTES:
            whole = len(pending) - (first_seq + len(pending) - 1) % batch
            if whole > 0:
                yield Chunk(first_seq, pending[:whole])
                first_seq, pending = first_seq + whole, pending[whole:]
                size = sum(map(len, pending))
    if pending:
        yield Chunk(first_seq, pending)


def _first_seq(rows: pa.RecordBatch, expected: int) -> int:
    seqs = rows.column("seq").cast(pa.int64())
    first = seqs[0].as_py()
    follow = pc.all(pc.equal(pc.pairwise_diff(seqs)[1:], 1)).as_py()
    if not first or first < 1 or (expected and first != expected) or follow is False:
        raise BadInput(
            "the seqs of a partition do not follow each other from row to row, counted from 1; "
            "sort each partition by seq"
        )
    return int(first)


class PartWriter:
    """Publishes a partition, and writes down how far it is where `progress` says.

    With a `holder` all writers of the task hold its lease together, since nobody else does.
    """

    def __init__(
        self,
        settings: Settings,
        task_id: str,
        encode: Encode,
        collapses: bool,
        progress: Path | None = None,
        holder: str = "",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._task_id = task_id
        self._encode = encode
        self._collapses = collapses
        self._progress = progress
        self._holder = holder
        self._sleep = sleep

    async def run(self, batches: Iterable[pa.RecordBatch]) -> int:
        """How many rows there were. A service that is lost on the way is waited for.

        Raises:
            TaskConflict: the task has ended, or another writer keeps the partition.
            BadInput: seqs that do not follow each other.
        """
        rows = chunks(batches, self._encode, self._settings.batch)
        async with connect(self._settings) as backend, ahead(rows) as coming:
            if not self._holder:
                return await self._send_all(backend, coming)
            busy = f"task {self._task_id} is published by another; wait for its end"
            lease = submit_lease(self._task_id)
            hold = Hold(backend.lease, lease, busy, self._sleep, self._holder, lapses=True)
            return await hold.run(lambda: self._send_all(backend, coming), lambda: None)

    async def _send_all(self, backend: Backend, coming: AsyncIterator[Chunk]) -> int:
        publication = await self._publication(backend)
        count = 0
        async for chunk in coming:
            source = Source(_producer(self._task_id, chunk.first_seq - count), chunk.first_seq)
            if not count:
                self._reach(chunk.first_seq, 0)
            await self._send(publication, chunk, source)
            count += len(chunk)
            self._reach(chunk.last_seq + 1 - count, chunk.last_seq)
        return count

    async def _publication(self, backend: Backend) -> Publication:
        find = partial(backend.registry.get, self._task_id)
        task = await patiently(find, lambda trouble: None, self._sleep)
        return Publication(backend, task, collapses=self._collapses)

    async def _send(self, publication: Publication, chunk: Chunk, source: Source) -> None:
        publish = partial(publication.publish, chunk, source)
        await patiently(lambda: _when_free(publish, self._sleep), lambda trouble: None, self._sleep)

    def _reach(self, begun_with: int, last_seq: int) -> None:
        if self._progress is None:
            return
        path = self._progress / str(begun_with)
        if path.exists() and int(path.read_text() or 0) >= last_seq:
            path.touch()  # another attempt was further already
            return
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        beside.write_text(str(last_seq))
        beside.replace(path)


async def _when_free(publish: Callable[[], Awaitable[None]], sleep: Sleep) -> None:
    """The name is taken while another attempt at the partition is at work, or dying."""
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


def _producer(task_id: str, first_seq: int) -> str:
    return f"fanout-{task_id}-{first_seq}"
