"""Where a submit of many rows is in a trace: kept with its task once, for its pushes to link to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from pushlane import Client, Producer, SubmitRequest
from pushlane.backends.backend import connect
from pushlane.backends.ports import listed
from pushlane.core.task import Level, Task
from pushlane.operations.receiving import CreateTask
from pushlane.producers.replay import clone
from pushlane.settings import Settings
from tests.command import Command
from tests.door.asking import asking
from tests.served import served

PLACE = f"00-{'a' * 32}-{'b' * 16}-01"
OTHER = f"00-{'c' * 32}-{'d' * 16}-00"
NONE = {
    "no traceparent": "order 7",
    "version ff": f"ff{PLACE[2:]}",
    "no trace": f"00-{'0' * 32}-{'b' * 16}-01",
    "no span": f"00-{'a' * 32}-{'0' * 16}-01",
    "upper case": PLACE.upper(),
    "2 KiB": "a" * 2_048,
}
bad = pytest.mark.parametrize("text", NONE.values(), ids=NONE)


@contextmanager
def current(text: str = PLACE) -> Iterator[None]:
    """A current span at this place, as an application has one."""
    _, trace_id, span_id, flags = text.split("-")
    context = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), False, trace.TraceFlags(int(flags, 16))
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def request(**more: Any) -> SubmitRequest:
    rows = [{"recipient": "ada"}, {"recipient": "bob"}]
    return SubmitRequest(source=rows, level="high", title="Hi", **more)


async def tasks(settings: Settings) -> list[Task]:
    async with connect(settings) as backend:
        return await listed(backend.registry)


async def places(settings: Settings) -> list[str]:
    return [task.traceparent for task in await tasks(settings)]


@pytest.fixture(params=["backend", "server"])
def caller(
    request: pytest.FixtureRequest, settings: Settings, tmp_path: Path
) -> Iterator[Settings]:
    """Settings of somebody who submits to the backend of `settings`, itself or by a server."""
    if request.param == "backend":
        yield settings
        return
    token = tmp_path / "token"
    with served(settings, token) as url:
        yield Settings(url=url, token_file=token, data_dir=tmp_path / "nothing")


async def test_a_submit_is_where_its_callers_span_is(caller: Settings, settings: Settings) -> None:
    async with Client(caller) as client:
        with current():
            await client.submit(request())
        await client.submit(request())

    assert await places(settings) == [PLACE, ""]


def test_so_it_is_for_a_client_that_blocks(caller: Settings, settings: Settings) -> None:
    with Client.sync(caller) as client, current():
        client.submit(request())

    assert asyncio.run(places(settings)) == [PLACE]


async def test_the_place_that_is_given_counts(caller: Settings, settings: Settings) -> None:
    async with Client(caller) as client:
        with current(OTHER):
            await client.submit(request(traceparent=PLACE))

    assert await places(settings) == [PLACE]


@bad
async def test_what_is_no_place_is_left_out_and_told_once(
    settings: Settings, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(settings) as client:
        with caplog.at_level(logging.DEBUG, "pushlane.tracing"):
            await client.submit(request(traceparent=text))

    assert await places(settings) == [""]
    [told] = [one for one in caplog.records if one.name == "pushlane.tracing"]
    assert (told.levelno, told.action) == (logging.DEBUG, "traceparent_ignored")  # type: ignore[attr-defined]
    assert text not in told.getMessage()


async def test_a_repeat_under_its_key_is_the_same_task_and_stays_where_the_first_was(
    caller: Settings, settings: Settings
) -> None:
    async with Client(caller) as client:
        first = await client.submit(request(key="sale", traceparent=PLACE))
        again = await client.submit(request(key="sale", traceparent=OTHER))

    assert again.task.id == first.task.id
    assert await places(settings) == [PLACE]


async def test_pushes_of_a_submit_carry_nothing_of_it(settings: Settings) -> None:
    async with Client(settings) as client:
        made = await client.submit(request(traceparent=PLACE))
    async with connect(settings) as backend:
        bodies = [
            body async for page in backend.broker.replay(f"task-{made.task.id}", 0) for body in page
        ]
    assert bodies
    assert PLACE[3:35].encode() not in b"".join(bodies)


async def test_a_clone_is_a_submit_of_its_own(settings: Settings) -> None:
    async with Client(settings) as client:
        made = await client.submit(request(traceparent=PLACE))
    async with connect(settings) as backend:
        cloned = (await clone(backend, settings, made.task.id)).task

    assert cloned.traceparent == ""


@pytest.mark.parametrize("text", [PLACE, f" {PLACE} ", *NONE.values()])
async def test_a_task_over_http_is_where_its_request_is(settings: Settings, text: str) -> None:
    body = {"level": "high", "key": "sale"}
    async with asking(settings) as ask:
        answers = [
            await ask("POST", "/v1/tasks", body=body, headers={"traceparent": one})
            for one in (text, OTHER)
        ]
        [kept] = await listed(ask.backend.registry)

    assert [answer.status for answer in answers] == [200, 200]
    assert kept.traceparent == (PLACE if text.strip() == PLACE else "")


async def test_so_is_one_that_a_client_makes(caller: Settings, settings: Settings) -> None:
    async with Client(caller) as client:
        with current():
            await client.do(CreateTask(level=Level.HIGH))

    assert await places(settings) == [PLACE]


def test_a_producer_has_a_task_that_is_nowhere(caller: Settings, settings: Settings) -> None:
    """Its pushes are each where they were sent."""
    with current(), Producer("orders", level="high", settings=caller) as producer:
        producer.push("ada", title="Hi")

    assert asyncio.run(places(settings)) == [""]


@pytest.mark.parametrize("command", [False, True], indirect=True, ids=["backend", "server"])
@pytest.mark.parametrize("text", [PLACE, "", *NONE.values()], ids=["one", "empty", *NONE])
def test_a_command_is_where_its_environment_says(
    command: Command, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TRACEPARENT", text)
    task_id = command.submit()
    [kept] = asyncio.run(tasks(Settings(data_dir=command.folder / "data")))

    assert kept.id == task_id
    assert kept.traceparent == (PLACE if text == PLACE else "")
