"""A fan-out on the tests' own Spark session, and what it left on the lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from pushlane.backends.backend import connect
from pushlane.core.push import Push, decode
from pushlane.core.task import Task
from pushlane.pipeline.fanout import fan_out as publishing
from pushlane.pipeline.fanout import writer
from pushlane.pipeline.fanout.fan_out import fan_out, publish_part
from pushlane.pipeline.fanout.request import FanoutRequest, FanoutResult
from pushlane.pipeline.fanout.source import PushlaneDataSource
from pushlane.pipeline.spec import TaskSpec, parse_spec
from pushlane.settings import Settings
from pushlane.wire import Packed, bodies_of

CHUNK_PUSHES = 16


def spec(**options: Any) -> TaskSpec:
    return parse_spec({"level": "high", **options}, "test")


def people(folder: Path, count: int = 200, files: int = 2) -> Path:
    """A table in so many files: users 1 … count, every tenth one from Rome."""
    path = folder / "people"
    path.mkdir(exist_ok=True)
    for file in range(files):
        ids = range(1 + file, count + 1, files)
        table = pa.table(
            {
                "recipient": [f"user-{number}" for number in ids],
                "name": [f"N{number}" for number in ids],
                "age": pa.array([number % 90 for number in ids], pa.int32()),
                "city": ["Rome" if number % 10 == 0 else "Oslo" for number in ids],
            }
        )
        pq.write_table(table, path / f"{file}.parquet")
    return path


def asked(audience: Path | str, **given: Any) -> FanoutRequest:
    given.setdefault("spec", spec(title="Hi {name}"))
    return FanoutRequest(audience=str(audience), **given)


async def run(settings: Settings, request: FanoutRequest, **changed: Any) -> FanoutResult:
    return await fan_out(settings, replace(request, **changed))


async def on_lane(settings: Settings, task: Task) -> list[Push]:
    """All that was ever published for the task, in the order of its lane."""
    pushes = [push for message in await messages(settings, task) for push in message]
    return [push for push in pushes if push.task_id == task.id]


async def messages(settings: Settings, task: Task) -> list[list[Push]]:
    """The pushes of each message on the lane of the task."""
    async with connect(settings) as backend:
        pages = [page async for page in backend.broker.replay(task.first_lane)]
    return [list(map(decode, bodies_of(message))) for page in pages for message in page]


def seqs(pushes: list[Push]) -> list[int]:
    return sorted(push.seq for push in pushes)


class Torn(PushlaneDataSource):
    """Every first attempt at a partition breaks off after a batch."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return TornWriter(super().writer(schema, overwrite), attempts=1)


class TornWriter(DataSourceArrowWriter):
    """The real writer, whose rows end half-way with an error, some of them published."""

    def __init__(self, real: DataSourceArrowWriter, attempts: int) -> None:
        self._real = real
        self._attempts = attempts

    def write(self, iterator: Any) -> Any:
        context = TaskContext.get()
        is_torn = context is not None and context.attemptNumber() < self._attempts
        with mock.patch.object(writer, "_CHUNK_PUSHES", CHUNK_PUSHES):
            return self._real.write(_torn(iterator) if is_torn else iterator)

    def commit(self, messages: Any) -> None:
        self._real.commit(messages)


def _torn(batches: Any) -> Any:
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2 + 1)
        raise ConnectionError("torn by the test")


def source_with(
    settings: Settings, kind: type[PushlaneDataSource] = PushlaneDataSource
) -> type[PushlaneDataSource]:
    """The data source with these settings instead of those of the environment."""

    class Bound(kind):  # type: ignore[valid-type, misc]
        pass

    Bound.settings = settings
    return Bound


def broken_part(*given: Any) -> None:
    """Stands for `publish_part`: no attempt gets further than the first half of its bundles."""
    whole = publishing.bundles_of

    def half(*part: Any) -> Iterator[Packed]:
        bundles = list(whole(*part))
        yield from bundles[: len(bundles) // 2 + 1]
        raise ConnectionError("torn by the test")

    with (
        mock.patch.object(writer, "_CHUNK_PUSHES", CHUNK_PUSHES),
        mock.patch.object(publishing, "bundles_of", half),
    ):
        publish_part(*given)
