"""Calls of the client that answer on other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import _pulsar
import pytest

from lanes.errors import BadInput, Unreachable
from lanes.pulsar import link as link_module
from lanes.pulsar.link import Link, connect_link, wake
from lanes.settings import Settings

URL = "pulsar://broker.test:6650"


def answer_from_a_thread(*answer: Any) -> Callable[[Callable[..., None]], None]:
    def start(done: Callable[..., None]) -> None:
        threading.Thread(target=done, args=answer).start()

    return start


async def test_a_call_returns_what_the_client_answers() -> None:
    start = answer_from_a_thread(_pulsar.Result.Ok, "consumer")
    assert await Link(None, URL).call("read lane x", start) == "consumer"


async def test_a_call_raises_what_the_code_means() -> None:
    start = answer_from_a_thread(_pulsar.Result.ConnectError, None)
    with pytest.raises(Unreachable, match="read lane x"):
        await Link(None, URL).call("read lane x", start)


async def test_an_answer_to_a_cancelled_call_is_discarded() -> None:
    started: list[Callable[..., None]] = []
    discarded: list[Any] = []
    call = Link(None, URL).call("read lane x", started.append, discard=discarded.append)
    task = asyncio.create_task(call)
    await asyncio.to_thread(int)
    task.cancel()
    await asyncio.wait([task])

    await asyncio.to_thread(started[0], _pulsar.Result.Ok, "consumer")

    assert discarded == ["consumer"]


def test_waking_a_closed_loop_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    called: list[int] = []

    wake(loop, called.append, 1)

    assert called == []


async def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "OPERATION_TIMEOUT_S", 1)
    settings = Settings(broker="pulsar://127.0.0.1:1")

    with pytest.raises(Unreachable, match=r"pulsar://127\.0\.0\.1:1 .*--broker"):
        async with connect_link(settings):
            pass


async def test_a_broker_url_without_a_host_is_refused() -> None:
    with pytest.raises(BadInput, match="pulsar://"):
        async with connect_link(Settings(broker="pulsar://")):
            pass
