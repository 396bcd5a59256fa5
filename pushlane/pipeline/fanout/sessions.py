"""A Spark session for the steps of a fan-out, run in threads because Spark's calls block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql import SparkSession

from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.fanout.request import FanoutRequest
from pushlane.pipeline.session import spark_session

T = TypeVar("T")


class FanoutSession:
    """An async context manager that starts Spark when it is first needed, and stops it at its end.

    It stops Spark even while that starts. After a failure the session names its log.
    """

    def __init__(self, request: FanoutRequest) -> None:
        self._request = request
        self._spark: SparkSession | None = None
        self._ends = ExitStack()
        self._starting = Lock()
        self._is_closed = False

    async def __call__(self, work: Callable[[SparkSession], T]) -> T:
        return await asyncio.to_thread(lambda: work(self._started()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._end, error if isinstance(error, Exception) else None)

    def _started(self) -> SparkSession:
        request = self._request
        with self._starting:
            if self._spark is None and not self._is_closed:
                options, memory = request.spark_options, request.memory
                session = spark_session(
                    "pushlane fanout", request.master, options, driver_memory=memory
                )
                self._spark = self._ends.enter_context(session)
            if self._spark is None or self._is_closed:
                raise PipelineFailed("the fan-out was stopped before Spark had started")
            return self._spark

    def _end(self, failure: Exception | None) -> None:
        with self._starting:
            self._ends.__exit__(type(failure) if failure else None, failure, None)
