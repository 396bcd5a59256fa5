"""A Spark data source that publishes the rows of a DataFrame: `df.write.format("pushlane")`.

It is for use in anybody's own job. Register it once a session:
`spark.dataSource.register(PushlaneDataSource)`. The DataFrame has a column `seq`: 1, 2, 3 … over
all partitions, in order inside each; and the columns that the task spec names. Options: `spec` (a
TOML file on the driver) and `key` (one task, however often the write is repeated). The same write
repeated after a failure adds what is missing, as long as its rows and partitions are the same:
write them to Parquet first, and read that.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.publish import Publication
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.pipeline.fanout.writer import SEQS_DO_NOT_FOLLOW, PartWriter, row_encoder, values
from pushlane.pipeline.spec import load_spec
from pushlane.producers.published import refuse_outdated
from pushlane.producers.request import SubmitRequest
from pushlane.producers.rows import BadRow
from pushlane.producers.task_builder import (
    DESCRIBED,
    describe,
    described,
    new_task,
    other_content,
    refuse_stopped,
    short_hashes,
)
from pushlane.settings import Settings, load
from pushlane.settings.payload_limits import payload_limits
from pushlane.wire import packed


@dataclass
class Written(WriterCommitMessage):
    """A worker's message to the driver: how many rows its partition had."""

    rows: int


class PushlaneDataSource(DataSource):
    """The data source; its settings come from `PUSHLANE_*` and `pushlane.toml` on the driver."""

    settings: Settings | None = None

    @classmethod
    def name(cls) -> str:
        return "pushlane"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise BadInput("what is on a lane cannot be overwritten; use mode('append')")
        if "seq" not in schema.fieldNames():
            raise BadInput("the rows have no column 'seq': 1, 2, 3 … over all of them, in order")
        settings = self.settings or load()
        for option in ("spec", "key"):
            if option not in self.options:
                raise BadInput(f'a write to pushlane needs .option("{option}", …)')
        spec = load_spec(Path(self.options["spec"]))
        request = spec.request(task_changes.now_ms(), self.options["key"])
        row_encoder(request, schema.fieldNames(), "the DataFrame")
        return TaskWriter(settings, request, asyncio.run(_opened(settings, request)))


@dataclass(eq=False, repr=False)
class TaskWriter(DataSourceArrowWriter):
    """Writes rows as the spec describes them, and seals the task after the last partition."""

    settings: Settings
    request: SubmitRequest
    task: Task

    def write(self, iterator: Iterable[pa.RecordBatch]) -> Written:
        if self.task.total is not None:  # by an earlier run: only count what there is
            return Written(sum(rows.num_rows for rows in iterator))
        holder = f"write-{self.task.id}"
        collapses = bool(self.request.collapse)
        writer = PartWriter(self.settings, self.task.id, collapses, holder=holder)
        bundles = packed(self._bodies(iterator), self.task.bundle)
        return Written(asyncio.run(writer.run(bundles)))

    def _bodies(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Encode the rows; raises BadInput for an unusable row, or one without the next seq."""
        last_seq = 0
        limits = payload_limits(self.settings, self.task.chain)
        for rows in batches:
            encoder = row_encoder(self.request, rows.schema.names, "the DataFrame")
            encode_row = encoder.for_task(self.task, limits)
            seqs = rows.column("seq").to_pylist()
            for seq, row in zip(seqs, values(rows, encoder.wanted), strict=True):
                if not isinstance(seq, int) or not 1 <= seq <= MAX_SEQ:
                    raise BadInput(f"seq {seq} is not a whole number from 1 to {MAX_SEQ}")
                if last_seq and seq != last_seq + 1:
                    raise BadInput(SEQS_DO_NOT_FOLLOW)
                last_seq = seq
                body = encode_row(seq, row)
                if isinstance(body, BadRow):
                    raise body.error(f"row {seq} {body.reason}")
                yield body

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        asyncio.run(self._seal(sum(one.rows for one in messages if isinstance(one, Written))))

    async def _seal(self, total: int) -> None:
        async with connect(self.settings) as backend:
            await Publication(backend, self.task).seal(total)


async def _opened(settings: Settings, request: SubmitRequest) -> Task:
    """Return the task of this key, with its lane open."""
    fingerprint = hashlib.sha256(describe(request, settings)).hexdigest()
    hashes = short_hashes(described(request, settings).values())
    async with connect(settings) as backend:
        made = new_task(request, settings)
        wanted = replace(made, fingerprint=fingerprint, made_of=hashes)
        task = await backend.add(wanted, settings)
        await refuse_stopped(backend, task)
        if task.fingerprint != fingerprint:
            raise other_content(wanted, task, DESCRIBED, "spec")
        if task.total is not None:
            return task
        refuse_outdated(task)
        return await Publication(backend, task).open()
