"""A Spark session for the steps of a fan-out, run in threads because Spark's calls block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from threading import Lock
from typing import TypeVar

from pyspark.sql import SparkSession

from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.fanout.request import FanoutRequest
from pushlane.pipeline.session import spark_session

T = TypeVar("T")


class FanoutSession:
    """Starts the Spark session when it is first needed; close stops it even while it starts."""

    def __init__(self, request: FanoutRequest) -> None:
        self._request = request
        self._spark: SparkSession | None = None
        self._ends = ExitStack()
        self._starting = Lock()
        self._is_closed = False

    async def __call__(self, work: Callable[[SparkSession], T]) -> T:
        return await asyncio.to_thread(lambda: work(self._started()))

    async def close(self, failure: Exception | None = None) -> None:
        """End the session, which names its log if there was a failure."""
        self._is_closed = True
        await asyncio.to_thread(self._end, failure)

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


@asynccontextmanager
async def fanout_session(request: FanoutRequest) -> AsyncIterator[FanoutSession]:
    """Provide a session that ends with this context."""
    session = FanoutSession(request)
    failure: Exception | None = None
    try:
        yield session
    except Exception as error:
        failure = error
        raise
    finally:
        await session.close(failure)
