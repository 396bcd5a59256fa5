"""The Spark session of a fan-out is stopped at its end, whenever that comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.fanout import fan_out
from pushlane.pipeline.fanout.request import FanoutRequest
from pushlane.pipeline.spec import parse_spec

WITHIN_S = 10.0


async def test_a_session_that_nobody_waits_for_any_more_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starting, may_start, stopped = Event(), Event(), Event()

    @contextmanager
    def slow_session(*_: object, **__: object) -> Iterator[object]:
        starting.set()
        may_start.wait(WITHIN_S)
        yield object()
        stopped.set()

    async def work() -> None:
        async with fan_out.FanoutSession(request) as session:
            await session(lambda spark: None)

    monkeypatch.setattr(fan_out, "spark_session", slow_session)
    request = FanoutRequest(audience="users", spec=parse_spec({"level": "high"}, "here"))
    working = asyncio.create_task(work())
    assert await asyncio.to_thread(starting.wait, WITHIN_S)

    working.cancel()
    asyncio.get_running_loop().call_soon(may_start.set)
    await asyncio.gather(working, return_exceptions=True)

    assert stopped.is_set()


async def test_a_failure_reaches_the_session_which_names_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def failing_session(*_: object, **__: object) -> Iterator[object]:
        try:
            yield object()
        except PipelineFailed as error:
            raise PipelineFailed(f"{error} (what Spark said: it)") from error

    def fail(_: object) -> None:
        raise PipelineFailed("it stopped")

    monkeypatch.setattr(fan_out, "spark_session", failing_session)
    request = FanoutRequest(audience="users", spec=parse_spec({"level": "high"}, "here"))
    with pytest.raises(PipelineFailed, match=r"it stopped \(what Spark said: it\)"):
        async with fan_out.FanoutSession(request) as session:
            await session(fail)
